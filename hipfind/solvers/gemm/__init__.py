"""Convolutions as matrix products, by MIOpen's GEMM solvers."""
