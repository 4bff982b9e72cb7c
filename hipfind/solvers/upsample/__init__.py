"""The gradient of bilinear 2D resizing: scattered, gathered, in two passes, or tile by tile."""
