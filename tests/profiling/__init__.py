"""`dayfly profile`: what functions measure of a job."""
