"""Many processes on one perf DB file, and processes killed at random moments: ``python -m benchmarks.db_soak``.

Ends with exit code 1 when a row is missing, the file is not sound, or somebody waited for longer than the bound.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hipfind import settings
from hipfind.perfdb.records import Environment, FindRecord
from hipfind.perfdb.store import BUSY_WAIT_S, PerfDb
from hipfind.problem.conv import ConvProblem
from hipfind.target import known

_ENVIRONMENT = Environment((("driver", "soak"),))
_TARGET = known("gfx942")


def _record(number: int) -> FindRecord:
    return FindRecord("GemmFwdRest", 1, "", "0123456789abcdef", 1.0 + number, 0.01, 10, 0, "won", "", True)


def _problem(name: int, number: int) -> ConvProblem:
    return ConvProblem.create("fwd", x=(1 + number, 1 + name, 8, 8), w=(4, 1 + name, 3, 3))


def _work(path: str, name: int, count: int) -> None:
    """Stores problems one by one, durably, and prints each one's number and the longest call until then in seconds."""
    longest = 0.0
    with PerfDb.open(path) as db:
        for number in range(count):
            start = time.monotonic()
            db.store_find(_problem(name, number), _TARGET, _ENVIRONMENT, [_record(number)])
            longest = max(longest, time.monotonic() - start)
            print(number, longest, flush=True)


def _start(path: Path, name: int, count: int, journal: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.db_soak", "--work", str(path), str(name), str(count), journal]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _is_sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    answer = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return bool(answer == [("ok",)])


def _rows(path: Path) -> int:
    with PerfDb.open(path, read_only=True) as db:
        return int(db.read("SELECT count(*) FROM find_records")[0][0])


def together(directory: Path, processes: int, problems: int, journal: str) -> bool:
    """``processes`` store ``problems`` each, half of them through a symbolic link."""
    path, link = directory / f"{journal}.db", directory / f"link-{journal}.db"
    link.symlink_to(path)
    start = time.monotonic()
    workers = [_start(link if n % 2 else path, n, problems, journal) for n in range(processes)]
    longest, fine = 0.0, True
    for worker in workers:
        output, _ = worker.communicate()
        fine = fine and worker.returncode == 0
        longest = max(longest, float(output.split()[-1])) if output else longest
    rows, sound = _rows(path), _is_sound(path)
    took = time.monotonic() - start
    print(f"{journal}: {processes} processes x {problems}: {rows} rows in {took:.1f} s, sound: {sound}, "
          f"longest call {longest:.3f} s")  # fmt: skip
    return fine and sound and rows == processes * problems and longest < BUSY_WAIT_S


def killed(directory: Path, times: int, journal: str, seed: int) -> bool:
    """A process is killed at a random moment, ``times`` times; each time the next one stores at once."""
    path, chance = directory / f"killed-{journal}.db", random.Random(seed)
    stored, longest, sound = 0, 0.0, True
    for turn in range(times):
        worker = _start(path, turn % 50, 100_000, journal)
        assert worker.stdout is not None
        if turn % 4:  # else perhaps before the file is there, or while it is opened
            worker.stdout.readline()
            stored += 1
        time.sleep(chance.uniform(0.0, 0.3))
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        start = time.monotonic()
        with PerfDb.open(path) as db:
            db.store_find(_problem(60, turn), _TARGET, _ENVIRONMENT, [_record(turn)])
        longest = max(longest, time.monotonic() - start)
        sound = sound and _is_sound(path)
    after = [_problem(60, turn).canonical().key() for turn in range(times)]
    with PerfDb.open(path, read_only=True) as db:
        kept = sum(bool(db.find_records(key, _TARGET.key)) for key in after)
    print(f"{journal}: {times} kills: sound each time: {sound}, {kept} of {times} stored after a kill, "
          f"{_rows(path)} rows in all, longest open and store after one {longest:.3f} s")  # fmt: skip
    return sound and kept == times and longest < BUSY_WAIT_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        path, name, count, journal = options.work
        with settings.override(db_journal=journal):
            _work(path, int(name), int(count))
        return 0
    fine = True
    with tempfile.TemporaryDirectory() as directory:
        for journal in ("wal", "rollback"):
            with settings.override(db_journal=journal):
                fine = together(Path(directory), options.processes, options.problems, journal) and fine
                fine = killed(Path(directory), options.kills, journal, options.seed) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
