"""A stand-in for hipfind.device.triton_worker: a compiler's process that takes no time and dies on request.

``install`` makes it what triton_compiler starts. It answers with b"code of NAME", which FakeDriver can load.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest

_WORKER = """
import base64, json, os, sys, time

log = open({log!r}, "a")
print("started", file=log, flush=True)
for line in sys.stdin:
    spec = json.loads(line)
    print(line.strip(), file=log, flush=True)
    entry = spec["entry"]
    if entry == "dies":
        os._exit(9)
    if entry == "hangs":
        time.sleep(60)
    code = base64.b64encode(b"code of " + entry.encode()).decode()
    answer = {{"name": entry, "threads": 32 * spec["warps"], "shared": 1000 * spec["stages"], "code": code}}
    print(json.dumps({{"error": "no such thing"}} if entry == "broken" else answer), flush=True)
"""


class FakeTriton:
    """What was asked of the processes."""

    def __init__(self, log: pathlib.Path) -> None:
        self._log = log

    def _lines(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    @property
    def processes(self) -> int:
        """How many were started."""
        return self._lines().count("started")

    @property
    def compiled(self) -> list[tuple[str, bool]]:
        """Entry of each request, and whether its pointers are aligned."""
        requests = [json.loads(line) for line in self._lines() if line != "started"]
        return [(request["entry"], request["aligned"]) for request in requests]


def install(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path) -> FakeTriton:
    """Until the test's end, Python processes that this one starts are the fake compiler."""
    log, worker, command = folder / "log", folder / "worker.py", folder / "python"
    worker.write_text(_WORKER.format(log=str(log)))
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{worker}"\n')
    os.chmod(command, 0o755)
    monkeypatch.setattr(sys, "executable", str(command))
    return FakeTriton(log)
