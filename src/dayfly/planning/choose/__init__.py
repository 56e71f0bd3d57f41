"""Choosing a plan: exact planners, pure functions, one file a concept; fronts, and what binds."""
