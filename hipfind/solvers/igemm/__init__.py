"""Convolutions as implicit matrix products."""
