"""Seeded faults in the source, and how many of them the tests of their room find."""
