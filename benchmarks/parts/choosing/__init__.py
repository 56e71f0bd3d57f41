"""The papers' own ways to choose a plan, on the problems of dayfly's exact planners.

A file a method. Each is pure but for the solver it uses, and gives an `Answer`: what it found, by
the same equations as the exact planner's, and how it was stopped.
"""
