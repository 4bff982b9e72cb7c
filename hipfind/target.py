"""What a solver may know about a device: a frozen description without a handle.

``known("gfx942")`` returns a catalogue entry, so that applicability and ranking can be studied on any machine. The
figures are the vendors' datasheet values (dense matrix rates, memory bandwidth); they feed a roofline estimate and
need to be right within tens of per cent, not more.
"""

from __future__ import annotations

import dataclasses

from hipfind.errors import DeviceError

_UNKNOWN_PEAK_TFLOPS = 0.1
_AMD_MATRIX_CORES = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")


@dataclasses.dataclass(frozen=True)
class Target:
    """A device as solvers see it.

    ``peak_tflops`` maps a dtype name to the dense matrix rate in TFLOP/s (2 operations a multiply-add);
    ``vector_tflops`` is the rate of plain fp32 code (no matrix cores), which is what naive kernels can hope for.
    ``bandwidth_gbs`` is in 1e9 bytes/s, memory sizes in bytes, ``launch_us`` the cost of starting one step.
    ``max_items`` is the largest index count that one launch covers.
    """

    vendor: str  # "amd", "nvidia", "host"
    arch: str  # "gfx942", "sm_90", "x86_64"
    name: str
    compute_units: int
    wave_size: int
    lds_bytes: int
    clock_mhz: int
    l2_bytes: int
    memory_bytes: int
    bandwidth_gbs: float
    vector_tflops: float
    peak_tflops: tuple[tuple[str, float], ...]
    launch_us: float
    kernels: bool = True  # portable kernels can be compiled for it here
    triton: bool = True  # kernels for its matrix cores can be compiled here
    max_items: int = 2**63 - 1

    def peak(self, dtype: str) -> float:
        """Peak rate in FLOP/s for products of ``dtype`` ("fp32", "fp16", "bf16", "fp64")."""
        return dict(self.peak_tflops).get(dtype, _UNKNOWN_PEAK_TFLOPS) * 1e12

    @property
    def has_matrix_cores(self) -> bool:
        """Whether Triton has matrix instructions of 16-bit types for it: MFMA, WMMA, or NVIDIA's from sm_80 on."""
        if self.vendor == "nvidia":
            return int(self.arch.removeprefix("sm_")) >= 80
        return self.vendor == "amd" and self.arch.startswith(_AMD_MATRIX_CORES)

    @property
    def is_host(self) -> bool:
        return self.vendor == "host"

    @property
    def key(self) -> str:
        """Identity of the silicon in the perf DB: vendor, architecture, compute units; no marketing name, no driver."""
        return f"{self.vendor}:{self.arch}:{self.compute_units}"


def _gpu(vendor: str, arch: str, name: str, **values: object) -> Target:
    defaults: dict[str, object] = {"launch_us": 5.0}
    return Target(vendor=vendor, arch=arch, name=name, **{**defaults, **values})  # type: ignore[arg-type]


def _rates(fp64: float, fp32: float, fp16: float) -> tuple[tuple[str, float], ...]:
    return (("fp64", fp64), ("fp32", fp32), ("fp16", fp16), ("bf16", fp16))


_GIB = 1 << 30
_MIB = 1 << 20

KNOWN_TARGETS: tuple[Target, ...] = (
    _gpu("amd", "gfx908", "AMD Instinct MI100", compute_units=120, wave_size=64, lds_bytes=65536, clock_mhz=1502,
         l2_bytes=8 * _MIB, memory_bytes=32 * _GIB, bandwidth_gbs=1228.8, vector_tflops=23.1,
         peak_tflops=_rates(11.5, 46.1, 184.6)),
    _gpu("amd", "gfx90a", "AMD Instinct MI210", compute_units=104, wave_size=64, lds_bytes=65536, clock_mhz=1700,
         l2_bytes=8 * _MIB, memory_bytes=64 * _GIB, bandwidth_gbs=1638.4, vector_tflops=22.6,
         peak_tflops=_rates(45.3, 45.3, 181.0)),
    _gpu("amd", "gfx942", "AMD Instinct MI300X", compute_units=304, wave_size=64, lds_bytes=65536, clock_mhz=2100,
         l2_bytes=256 * _MIB, memory_bytes=192 * _GIB, bandwidth_gbs=5300.0, vector_tflops=163.4,
         peak_tflops=_rates(163.4, 163.4, 1307.4)),
    _gpu("amd", "gfx950", "AMD Instinct MI355X", compute_units=256, wave_size=64, lds_bytes=163840, clock_mhz=2400,
         l2_bytes=256 * _MIB, memory_bytes=288 * _GIB, bandwidth_gbs=8000.0, vector_tflops=157.3,
         peak_tflops=_rates(78.6, 157.3, 2500.0)),
    _gpu("amd", "gfx1030", "AMD Radeon RX 6900 XT", compute_units=80, wave_size=32, lds_bytes=65536, clock_mhz=2250,
         l2_bytes=128 * _MIB, memory_bytes=16 * _GIB, bandwidth_gbs=512.0, vector_tflops=23.0,
         peak_tflops=_rates(1.4, 23.0, 46.1)),
    _gpu("amd", "gfx1100", "AMD Radeon RX 7900 XTX", compute_units=96, wave_size=32, lds_bytes=65536, clock_mhz=2500,
         l2_bytes=96 * _MIB, memory_bytes=24 * _GIB, bandwidth_gbs=960.0, vector_tflops=61.4,
         peak_tflops=_rates(1.9, 61.4, 122.8)),
    _gpu("amd", "gfx1201", "AMD Radeon RX 9070 XT", compute_units=64, wave_size=32, lds_bytes=65536, clock_mhz=2970,
         l2_bytes=64 * _MIB, memory_bytes=16 * _GIB, bandwidth_gbs=640.0, vector_tflops=48.7,
         peak_tflops=_rates(0.8, 48.7, 195.0)),
    _gpu("nvidia", "sm_80", "NVIDIA A100 80GB", compute_units=108, wave_size=32, lds_bytes=166912, clock_mhz=1410,
         l2_bytes=40 * _MIB, memory_bytes=80 * _GIB, bandwidth_gbs=2039.0, vector_tflops=19.5,
         peak_tflops=_rates(19.5, 19.5, 312.0)),
    _gpu("nvidia", "sm_90", "NVIDIA H200", compute_units=132, wave_size=32, lds_bytes=232448, clock_mhz=1980,
         l2_bytes=60 * _MIB, memory_bytes=141 * _GIB, bandwidth_gbs=4800.0, vector_tflops=67.0,
         peak_tflops=_rates(67.0, 67.0, 989.0)),
    Target(vendor="host", arch="x86_64", name="generic host CPU", compute_units=2, wave_size=8, lds_bytes=32768,
           clock_mhz=2500, l2_bytes=32 * _MIB, memory_bytes=16 * _GIB, bandwidth_gbs=20.0, vector_tflops=0.08,
           peak_tflops=_rates(0.1, 0.2, 0.1), launch_us=3.0, triton=False),
)  # fmt: skip


def known(arch: str) -> Target:
    """Catalogue entry for an architecture name. Raises DeviceError naming the known ones."""
    for target in KNOWN_TARGETS:
        if target.arch == arch:
            return target
    names = ", ".join(target.arch for target in KNOWN_TARGETS)
    raise DeviceError("unknown target architecture", got=arch, remedy=f"known: {names}")
