"""The papers' equations, one file a paper, each a pure function; docs/formulas.md lists them.

Those on which the planners stand are in `dayfly.planning.choose.formulas`.
They are what the papers say, corrected where they are wrong (docs/errata.md). dayfly predicts by
its own schedules in virtual time; tests hold the two against each other.
"""
