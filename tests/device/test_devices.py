"""Device names, the default device, and the reasons of devices that are not there."""

from __future__ import annotations

import pytest

from hipfind import settings
from hipfind.device import devices
from hipfind.device.devices import get_device, list_devices
from hipfind.errors import DeviceError
from tests.helpers.fake_driver import FakeDriver


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(devices, "_open", {})
    monkeypatch.setattr(devices, "_default", None)
    with settings.override(device=""):
        yield


@pytest.fixture
def gpus(monkeypatch):
    """Kinds -> how many GPUs of it there are, or the DeviceError that says why none; changed by the test."""
    there = {"hip": 0, "cuda": 0}

    class Module:
        def __init__(self, kind):
            self.kind = kind

        def device_count(self):
            if isinstance(there[self.kind], DeviceError):
                raise there[self.kind]
            return there[self.kind]

        def open_device(self, ordinal):
            if ordinal >= self.device_count():
                raise DeviceError(f"{self.kind} device {ordinal} does not exist")
            device = FakeDriver(ordinal)
            device.name = f"{self.kind}:{ordinal}"
            device.target = None
            return device

    monkeypatch.setattr(devices, "_gpu_module", Module)
    return there


def test_the_first_that_works_is_the_default(gpus):
    gpus["hip"] = DeviceError("no ROCm")
    assert get_device().name == "host"
    gpus["cuda"] = 1
    assert get_device().name == "host", "a process keeps its default device"


@pytest.mark.parametrize(("hip", "cuda", "name"), [(2, 2, "hip:0"), (0, 2, "cuda:0"), (1, 0, "hip:0"), (0, 0, "host")])
def test_amd_before_nvidia_before_the_host(gpus, hip, cuda, name):
    gpus.update(hip=hip, cuda=cuda)
    assert get_device().name == name


def test_the_setting_chooses(gpus):
    gpus.update(hip=1, cuda=2)
    with settings.override(device="cuda:1"):
        assert get_device().name == "cuda:1"
        assert get_device("host").name == "host"


def test_a_device_is_opened_once_whatever_it_is_called(gpus):
    gpus["hip"] = 12
    assert get_device("hip") is get_device("hip:0") is get_device("hip:00")
    assert get_device("hip:1") is not get_device("hip:11")


@pytest.mark.parametrize("name", ["gpu", "hip:", "hip:-1", "hip:x", "hip:1:2", "host:0", "cuda:1.5", ":1", "hip:²"])
def test_names_that_are_none(gpus, name):
    with pytest.raises(DeviceError, match="unknown device"):
        get_device(name)


def test_a_number_that_is_not_there(gpus):
    gpus["hip"] = 2
    with pytest.raises(DeviceError, match="hip device 2 does not exist"):
        get_device("hip:2")


def test_the_list_has_every_device_and_every_reason(gpus):
    gpus.update(hip=DeviceError("no ROCm here"), cuda=2)
    rows = [(info.name, info.available) for info in list_devices()]
    assert rows == [("hip", False), ("cuda:0", True), ("cuda:1", True), ("host", True)]
    assert list_devices()[0].reason == "no ROCm here"
    gpus["cuda"] = 0
    assert [info.reason for info in list_devices() if info.name == "cuda"] == [
        "there is no cuda device (got 0 devices)"
    ]


def test_a_package_that_is_not_installed_is_a_reason(monkeypatch):
    def fail(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(devices.importlib, "import_module", fail)
    with pytest.raises(
        DeviceError, match=r"hip devices need a package.*hipfind\.device\.hip.*pip install 'hip-python'"
    ):
        get_device("hip")
    assert [info.name for info in list_devices() if info.available] == ["host"]
    assert get_device().name == "host"
