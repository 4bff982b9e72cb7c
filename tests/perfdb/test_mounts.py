"""Network file systems get the rollback journal: by what the system says about the mount, or by the setting."""

from __future__ import annotations

import pathlib
import sqlite3
import time
from collections.abc import Iterator

import pytest

from hipfind import settings
from hipfind.perfdb import connect
from hipfind.perfdb.connect import retry_while_locked
from hipfind.perfdb.mounts import MOUNTS, file_system, is_shared
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record

_MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:50 / {root}/net rw,relatime shared:1 - nfs4 server:/export rw
31 27 0:51 / {root}/net/inner\040place rw - ext4 /dev/vdb rw
32 27 0:52 / {root}/over rw - ext4 /dev/vdc rw
33 32 0:53 / {root}/over rw master:2 - fuse.sshfs host: rw
no mount at all
"""


@pytest.fixture
def mounts(tmp_path: pathlib.Path) -> str:
    table = tmp_path / "mountinfo"
    table.write_text(_MOUNTS.format(root=tmp_path.resolve()))
    return str(table)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("x.db", "ext4"),
        ("net", "nfs4"),
        ("net/deep/er/x.db", "nfs4"),
        ("network/x.db", "ext4"),
        ("net/inner place/x.db", "ext4"),
        ("net/inner/x.db", "nfs4"),
        ("over/x.db", "fuse.sshfs"),
        ("link/x.db", "nfs4"),
    ],
)
def test_the_innermost_mount_of_a_path_counts(tmp_path: pathlib.Path, mounts: str, place: str, kind: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "net")
    assert file_system(tmp_path / place, mounts) == kind


def test_without_a_table_of_mounts_nothing_is_known(tmp_path: pathlib.Path) -> None:
    assert file_system(tmp_path, str(tmp_path / "none")) == ""


@pytest.mark.skipif(not pathlib.Path(MOUNTS).exists(), reason="no /proc/self/mountinfo")
def test_this_systems_own_table_is_read(tmp_path: pathlib.Path) -> None:
    assert file_system(pathlib.Path("/proc/self")) == "proc"
    assert file_system(tmp_path) != ""


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse", "fuse.sshfs", "fuse.glusterfs", "9p", "lustre"]
)
def test_shared_file_systems(kind: str) -> None:
    assert is_shared(kind)


@pytest.mark.parametrize("kind", ["", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs"])
def test_local_file_systems(kind: str) -> None:
    assert not is_shared(kind)


def _open(path: pathlib.Path, read_only: bool = False) -> str:
    with PerfDb.open(path, read_only=read_only) as db:
        return str(db.info()["journal_mode"])


@pytest.fixture
def on_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(connect, "file_system", lambda path: "nfs4")
    yield


def _filled(path: pathlib.Path) -> None:
    with settings.override(db_journal="wal"), PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.usefixtures("on_network")
def test_a_wal_file_on_a_network_file_system_is_changed_without_mapping_its_index(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    path = tmp_path / "x.db"
    _filled(path)
    (tmp_path / "x.db-shm").mkdir()  # whoever wanted to map the index would fail
    assert _open(path, read_only) == "delete"
    with PerfDb.open(path) as db:
        assert len(db.find_records("problem", TARGET.key)) == 1
        db.store_find(FakeProblem("new"), TARGET, ENVIRONMENT, [find_record()])
    assert not (tmp_path / "x.db-wal").exists()


@pytest.mark.usefixtures("on_network")
def test_a_new_file_on_a_network_file_system(tmp_path: pathlib.Path) -> None:
    assert _open(tmp_path / "x.db") == "delete"
    with settings.override(db_journal="wal"):
        assert _open(tmp_path / "x.db") == "wal"


@pytest.mark.usefixtures("on_network")
def test_another_programs_file_keeps_its_journal(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "songs.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE songs (title)")
    connection.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(Exception, match="another program's"):
            _open(path, read_only)
    assert path.read_bytes() == before


def test_the_setting_decides_on_any_file_system(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    for asked, mode in (("rollback", "delete"), ("auto", "wal"), ("rollback", "delete"), ("wal", "wal")):
        with settings.override(db_journal=asked):
            assert _open(path) == mode


@pytest.mark.usefixtures("on_network")
def test_a_file_that_others_use_in_wal_mode_is_not_touched_until_they_leave(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.db"
    _filled(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN")
    holder.execute("SELECT * FROM problems").fetchall()
    with pytest.raises(Exception, match="locked"):
        PerfDb.open(path, wait_s=0.05)
    holder.close()
    assert _open(path) == "delete"


# waiting --------------------------------------------------------------------------------------------------------------


class _Clock:
    """Time that passes only by sleeping, and a little with every look at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


def test_waits_inside_of_waits_take_no_longer_than_the_outermost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(connect, "time", clock)

    def refused() -> None:
        raise sqlite3.OperationalError("database is locked")

    for depth in range(4):
        work = refused
        for _ in range(depth):
            work = lambda inner=work: retry_while_locked(inner, 5.0)  # type: ignore[misc]  # noqa: E731
        start = clock.now
        with pytest.raises(sqlite3.OperationalError):
            retry_while_locked(work, 5.0)
        assert 5.0 <= clock.now - start < 5.001


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "PRAGMA application_id", "COMMIT"])
@pytest.mark.parametrize("message", ["database is locked", "locking protocol"])
def test_a_call_has_one_deadline_whichever_statement_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, statement: str, message: str
) -> None:
    """Opening, choosing the journal, migrating and storing all wait; their sum is what a caller waits for."""
    clock = _Clock()
    real = sqlite3.connect

    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, *rest: object) -> sqlite3.Cursor:  # type: ignore[override]
            if sql.startswith(statement):
                raise sqlite3.OperationalError(message)
            return super().execute(sql, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(connect, "time", clock)
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, factory=Refusing, **options))
    with pytest.raises(Exception, match=message), PerfDb.open(tmp_path / "x.db", wait_s=5.0) as db:
        clock.now = 0.0
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
    assert clock.now < 5.001
    assert time.monotonic() > 0, "the real clock is untouched"
