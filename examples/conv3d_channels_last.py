"""A 3D convolution on channel-last arrays: lengths stay N, C, D, H, W, and the strides say how they lie in memory."""

import numpy as np

import hipfind as hf

rng = np.random.default_rng(0)


def channels_last(*lengths: int) -> np.ndarray:
    """A random array of lengths N, C, D, H, W whose memory order is N, D, H, W, C."""
    n, c, *space = lengths
    return np.moveaxis(rng.standard_normal((n, *space, c), dtype=np.float32), -1, 1)


x = channels_last(2, 4, 6, 8, 8)
w = channels_last(8, 4, 3, 3, 3)
y = hf.conv(x, w, pad=1)
print(f"y: shape {y.shape}, strides {tuple(stride // y.itemsize for stride in y.strides)}")
assert y.strides[1] == y.itemsize  # channel-last like x

problem = hf.ConvProblem.create("fwd", x.shape, w.shape, pad=1, layout="NDHWC")
print(f"key: {problem.key()}")
print(f"MIOpen's key: {problem.miopen_key()}")
print(f"solver: {hf.plan(problem).solver_id}")
error = np.abs(y - problem.reference({"x": x, "w": w})).max()
print(f"largest difference from float64: {error:.1e}")
assert error < 1e-4
