"""Depthwise convolution solvers: one filter a channel, by tiles in registers."""
