"""Parts of `dayfly bench accuracy`: what is trained, in which ways, and how long an epoch takes."""
