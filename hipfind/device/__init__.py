"""HOW to run: devices know bytes, kernels and matrix products, never a problem."""
