"""Parts of `dayfly bench protocols`: tasks that are trained, and what their runs came to."""
