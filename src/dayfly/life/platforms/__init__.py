"""Places where functions run, one file or family of files each."""
