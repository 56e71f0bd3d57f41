"""FasDL's configurations and channels, and its figures 3 and 13."""
