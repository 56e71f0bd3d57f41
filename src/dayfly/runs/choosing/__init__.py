"""`dayfly plan`: the planners asked about all platforms and stores, and their best re-ranked."""
