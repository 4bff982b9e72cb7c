"""HIP runtime, compiler and BLAS without a GPU: libraries for tests, which the real hip-python loads as if ROCm's.

Device memory is host memory that the host cannot reach, kernels are the portable kernels' own text compiled for the
host, queued work runs only when somebody waits for it. Wrong use is noted, any call can be made to fail, live objects
are counted. It shows that the HIP device calls ROCm's libraries rightly, with the right arguments, in a right order; it
shows nothing about speed, about AMD's compilers and hardware, or about races between threads of one kernel.

hip-python opens its libraries once a process, so whatever uses the stand-in runs in a process of its own, started with
``environment()``; inside that process ``Control`` talks to it, and Triton is as if it were not installed.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

SOURCES = pathlib.Path(__file__).parent
_LIBRARIES = {
    "libamdhip64.so": ("state", "devices", "memory", "streams", "events", "graphs", "modules"),
    "libhiprtc.so": ("compiler",),
    "libhipblas.so": ("blas",),
    "libhipblaslt.so": ("blaslt",),
}
"""Each library's sources (.cpp)."""
_RUNTIME = "libamdhip64.so"


def missing() -> str:
    """Why the stand-in cannot be used here, or nothing."""
    if sys.platform != "linux":
        return "the stand-in needs Linux"
    if importlib.util.find_spec("rocm") is None or importlib.util.find_spec("rocm.bindings.hipblas") is None:
        return "hip-python and rocm-bindings-libraries are not installed"
    if not _compiler():
        return "there is no C++ compiler"
    return ""


@functools.cache
def _compiler() -> tuple[str, ...]:
    """The host's C++ compiler as a command: c++ and its kin, else ziglang."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++", "c++"):
        if name and shutil.which(name):
            return (name,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "c++")
    return ()


def _enums() -> str:
    """hip-python's numbers of errors and device attributes as lists for the C++ sources."""
    from rocm.bindings import hip

    def rows(name: str, members: dict[str, int]) -> str:
        return f"#define {name}(X) \\\n" + " \\\n".join(f"  X({key}, {value})" for key, value in members.items()) + "\n"

    errors = {member.name: int(member.value) for member in hip.hipError_t}
    attributes = {member.name: int(member.value) for member in hip.hipDeviceAttribute_t}
    return rows("STANDIN_ERRORS", errors) + rows("STANDIN_ATTRIBUTES", attributes)


@functools.cache
def build() -> pathlib.Path:
    """Folder of the built libraries. Made once for a set of sources and a compiler, by whoever comes first."""
    import fcntl  # not there on Windows, of which missing() knows

    enums = _enums()
    digest = hashlib.sha256(repr(_compiler()).encode() + enums.encode())
    for path in sorted((*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h"), pathlib.Path(__file__))):
        digest.update(path.read_bytes())
    root = pathlib.Path(tempfile.gettempdir()) / f"hipfind-standin-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    folder = root / digest.hexdigest()[:16]
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait for the one that builds
        if not folder.exists():
            work = pathlib.Path(tempfile.mkdtemp(dir=root))
            _build_in(work, enums)
            work.rename(folder)
    return folder


def _build_in(folder: pathlib.Path, enums: str) -> None:
    (folder / "hip_enums.h").write_text(enums)
    for header in ("prelude.h", "launch.h"):
        shutil.copy(SOURCES / header, folder)
    sources = [source for names in _LIBRARIES.values() for source in names]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(functools.partial(_compile, folder), sources))
    for library, names in _LIBRARIES.items():
        runtime = [] if library == _RUNTIME else [str(folder / _RUNTIME), "-Wl,-rpath,$ORIGIN"]
        objects = [str(folder / f"{name}.o") for name in names]
        _run("-shared", "-pthread", f"-Wl,-soname,{library}", "-o", str(folder / library), *objects, *runtime, "-ldl")


def _compile(folder: pathlib.Path, source: str) -> None:
    flags = ("-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-fPIC", "-pthread", "-Wall", "-Werror", f"-I{folder}")
    _run(*flags, "-c", "-o", str(folder / f"{source}.o"), str(SOURCES / f"{source}.cpp"))


def _run(*arguments: str) -> None:
    done = subprocess.run([*_compiler(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the stand-in was not built: {' '.join(arguments)}\n{done.stderr}")


def environment(
    devices: int = 1, arch: str = "gfx942", memory: int = 2 << 30, folder: pathlib.Path | None = None
) -> dict[str, str]:
    """Environment of a process that shall find the stand-in (in ``folder``; ``build()`` by default) as its ROCm."""
    folder = folder or build()
    foreign = ("ROCM_", "HIP_", "HIPFIND_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **kept,
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(folder), kept.get("LD_LIBRARY_PATH", "")))),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SOURCES / "site"), kept.get("PYTHONPATH", "")))),
        "ROCM_PATH": str(folder),  # hip-python prefers an installed ROCm to the library path unless this says otherwise
        "STANDIN_CXX": " ".join(_compiler()),
        "STANDIN_DEVICES": str(devices),
        "STANDIN_ARCH": arch,
        "STANDIN_MEMORY": str(memory),
        "HIPFIND_CACHE_DIR": str(build() / "kernels"),
        "HIPFIND_DISABLE_USER_DB": "1",
    }


def run(arguments: Sequence[str], timeout: float = 300.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """``python *arguments`` at the repository's root, with the stand-in; ``options`` are those of ``environment``."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=SOURCES.parents[1],
        env=environment(**options),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Control:
    """The stand-in that this process has loaded: faults to inject, counts, wrong use."""

    lost: str | None = None
    """The kind of object of which a test makes one release fail."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_RUNTIME)
        for name in ("standin_calls", "standin_live", "standin_violations"):
            getattr(self._library, name).restype = ctypes.c_long

    def fail(self, call: str, error: int, nth: int = 1) -> None:
        """The ``nth`` use of ``call`` from now on returns ``error``; call "kernel" is a kernel while it runs."""
        self._library.standin_fail(call.encode(), nth, error)

    def clear_faults(self) -> None:
        self._library.standin_clear_faults()

    def revive(self) -> None:
        """Make a device work again after a kernel failed, which nothing can do for a real one."""
        self._library.standin_revive()

    def calls(self, call: str) -> int:
        return int(self._library.standin_calls(call.encode()))

    def called(self) -> set[str]:
        """Functions that were called so far."""
        text = ctypes.create_string_buffer(1 << 16)
        self._library.standin_called(text, ctypes.c_size_t(len(text)))
        return set(text.value.decode().split())

    def live(self, kind: str) -> int:
        """Objects of a kind that are not released: "memory", "stream", "event", "module", "graph", "program", ..."""
        return int(self._library.standin_live(kind.encode()))

    def violations(self) -> list[str]:
        """Wrong use since the last call."""
        text = ctypes.create_string_buffer(1 << 16)
        self._library.standin_violations(text, ctypes.c_size_t(len(text)))
        return text.value.decode().splitlines()
