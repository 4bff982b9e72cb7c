"""Target of a GPU: what its runtime reports, with peak rates scaled from the catalogue or estimated."""

from __future__ import annotations

import dataclasses

from hipfind.device.gpu_driver import GpuProperties
from hipfind.target import KNOWN_TARGETS, Target

_LANES = {"amd": 64, "nvidia": 64}
"""fp32 lanes of a compute unit that any architecture has; many newer ones have twice as many."""
_MATRIX_SPEEDUP = 4.0
"""Dense fp16 matrix rate over the plain fp32 rate that any GPU with matrix cores reaches."""
_FP64_FRACTION = 1 / 32
_BYTES_PER_FLOP = 0.03
"""Memory bandwidth over the plain fp32 rate, of GPUs about which nothing else is known."""
_LAUNCH_US = 5.0


def target_of(properties: GpuProperties) -> Target:
    """A Target for a device that is there.

    Known architecture: the catalogue's rates, scaled by compute units and clock. Unknown: a conservative estimate out
    of compute units and clock, so that ranking by expected time still works.
    """
    catalogue = {target.arch: target for target in KNOWN_TARGETS if target.vendor == properties.vendor}
    known = catalogue.get(properties.arch)
    return _scaled(known, properties) if known else _estimated(properties)


def _scaled(known: Target, properties: GpuProperties) -> Target:
    scale = properties.compute_units * properties.clock_mhz / (known.compute_units * known.clock_mhz)
    return dataclasses.replace(
        known,
        name=properties.name,
        compute_units=properties.compute_units,
        wave_size=properties.wave_size,
        lds_bytes=properties.lds_bytes or known.lds_bytes,
        clock_mhz=properties.clock_mhz,
        # A runtime's L2 size leaves out the cache behind it (AMD's Infinity Cache); the catalogue's includes it.
        l2_bytes=max(properties.l2_bytes, known.l2_bytes),
        memory_bytes=properties.memory_bytes,
        bandwidth_gbs=properties.bandwidth_gbs or known.bandwidth_gbs,
        vector_tflops=known.vector_tflops * scale,
        peak_tflops=tuple((dtype, rate * scale) for dtype, rate in known.peak_tflops),
    )


def _estimated(properties: GpuProperties) -> Target:
    lanes = properties.compute_units * _LANES[properties.vendor]
    vector = 2 * lanes * properties.clock_mhz * 1e6 / 1e12
    return Target(
        vendor=properties.vendor,
        arch=properties.arch,
        name=properties.name,
        compute_units=properties.compute_units,
        wave_size=properties.wave_size,
        lds_bytes=properties.lds_bytes,
        clock_mhz=properties.clock_mhz,
        l2_bytes=properties.l2_bytes,
        memory_bytes=properties.memory_bytes,
        bandwidth_gbs=properties.bandwidth_gbs or vector * 1e3 * _BYTES_PER_FLOP,
        vector_tflops=vector,
        peak_tflops=(
            ("fp64", vector * _FP64_FRACTION),
            ("fp32", vector),
            ("fp16", vector * _MATRIX_SPEEDUP),
            ("bf16", vector * _MATRIX_SPEEDUP),
        ),
        launch_us=_LAUNCH_US,
    )
