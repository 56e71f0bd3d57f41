"""Messages over TCP sockets: what the parameter server and the direct channel stand on."""
