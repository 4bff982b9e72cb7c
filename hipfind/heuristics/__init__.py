"""Ranks candidates without running them. Knows numbers only: no solver, no device, no DB."""
