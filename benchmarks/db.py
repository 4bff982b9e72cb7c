"""The perf DB's speed: import of a file of MIOpen's, look-ups in files of three sizes, storing in batches and durably.

python -m benchmarks.db FIND_DB_FILE [--rows 10000 100000 1000000] [--out benchmarks/results/db]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hipfind as hf
from benchmarks import report
from hipfind.device.devices import get_device
from hipfind.perfdb.records import Environment, FindRecord
from hipfind.perfdb.references import references
from hipfind.perfdb.store import Finds, PerfDb
from hipfind.problem import ConvProblem
from hipfind.target import known

TARGET = known("gfx942")
ENVIRONMENT = Environment((("driver", "1"),))
RECORDS = [
    FindRecord(
        f"Solver{place}", 1, "64x64", "0" * 16, 0.5 + place, 0.01, 15, 1024, "lost" if place else "won", "", True
    )
    for place in range(4)
]
BATCH = 1000
COLD = 9
WARM = 2000
DURABLE = 1000

_COLD_CODE = """
import sys, time
from hipfind.perfdb.references import references
from hipfind.perfdb.store import PerfDb
path, key, target = sys.argv[1:]
start = time.perf_counter()
db = PerfDb.open(path, read_only=True)
opened = time.perf_counter()
count = len(db.find_records(key, target) if target else references(db, key))
print((opened - start) * 1e3, (time.perf_counter() - opened) * 1e3, count)
"""
_IMPORT_CODE = """
import json, resource, sys, time
from hipfind.perfdb.importing import import_file
from hipfind.perfdb.store import PerfDb
start = time.perf_counter()
with PerfDb.open(sys.argv[2]) as db:
    done = import_file(db, sys.argv[1], on_progress=lambda done, total: None)
own, workers = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([time.perf_counter() - start, own, workers, done.records]))
"""


def row(what: str, value: float, unit: str, limit: str = "", **more: Any) -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit, "limit": limit, **more}


def import_rows(file: pathlib.Path, folder: pathlib.Path) -> list[dict[str, Any]]:
    """A process of its own imports the file: time, memory of the process and of its largest worker."""
    path = folder / "imported.db"
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_CODE, str(file), str(path)], capture_output=True, text=True, check=True
    )
    seconds, own, worker, records = json.loads(done.stdout)
    workers = len(os.sched_getaffinity(0))
    return [
        row(f"import of {file.name}, {records} lines", seconds, "s", "60"),
        row(f"memory of the import, {workers} workers included", own + workers * worker, "MiB", "500"),
        row("size of the file it makes", path.stat().st_size / 2**20, "MiB"),
        *look_up_rows(path, _reference_keys(path), "the imported file", ""),
    ]


def _reference_keys(path: pathlib.Path) -> list[str]:
    with PerfDb.open(path, read_only=True) as db:
        return [key for (key,) in db.read("SELECT key FROM problems ORDER BY key")]


def problems(start: int, count: int) -> Iterator[ConvProblem]:
    for number in range(start, start + count):
        yield ConvProblem.create("fwd", (number + 1, 64, 56, 56), (64, 64, 3, 3), pad=1)


def fill(path: pathlib.Path, rows: int) -> tuple[list[str], float]:
    """A file of so many find records, four a problem; keys and the rate of storing in records a second."""
    keys: list[str] = []
    spent = 0.0
    with PerfDb.open(path) as db:
        for start in range(0, rows // len(RECORDS), BATCH):
            batch = list(problems(start, min(BATCH, rows // len(RECORDS) - start)))
            begin = time.perf_counter()
            db.store_finds([Finds(problem, TARGET, ENVIRONMENT, RECORDS) for problem in batch])
            spent += time.perf_counter() - begin
            keys += [problem.key() for problem in batch]
    return keys, rows / spent


def cold_ms(path: pathlib.Path, keys: Sequence[str], target: str) -> tuple[float, float]:
    """Medians over new processes: opening the file, and the first look-up after it."""
    opened, looked = [], []
    for key in random.sample(keys, COLD):
        done = subprocess.run(
            [sys.executable, "-c", _COLD_CODE, str(path), key, target], capture_output=True, text=True, check=True
        )
        first, second, count = done.stdout.split()
        assert int(count) > 0
        opened.append(float(first))
        looked.append(float(second))
    return statistics.median(opened), statistics.median(looked)


def warm_us(look_up: Callable[[str], object], keys: Sequence[str]) -> float:
    """Median of one look-up in us."""
    times = []
    for key in keys:
        begin = time.perf_counter()
        look_up(key)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def look_up_rows(path: pathlib.Path, keys: Sequence[str], name: str, target: str) -> list[dict[str, Any]]:
    """Find records of a problem on a target; with "" for the target MIOpen's records of the problem."""
    opened, looked = cold_ms(path, keys, target)
    with PerfDb.open(path, read_only=True) as db:

        def look_up(key: str) -> object:
            return db.find_records(key, target) if target else references(db, key)

        chosen = random.sample(keys, min(WARM, len(keys)))
        first, again = warm_us(look_up, chosen), warm_us(look_up, chosen)
    return [
        row(f"{name}: open in a new process", opened, "ms", "30"),
        row(f"{name}: first look-up in a new process", looked, "ms", "1"),
        row(f"{name}: look-up, another problem each time", first, "us"),
        row(f"{name}: look-up of a problem seen before", again, "us", "20"),
    ]


def durable_rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Records stored one by one, each on the disk before the next; beside it what one fsync costs here."""
    with PerfDb.open(folder / "durable.db") as db:
        made = list(problems(0, DURABLE))
        begin = time.perf_counter()
        for problem in made:
            db.store_find(problem, TARGET, ENVIRONMENT, RECORDS[:1])
        rate = DURABLE / (time.perf_counter() - begin)
    times = []
    with open(folder / "plain", "wb", buffering=0) as file:
        for _ in range(DURABLE):
            file.write(bytes(8192))
            begin = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begin)
    return [
        row("stored one by one, durably", rate, "records/s", "500 or more"),
        row("one fsync of 8 KiB on this disk", statistics.fmean(times) * 1e3, "ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="one of MIOpen's find-db files, packed or not")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results" / "db")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = durable_rows(folder)
        for count in options.rows:
            path = folder / f"{count}.db"
            keys, rate = fill(path, count)
            rows.append(
                row(f"{count:,} rows stored in batches of {BATCH} problems", rate, "records/s", "10,000 or more")
            )
            rows += look_up_rows(path, keys, f"{count:,} rows", TARGET.key)
        rows += import_rows(options.file, folder)
    facts = report.machine(get_device("host").environment(), {"hipfind": hf.__version__})
    notes = "Medians of look-ups. In a new process: the file is in the page cache, the process has read nothing of it."
    print(report.write(options.out, "The perf DB's speed", facts, rows, notes))


if __name__ == "__main__":
    main()
