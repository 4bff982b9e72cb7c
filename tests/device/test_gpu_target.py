"""Targets of GPUs that are there: scaled from the catalogue, estimated where the architecture is unknown."""

from __future__ import annotations

import dataclasses

import pytest

from hipfind.device.gpu_driver import GpuProperties
from hipfind.device.gpu_target import target_of
from hipfind.target import KNOWN_TARGETS, known

GPUS = [target for target in KNOWN_TARGETS if not target.is_host]


def properties_of(target):
    fields = {field.name: getattr(target, field.name) for field in dataclasses.fields(GpuProperties)}
    return GpuProperties(**fields)


@pytest.mark.parametrize("target", GPUS, ids=lambda target: target.arch)
def test_a_catalogue_device_is_itself(target):
    assert target_of(properties_of(target)) == target


def test_rates_scale_with_units_and_clock():
    full = known("gfx942")
    part = target_of(dataclasses.replace(properties_of(full), compute_units=76, clock_mhz=1050))
    assert part.peak("bf16") == pytest.approx(full.peak("bf16") / 8)
    assert part.vector_tflops == pytest.approx(full.vector_tflops / 8)
    assert part.key == "amd:gfx942:76"


def test_reported_bandwidth_wins_and_unknown_one_is_the_catalogues():
    reported = properties_of(known("sm_90"))
    assert target_of(dataclasses.replace(reported, bandwidth_gbs=3350.0)).bandwidth_gbs == 3350.0
    assert target_of(dataclasses.replace(reported, bandwidth_gbs=0.0)).bandwidth_gbs == known("sm_90").bandwidth_gbs


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
def test_an_unknown_architecture_is_estimated_low_but_usable(vendor):
    near = known("gfx942" if vendor == "amd" else "sm_90")
    target = target_of(dataclasses.replace(properties_of(near), arch="future", bandwidth_gbs=0.0))
    assert 0 < target.bandwidth_gbs < near.bandwidth_gbs
    for dtype in ("fp64", "fp32", "fp16", "bf16"):
        assert 0 < target.peak(dtype) < near.peak(dtype)
    assert 0 < target.vector_tflops < near.vector_tflops
