"""Limits and prices of platforms, as data files with source and date."""
