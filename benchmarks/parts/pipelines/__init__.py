"""What `dayfly bench training --pipelines` is made of."""
