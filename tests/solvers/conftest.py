from __future__ import annotations

import pytest

from hipfind.device.base import Device
from hipfind.device.devices import get_device


@pytest.fixture(scope="session")
def device(device_name: str) -> Device:
    """The device that the tests' solutions run on."""
    return get_device(device_name)
