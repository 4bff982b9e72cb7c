"""Triton kernels compiled ahead of time for an explicit target, many at once, each by a process of its own kind.

No GPU, no torch and no Triton in this process: see triton_worker. What comes back is a code object with a small header
(the kernel's name, its threads and its shared memory), so that one entry of the kernel cache holds all that a launch
needs.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from hipfind.device.host_threads import usable_cores
from hipfind.device.kernel_cache import digest, kernel_cache
from hipfind.errors import CompileError, CompilerNotFoundError
from hipfind.kernels.spec import AnyKernel, TritonSpec

_LONGEST_S = 300.0
"""Time that one kernel may take; most take less than a second."""
_REMEDY = "pip install 'hipfind[triton]'"


class TritonCode(NamedTuple):
    """A compiled kernel: its name in the code, threads of a program, bytes of shared memory, the code object."""

    name: str
    threads: int
    shared: int
    code: bytes

    def pack(self) -> bytes:
        """As one entry of the kernel cache."""
        return json.dumps([self.name, self.threads, self.shared]).encode() + b"\n" + self.code

    @classmethod
    def unpack(cls, entry: bytes) -> TritonCode:
        """Inverse of ``pack``."""
        header, _, code = entry.partition(b"\n")
        name, threads, shared = json.loads(header)
        return cls(name, threads, shared, code)


@functools.cache
def version() -> str:
    """Triton's version, "" where it is not installed. Does not import it."""
    if importlib.util.find_spec("triton") is None:
        return ""
    try:
        return f"Triton {importlib.metadata.version('triton')}"
    except importlib.metadata.PackageNotFoundError:  # a copy on the path without its metadata
        return "Triton"


def cache_key(spec: TritonSpec, arch: str) -> str:
    """Key of the compiled kernel in the kernel cache."""
    return digest(version(), arch, spec.content_hash)


def fill_cache(specs: Sequence[AnyKernel], arch: str) -> None:
    """Compile those Triton kernels of ``specs`` that the kernel cache does not have, all at once.

    A kernel that cannot be compiled, or no compiler, is no error here: whoever prepares the kernel will meet it.
    """
    cache = kernel_cache()
    missing = {
        spec: key for spec in specs if isinstance(spec, TritonSpec) and not cache.has(key := cache_key(spec, arch))
    }
    if len(missing) < 2 or not version():
        return
    for spec, code in zip(missing, compile_many(list(missing), arch), strict=True):
        if isinstance(code, bytes):
            cache.put(missing[spec], code)


def compile_kernel(spec: TritonSpec, arch: str) -> bytes:
    """The packed code of ``spec`` for ``arch`` ("sm_90", "gfx942"). Raises CompileError, CompilerNotFoundError."""
    (result,) = compile_many([spec], arch)
    if isinstance(result, CompileError):
        raise result
    return result


def compile_many(specs: Sequence[TritonSpec], arch: str, workers: int = 0) -> list[bytes | CompileError]:
    """Packed code, or the error, for each spec, compiled by as many processes as there are cores to use.

    Raises CompilerNotFoundError where Triton is not installed.
    """
    if not version():
        raise CompilerNotFoundError("Triton is not installed", got="no package named triton", remedy=_REMEDY)
    jobs: queue.SimpleQueue[tuple[int, TritonSpec]] = queue.SimpleQueue()
    for job in enumerate(specs):
        jobs.put(job)
    results: list[bytes | CompileError] = [CompileError("not compiled")] * len(specs)
    count = min(len(specs), workers or usable_cores())
    with concurrent.futures.ThreadPoolExecutor(max(count, 1)) as pool:
        for finished in [pool.submit(_drain, jobs, arch, results) for _ in range(count)]:
            finished.result()
    return results


def _drain(jobs: queue.SimpleQueue[tuple[int, TritonSpec]], arch: str, results: list[bytes | CompileError]) -> None:
    """Compile jobs with one worker process until there are none; a worker that dies is replaced."""
    worker = None
    try:
        while True:
            try:
                index, spec = jobs.get_nowait()
            except queue.Empty:
                return
            worker = worker or _Worker()
            answer = worker.ask(spec, arch)
            if answer is None:
                code = worker.close()
                worker = None
                answer = {"error": f"the compiler's process ended with code {code}"}
            results[index] = _result(spec, arch, answer)
    finally:
        if worker is not None:
            worker.close()


def _result(spec: TritonSpec, arch: str, answer: dict[str, Any]) -> bytes | CompileError:
    if "error" in answer:
        got = f"warps={spec.warps} stages={spec.stages} " + " ".join(
            f"{name}={value}" for name, value in spec.constants
        )
        return CompileError(f"Triton could not compile {spec.source} for {arch}", log=answer["error"], got=got)
    code = base64.b64decode(answer["code"])
    return TritonCode(answer["name"], answer["threads"], answer["shared"], code).pack()


class _Worker:
    """One compiling process."""

    def __init__(self) -> None:
        package = str(pathlib.Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, sys.path)])}
        # Triton's own warnings are nobody's here, and PYTHONWARNINGS=error would make failures of them.
        command = [sys.executable, "-W", "ignore", "-m", "hipfind.device.triton_worker"]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, spec: TritonSpec, arch: str) -> dict[str, Any] | None:
        """The answer to one request, None when the process died over it, or took too long and was ended."""
        requests, answers = self._pipes()
        end = threading.Timer(_LONGEST_S, self._process.kill)
        end.start()
        try:
            requests.write(json.dumps({**dataclasses.asdict(spec), "arch": arch}) + "\n")
            requests.flush()
            line = answers.readline()
        except BrokenPipeError:
            return None
        finally:
            end.cancel()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def close(self) -> int:
        """End the process; returns its exit code."""
        for pipe in self._pipes():
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout
