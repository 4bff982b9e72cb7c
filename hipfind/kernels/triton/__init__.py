"""Kernels for matrix cores in Triton. Compiled ahead of time by a process of its own, for AMD and NVIDIA."""
