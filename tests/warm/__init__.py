"""Processes of tests that are forked from one that has torch imported, in place of started."""
