"""One look at a GPU: does all of it work, is it right, what does a launch cost.

    python -m benchmarks.gpu_check [--device cuda] [--seconds 170] [--only PART] [--json FILE]

Every part runs in a process of its own, since a kernel that fails can take its process's device with it: one that fails
prints its error and the next goes on. The table comes last; the exit code is 1 when a part failed. Kernel cache and
perf DB are the run's own, so that it starts from nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

from benchmarks.gpu_parts import PARTS, Check
from hipfind.errors import HipfindError

Row = tuple[str, str, str]
"""Part, outcome, details."""


def run_part(name: str, check_: Check) -> int:
    """Run one part in this process; its details are the last line of output."""
    try:
        details = PARTS[name](check_)
    except (AssertionError, HipfindError) as error:
        traceback.print_exc()
        details = f"{type(error).__name__}: {error}"
        print(details.replace("\n", " ")[:300])
        return 1
    print(details)
    return 0


def start_part(name: str, arguments: argparse.Namespace, seconds: float, folder: str) -> Row:
    """Run one part in a process of its own, with a little more time than it is told that it has."""
    start = time.monotonic()
    print(f"--- {name}", flush=True)
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", arguments.device, "--only", name]
    environment = {**os.environ, "HIPFIND_CACHE_DIR": folder, "HIPFIND_USER_DB_PATH": folder}
    try:
        done = subprocess.run(
            [*command, "--seconds", f"{seconds:.0f}", "--here"], env=environment, timeout=seconds + 20, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        shown = error.stdout or b""
        output, code = (shown.decode(errors="replace") if isinstance(shown, bytes) else shown) + "\ntime is up", 1
    print(output, flush=True)
    details = (output.strip().splitlines() or ["no output"])[-1]
    return name, "ok" if code == 0 else "FAILED", f"{details[:400]} [{time.monotonic() - start:.1f} s]"


def main() -> int:
    """Run the parts; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=170.0, help="time for all parts")
    parser.add_argument("--only", choices=PARTS, help="run one part")
    parser.add_argument("--here", action="store_true", help="run it in this process")
    parser.add_argument("--json", type=pathlib.Path, help="write the table here as well")
    arguments = parser.parse_args()
    if arguments.here and arguments.only:
        return run_part(arguments.only, Check(arguments.device, arguments.seconds))
    names = [arguments.only] if arguments.only else list(PARTS)
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            start_part(name, arguments, max(10.0, (end - time.monotonic()) / min(2, len(names) - index)), folder)
            for index, name in enumerate(names)
        ]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print()
    for name, outcome, details in rows:
        print(f"{name:9} {outcome:7} {details}")
    return 1 if any(outcome != "ok" for _, outcome, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
