"""Redis, as the channel over it needs it: protocol, connections, what stands where in it."""
