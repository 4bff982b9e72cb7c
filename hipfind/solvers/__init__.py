"""Solvers: each says whether it applies, how fast it expects to be, and hands out a solution. One file a solver."""
