"""Virtual time: its loop on objects, and the same compiled, over arrays, for numba."""
