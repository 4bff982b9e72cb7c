"""The C++ compiler of the host device: finds one, tells what its code depends on, compiles portable kernels with it.

A machine without a system compiler can have one from PyPI: ``pip install hipfind[host]`` brings ziglang.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence

from hipfind.device.host_target import cpu_flags, cpu_name
from hipfind.device.kernel_cache import digest, kernel_cache
from hipfind.errors import CompileError, CompilerNotFoundError
from hipfind.kernels.spec import HIP_SOURCES, KernelSpec

_OPTIONS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",  # products and sums may fuse; nothing that breaks NaN and infinity
    "-fopenmp-simd",
    "-Wno-psabi",
    "-fPIC",
    "-shared",
    "-DHF_HOST",
)
_NATIVE = (("-march=native",), ("-mcpu=native",), ())  # which one works depends on compiler and architecture
_SYSTEM_COMPILERS = ("c++", "g++", "clang++")
_TIMEOUT_S = 300


@dataclasses.dataclass(frozen=True)
class CompilerFacts:
    """First line of ``--version``, the options to use, and a digest of the instruction sets that they stand for."""

    version: str
    options: tuple[str, ...]
    cpu: str


@dataclasses.dataclass(frozen=True)
class HostCompiler:
    """A C++17 compiler by its command line."""

    command: tuple[str, ...]

    @functools.cached_property
    def facts(self) -> CompilerFacts:
        """Version and options, from the cache unless the compiler or the CPU is new here.

        Raises CompileError when the compiler does not run.
        """
        entry = kernel_cache().get(digest("compiler facts", *self.command, *self._stamps()), self._ask)
        return CompilerFacts(**json.loads(entry.code))

    @property
    def identity(self) -> str:
        """What compiled code depends on besides its source: the compiler, its options, the CPU's instruction sets."""
        facts = self.facts
        return f"{shlex.join(self.command)} | {facts.version} | {' '.join(facts.options)} | cpu {facts.cpu}"

    def _stamps(self) -> tuple[str, ...]:
        """What changes when the compiler is replaced or the CPU is another one, without running anything."""
        programs = [os.path.realpath(self.command[0])]
        if self._is_zig:
            package = importlib.util.find_spec("ziglang")
            programs += [package.origin] if package is not None and package.origin is not None else []
        try:
            stats = [os.stat(program) for program in programs]
        except OSError as error:
            raise CompileError("the C++ compiler is not there any more", got=str(error)) from error
        return (*(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats), cpu_name(), cpu_flags())

    @property
    def _is_zig(self) -> bool:
        return self.command[1:3] == ("-m", "ziglang")

    def _ask(self) -> bytes:
        """The facts as JSON. Macros that the compiler defines for this CPU name every instruction set that it uses."""
        version = (_run((*self.command, "--version"), "the C++ compiler does not run").splitlines() or [""])[0]
        query = ("-std=c++17", "-dM", "-E", "-x", "c++", os.devnull)
        for native in _NATIVE:
            try:
                macros = _run((*self.command, *native, *query), "the C++ compiler does not preprocess an empty file")
                break
            except CompileError:
                if not native:
                    raise
        # Kernels use no C++ library, and zig would first build its own.
        library = ("-nostdlib++",) if self._is_zig or "zig" in version else ()
        cpu = hashlib.sha256(macros.encode()).hexdigest()[:16]
        return json.dumps({"version": version, "options": (*_OPTIONS, *native, *library), "cpu": cpu}).encode()

    def compile(self, spec: KernelSpec) -> bytes:
        """A shared library with the spec's entry. Raises CompileError with the compiler's message and command."""
        defines = [f"-D{name}={value}" for name, value in spec.defines]
        source = str(HIP_SOURCES / spec.source)
        try:
            with tempfile.TemporaryDirectory(prefix="hipfind-") as folder:
                output = pathlib.Path(folder) / "kernel.so"
                command = (*self.command, *self.facts.options, *defines, "-x", "c++", source, "-o", str(output))
                _run(command, f"kernel {spec.entry} of {spec.source} did not compile")
                return output.read_bytes()
        except OSError as error:
            raise CompileError(
                f"kernel {spec.entry} of {spec.source} did not compile: no temporary file",
                got=str(error),
                remedy="set TMPDIR to a directory that can be written",
            ) from error


def _run(command: Sequence[str], failure: str) -> str:
    """Standard output of a command. Raises CompileError with its messages and its command line."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(failure, log=str(error), got=shlex.join(command)) from error
    if done.returncode != 0:
        raise CompileError(failure, log=done.stderr or done.stdout, got=shlex.join(command))
    return done.stdout


def find_compiler() -> HostCompiler:
    """CXX of the environment, c++, g++, clang++ or ziglang, whichever is there first. Runs nothing.

    Raises CompilerNotFoundError when there is none.
    """
    wanted = shlex.split(os.environ.get("CXX", ""))
    if wanted:
        path = shutil.which(wanted[0])
        if path is not None:
            return HostCompiler((path, *wanted[1:]))
        warnings.warn(f"CXX names a compiler that is not there: {wanted[0]}", UserWarning, stacklevel=2)
    for name in _SYSTEM_COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return HostCompiler((path,))
    if importlib.util.find_spec("ziglang") is not None:
        return HostCompiler((sys.executable, "-m", "ziglang", "c++"))
    raise CompilerNotFoundError(
        "the host device found no C++ compiler for its kernels",
        got=f"CXX={os.environ.get('CXX', '')!r}, no {', '.join(_SYSTEM_COMPILERS)} on PATH, no ziglang",
        remedy="install g++ or clang++, or run: pip install 'hipfind[host]'",
    )
