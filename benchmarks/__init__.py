"""What `dayfly bench` measures: a module here is a bench, and `parts` is what they are made of."""
