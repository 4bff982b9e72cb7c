"""Direct solvers: a convolution by its definition, and the trivial answer to an empty one."""
