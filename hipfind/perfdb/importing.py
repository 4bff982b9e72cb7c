"""``db import``: MIOpen's find-db text and sqlite perf-db as reference records, and hipfind's own JSON lines.

A file is read into a scratch perf DB first; only when all of it was understood is that merged, in one transaction. So
a file that is damaged anywhere stores nothing, and other processes wait for the merge alone.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import operator
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hipfind.errors import PerfDbError
from hipfind.perfdb import lines, miopen_files, miopen_text
from hipfind.perfdb.faults import DbFault, printable
from hipfind.perfdb.key_rows import Answer, Workers, rows_of
from hipfind.perfdb.merge import MergeReport, merge
from hipfind.perfdb.scratch import Scratch
from hipfind.perfdb.store import PerfDb
from hipfind.perfdb.tables import Row
from hipfind.problem.miopen_perf_key import CONFIG_COLUMNS

OnProgress = Callable[[int, int], None]
"""Called now and then with the bytes of the file read so far (packed ones), and all of them."""

_LONGEST_LINE = 1 << 20
_EVERY = 1000
_CHUNK = 1000
_Parsed = tuple[int, str, str, miopen_text.ReferenceTime | None]
_Chunk = list[_Parsed]
_PERF_ROWS = (
    f"SELECT p.config, p.solver, p.params, {', '.join(f'c.{column}' for column in CONFIG_COLUMNS)} "
    "FROM perf_db p JOIN config c ON c.id = p.config ORDER BY p.config, p.id"
)
_PART = re.compile(r"[^=:;\n]+")


@dataclasses.dataclass(frozen=True)
class ImportReport:
    """What an import did. ``kind``: "find-db", "perf-db" or "hipfind"; ``device``: "" for hipfind's own lines.

    ``without_problem``: MIOpen's keys of which hipfind has no problem, by reason; those records are kept under
    MIOpen's key. ``merged``: what came of each record.
    """

    path: str
    kind: str
    device: str
    records: int
    without_problem: dict[str, int]
    merged: MergeReport


def import_file(
    db: PerfDb, path: str | os.PathLike[str], device: str = "", on_progress: OnProgress | None = None
) -> ImportReport:
    """Import a file into ``db``. What it is is seen from its contents; ``device`` (amd:gfx942:304) overrides its name.

    Raises PerfDbError with the file, the line and what is legal, or DbFault; nothing is stored then.
    """
    file = Path(path)
    digest, head = miopen_files.digest_and_head(file)
    if not head:
        raise PerfDbError("the file is empty", got=printable(file), remedy=miopen_files.LEGAL_FILES)
    with (
        tempfile.TemporaryDirectory(prefix="hipfind-import-") as folder,
        PerfDb.open(Path(folder) / "scratch.db") as scratch_db,
    ):
        reader = _Reader(file, digest, on_progress, Scratch(scratch_db))
        kind, key = reader.read(head, device, Path(folder))
        report = merge(db, scratch_db, printable(file.name))
    return ImportReport(printable(file), kind, key, reader.records, dict(reader.without_problem), report)


class _Reader:
    """Reads one file into a scratch DB."""

    def __init__(self, path: Path, digest: str, on_progress: OnProgress | None, scratch: Scratch) -> None:
        self._path = path
        self._source = (digest, printable(path.name), time.time())
        self._say = on_progress or (lambda done, total: None)
        self._scratch = scratch
        self.records = 0
        self.without_problem: collections.Counter[str] = collections.Counter()

    def read(self, head: bytes, device: str, folder: Path) -> tuple[str, str]:
        """Read the file; returns its kind and its device's key."""
        if head.startswith(miopen_files.SQLITE_MAGIC):
            key = miopen_files.device_of(self._path, device)
            self._read_perf_db(key, folder / "perf.db")
            kind = "perf-db"
        elif head.lstrip().startswith(b"{"):
            key, kind = "", "hipfind"
            self._each_line(self._take_own)
        else:
            self._refuse_unless_text(head)
            key, kind = miopen_files.device_of(self._path, device), "find-db"
            owner = self._scratch.reference_owner(miopen_files.target_columns(key), self._source)
            self._read_find_db(owner)
        self._scratch.flush()
        return kind, key

    def _refuse_unless_text(self, head: bytes) -> None:
        first = head.split(b"\n", 1)[0]
        if b"\0" in head or b"=" not in first:
            raise PerfDbError(
                "the file is of no kind that can be imported",
                got=f"{printable(self._path)}, line 1: {first[:60]!r}",
                remedy=miopen_files.LEGAL_FILES,
            )

    # text ---------------------------------------------------------------------------------------------------------

    def _each_line(self, take: Callable[[str], None]) -> None:
        """Give each line to ``take``; its PerfDbError gets the file's name and the line's number."""
        for number, line in self._lines():
            with self._at(number):
                take(line)
            self.records += 1

    @contextlib.contextmanager
    def _at(self, number: int) -> Iterator[None]:
        try:
            yield
        except DbFault:
            raise
        except PerfDbError as error:
            raise PerfDbError(
                f"{printable(self._path)}, line {number}: {error.what}",
                got=error.got,
                remedy="nothing was stored; correct the line or take it out",
            ) from error

    def _lines(self) -> Iterator[tuple[int, str]]:
        total = os.path.getsize(self._path)
        with miopen_files.reading(self._path) as (stream, packed):
            for number in itertools.count(1):
                line = stream.readline(_LONGEST_LINE)
                if not line:
                    break
                if number % _EVERY == 0:
                    self._say(packed.tell(), total)
                with self._at(number):
                    text = _text(line)
                yield number, text
        self._say(total, total)

    def _read_find_db(self, owner: tuple[int, int]) -> None:
        """Lines are understood here; of their keys, which cost more, the workers make problems."""
        read, again = itertools.tee(self._chunks())
        with Workers() as workers:
            for chunk, answers in zip(again, self._answers(workers, read), strict=True):
                for (number, key, value, best), answer in zip(chunk, answers, strict=True):
                    if isinstance(answer, str):
                        self.without_problem[answer] += 1
                    with self._at(number):
                        self._take(owner, "find", key, None if isinstance(answer, str) else answer, value, best)
                    self.records += 1

    def _answers(self, workers: Workers, chunks: Iterator[_Chunk]) -> Iterator[list[Answer]]:
        """A file that one chunk holds is not worth a process."""
        first = next(chunks, [])
        keys = [key for _, key, _, _ in first]
        if len(first) < _CHUNK:
            return iter([rows_of(keys)])
        return workers.answers(itertools.chain([keys], ([key for _, key, _, _ in chunk] for chunk in chunks)))

    def _chunks(self) -> Iterator[_Chunk]:
        lines_left = self._lines()
        while numbered := list(itertools.islice(lines_left, _CHUNK)):
            yield [self._parsed(number, line) for number, line in numbered]

    def _parsed(self, number: int, line: str) -> _Parsed:
        with self._at(number):
            key, value = miopen_text.split_line(line)
            return number, key, value, miopen_text.fastest(miopen_text.parse_value(value))

    def _take(
        self, owner: tuple[int, int], form: str, key: str, problem: Row | None, value: str,
        best: miopen_text.ReferenceTime | None,
    ) -> None:  # fmt: skip
        fastest = (None, None) if best is None else (best.solver_id, best.time_ms)
        if not self._scratch.add_reference(owner, (form, key, value, *fastest), problem):
            raise PerfDbError("a key stands on one line only, this is its second", got=key)

    def _take_own(self, text: str) -> None:
        line = lines.decode(text)
        if line.kind != "reference":
            if not self._scratch.add_record(line):
                raise PerfDbError("a record stands on one line only, this is its second", got=text[:100])
            return
        form, key, value = line.record
        best = miopen_text.fastest(miopen_text.parse_value(value)) if form == "find" else None
        self._take(self._scratch.reference_owner(line.target, line.owner), form, key, line.problem, value, best)

    # sqlite -------------------------------------------------------------------------------------------------------

    def _read_perf_db(self, device: str, unpacked: Path) -> None:
        miopen_files.unpack(self._path, unpacked)
        connection = miopen_files.open_sqlite(unpacked)
        owner = self._scratch.reference_owner(miopen_files.target_columns(device), self._source)
        try:
            total = connection.execute("SELECT count(*) FROM config").fetchone()[0]
            for number, rows in itertools.groupby(connection.execute(_PERF_ROWS), key=operator.itemgetter(0)):
                self._take_perf(number, list(rows), owner)
                if self.records % _EVERY == 0:
                    self._say(self.records, total)
        except sqlite3.Error as error:
            raise PerfDbError(
                "the sqlite file is not a perf-db of MIOpen, or it is damaged; nothing was stored",
                got=f"{printable(self._path)}: {error}",
                remedy="legal: the tables config and perf_db as MIOpen makes them; "
                "`hipfind db merge` takes hipfind's own files",
            ) from error
        finally:
            connection.close()

    def _take_perf(self, number: int, rows: list[tuple[Any, ...]], owner: tuple[int, int]) -> None:
        parts = []
        for _, solver, params, *_ in rows:
            if not all(isinstance(one, str) and _PART.fullmatch(one) for one in (solver, params)):
                raise PerfDbError(
                    f"{printable(self._path)}, config {number}: a solver and its params are text without = : ;",
                    got=f"{solver!r}, {params!r}",
                    remedy="nothing was stored",
                )
            parts.append(f"{solver}:{params}")
        key = "x".join(map(str, rows[0][3:]))
        self._take(owner, "perf", key, None, ";".join(parts), None)
        self.records += 1


def _text(line: bytes) -> str:
    if len(line) >= _LONGEST_LINE:
        raise PerfDbError(f"a line has at most {_LONGEST_LINE} bytes", got=f"{line[:40]!r}...")
    try:
        return line.decode("utf-8").rstrip("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise PerfDbError("a line is UTF-8 text", got=f"{line[:60]!r}") from error
