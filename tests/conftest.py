"""The device that tests run on: ``pytest --device host|hip|cuda`` (hip:1 and the like work too)."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="host", help="device for the device tests: host (default), hip or cuda")


@pytest.fixture(scope="session")
def device_name(request: pytest.FixtureRequest) -> str:
    """The device that was asked for on the command line, e.g. "host" or "hip:0"."""
    return str(request.config.getoption("--device"))
