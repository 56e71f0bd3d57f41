"""What is to run, as data: descriptions that life, training and planning share."""
