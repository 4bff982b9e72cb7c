"""The patch embedding of a vision transformer in all three directions, on numpy arrays."""

import numpy as np

import hipfind as hf

rng = np.random.default_rng(0)
patches, channels, side, width = 196, 3, 14, 384
x = rng.standard_normal((patches, channels, side, side), dtype=np.float32)
w = rng.standard_normal((width, channels, side, side), dtype=np.float32)
dy = rng.standard_normal((patches, width, 1, 1), dtype=np.float32)

y = hf.conv(x, w, stride=side)
dx = hf.conv_bwd_data(dy, w, x_shape=x.shape, stride=side)
dw = hf.conv_bwd_weights(dy, x, w_shape=w.shape, stride=side)

# One output position a patch: each direction is one matrix product, which is what the solver makes of it.
flat_x, flat_w, flat_dy = x.reshape(patches, -1), w.reshape(width, -1), dy.reshape(patches, width)
for name, ours, expected in (
    ("y", y, flat_x @ flat_w.T),
    ("dx", dx, flat_dy @ flat_w),
    ("dw", dw, flat_dy.T @ flat_x),
):
    error = np.linalg.norm(ours.reshape(expected.shape) - expected) / np.linalg.norm(expected)
    print(f"{name}: shape {ours.shape}, relative difference {error:.1e}")
    assert error < 1e-5
