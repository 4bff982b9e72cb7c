from __future__ import annotations

import pytest

from hipfind.device.host import HostDevice


@pytest.fixture(scope="session")
def host() -> HostDevice:
    """A host device; skips where there is no C++ compiler."""
    device = HostDevice()
    if not device.target.kernels:
        pytest.skip("no C++ compiler on this machine")
    return device
