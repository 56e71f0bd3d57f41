"""Virtual time compiled: what `simulation` does, as loops over arrays, for numba."""
