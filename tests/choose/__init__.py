"""Choosing plans: fronts, and the exact planners."""
