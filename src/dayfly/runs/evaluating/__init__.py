"""`run.test` and `run.predict`: a trained model on other data, measured by functions."""
