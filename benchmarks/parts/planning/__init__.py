"""What `dayfly bench planning` is made of."""
