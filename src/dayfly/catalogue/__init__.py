"""Limits and prices of platforms and stores, as data files: each value has its source and date."""
