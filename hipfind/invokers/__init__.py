"""Solutions as data (steps on named buffers) and the invokers that run them on a device."""
