"""What the host's CPU is: a Target estimated from what the system says about it, in constant time, nothing measured."""

from __future__ import annotations

import os
import pathlib
import platform
import re

from hipfind.device.host_threads import usable_cores
from hipfind.target import Target

_CPU = pathlib.Path("/sys/devices/system/cpu/cpu0")
_DEFAULT_CACHE_BYTES = 32 << 20
_DEFAULT_CLOCK_MHZ = 2500
_DEFAULT_MEMORY_BYTES = 8 << 30
_FLOPS_PER_CYCLE = (("avx512f", 48), ("avx2", 32), ("avx", 16), ("asimd", 16))
"""fp32 operations of a core in a cycle by its widest instruction set; AVX-512 lies between one and two units."""
_OTHER_FLOPS_PER_CYCLE = 8
_VECTOR_BYTES = (("avx512f", 64), ("avx", 32))
_CORE_BANDWIDTH_GBS = 10.0
_MOST_BANDWIDTH_GBS = 150.0
_LAUNCH_US = 3.0


def host_target(kernels: bool) -> Target:
    """The target of this machine's CPU. ``kernels``: whether portable kernels can be compiled here."""
    facts = _cpu_facts()
    flags = cpu_flags().split()
    cores, clock = usable_cores(), _clock_mhz(facts)
    per_cycle = next((rate for flag, rate in _FLOPS_PER_CYCLE if flag in flags), _OTHER_FLOPS_PER_CYCLE)
    tflops = max(cores / _threads_per_core(), 1.0) * clock * 1e-6 * per_cycle
    vector_bytes = next((size for flag, size in _VECTOR_BYTES if flag in flags), 16)
    return Target(
        vendor="host",
        arch=platform.machine() or "unknown",
        name=cpu_name(),
        compute_units=cores,
        wave_size=vector_bytes // 4,
        lds_bytes=_cache_bytes(level=1),
        clock_mhz=clock,
        l2_bytes=last_level_cache_bytes(),
        memory_bytes=_memory_bytes(),
        bandwidth_gbs=min(cores * _CORE_BANDWIDTH_GBS, _MOST_BANDWIDTH_GBS),
        vector_tflops=tflops,
        # 16-bit products are converted to fp32, so they cannot be faster than that.
        peak_tflops=(("fp64", tflops / 2), ("fp32", tflops), ("fp16", 0.9 * tflops), ("bf16", 0.9 * tflops)),
        launch_us=_LAUNCH_US,
        triton=False,
        kernels=kernels,
    )


def cpu_name() -> str:
    """The CPU's model name."""
    return _cpu_facts().get("model name") or platform.processor() or platform.machine() or "CPU"


def cpu_flags() -> str:
    """Instruction sets by the system's names, separated by blanks; empty where it does not say."""
    facts = _cpu_facts()
    return facts.get("flags", facts.get("Features", ""))


def last_level_cache_bytes() -> int:
    """Size of the largest cache."""
    return max(_cache_bytes(level) for level in (2, 3, 4)) or _DEFAULT_CACHE_BYTES


def _cpu_facts() -> dict[str, str]:
    """The first core's lines of /proc/cpuinfo. Reading only those is quick on machines with many cores."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read(8192)
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _clock_mhz(facts: dict[str, str]) -> int:
    kilohertz = _number(_CPU / "cpufreq/cpuinfo_max_freq")
    if kilohertz:
        return kilohertz // 1000
    match = re.match(r"\d+", facts.get("cpu MHz", ""))
    return int(match.group()) if match else _DEFAULT_CLOCK_MHZ


def _threads_per_core() -> int:
    """Hardware threads that share the first core's units."""
    siblings = _text(_CPU / "topology/thread_siblings_list")
    count = 0
    for part in siblings.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            count += int(last) - int(first) + 1 if last.isdigit() else 1
    return max(count, 1)


def _cache_bytes(level: int) -> int:
    """Largest data cache of a level; 0 when it is not there or not known."""
    sizes = [0]
    for index in _CPU.glob("cache/index*"):
        if _number(index / "level") == level and _text(index / "type") != "Instruction":
            match = re.fullmatch(r"(\d+)([KMG]?)", _text(index / "size"))
            if match:
                sizes.append(int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]])
    return max(sizes)


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return _DEFAULT_MEMORY_BYTES


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: pathlib.Path) -> int:
    text = _text(path)
    return int(text) if text.isdigit() else 0
