"""`dayfly profile`: what a job takes on a platform, measured by functions of that platform."""
