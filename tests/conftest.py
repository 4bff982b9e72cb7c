"""The device that tests run on: ``pytest --device host|hip|cuda`` (hip:1 and the like work too)."""

from __future__ import annotations

import os

import hypothesis
import pytest

# what is not about devices runs on the host, also on a machine that has a GPU
os.environ.setdefault("HIPFIND_DEVICE", "host")

# no example fails for being slow: a loaded machine is not a bug
hypothesis.settings.register_profile("hipfind", deadline=None)
hypothesis.settings.load_profile("hipfind")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="host", help="device for the device tests: host (default), hip or cuda")


@pytest.fixture(scope="session")
def device_name(request: pytest.FixtureRequest) -> str:
    """The device that was asked for on the command line, e.g. "host" or "hip:0"."""
    return str(request.config.getoption("--device"))
