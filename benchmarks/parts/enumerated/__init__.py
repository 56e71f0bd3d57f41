"""Every plan of a problem, one after another, to hold planners against: slow, and plain."""
