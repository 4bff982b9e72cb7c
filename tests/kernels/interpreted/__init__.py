"""Tests of the Triton kernels by Triton's interpreter; tests/kernels/test_interpreted.py starts them.

The interpreter is chosen when Triton decorates a function, so each module runs in a process of its own that has
TRITON_INTERPRET=1 from the start. Files are not named test_*, so that a plain pytest does not collect them.
"""
