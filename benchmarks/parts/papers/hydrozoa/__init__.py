"""Hydrozoa's workers, its figures 4 to 6, and its table 4."""
