"""Where the file goes: every path means exactly itself, and no home directory is ever invented."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess

import pytest

from hipfind import settings
from hipfind.perfdb import paths
from hipfind.perfdb.faults import DbFault, Fault
from hipfind.perfdb.store import PerfDb
from tests.helpers.perfdb import ENVIRONMENT, TARGET, FakeProblem, find_record, python_command

_NAMES = [
    "plain",
    "with space",
    'quo"te',
    "quo'te",
    "hash#mark",
    "question?mode=ro",
    "per%20cent",
    "100%",
    "amp&x=1",
    "semi;colon",
    "back\\slash",
    "陈鹏宇 é/ß",
    "new\nline",
    ":memory:",
    os.fsdecode(b"not-utf8-\xff"),
]


def _files(directory: pathlib.Path) -> list[str]:
    return sorted(str(one.relative_to(directory)) for one in directory.rglob("*") if one.is_file())


def _store_and_find_again(path: str) -> None:
    with PerfDb.open(path) as db:
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
    with PerfDb.open(path) as db:
        assert len(db.find_records("problem", TARGET.key)) == 1


@pytest.mark.parametrize("name", _NAMES, ids=ascii)
@pytest.mark.parametrize("form", ["file", "directory", "slash"])
def test_any_name_is_exactly_that_file_or_directory(tmp_path: pathlib.Path, name: str, form: str) -> None:
    place = tmp_path / name
    if form == "directory":
        place.mkdir(parents=True)
    _store_and_find_again(f"{place}/" if form == "slash" else str(place))
    wanted = name if form == "file" else f"{name}/hipfind.db"
    assert _files(tmp_path) == [wanted]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [(".", "hipfind.db"), ("./", "hipfind.db"), ("./x", "x"), ("x", "x"), ("sub/../x", "x"), ("./~", "~"),
     ("d/", "d/hipfind.db")],
)  # fmt: skip
def test_relative_paths(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, path: str, wanted: str) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    _store_and_find_again(path)
    assert _files(tmp_path) == [wanted]


def test_a_relative_path_stays_where_it_was_when_the_process_moves(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with PerfDb.open("x.db") as db:
        monkeypatch.chdir(tmp_path / "other")
        db.store_find(FakeProblem(), TARGET, ENVIRONMENT, [find_record()])
        db.before_fork()
        assert len(db.find_records("problem", TARGET.key)) == 1
    assert _files(tmp_path) == ["x.db"]


def test_the_setting_names_the_file(tmp_path: pathlib.Path) -> None:
    with settings.override(user_db_path=str(tmp_path / "set.db")):
        assert paths.resolve() == tmp_path / "set.db"
        assert paths.resolve(tmp_path / "asked.db") == tmp_path / "asked.db"


def test_the_default_is_the_users_data_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with settings.override(user_db_path=""), PerfDb.open() as db:
        found = pathlib.Path(db.path)
    assert found.is_relative_to(tmp_path)
    assert found.parts[-2:] == ("hipfind", "hipfind.db")
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700


def test_the_data_directory_needs_no_home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert paths.resolve("") == tmp_path / "hipfind" / "hipfind.db"


def test_tilde_is_the_home_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert paths.resolve("~") == tmp_path / "hipfind.db"
    assert paths.resolve("~/x/y.db") == tmp_path / "x" / "y.db"
    assert paths.resolve("~root/x") == pathlib.Path(os.path.expanduser("~root/x"))


@pytest.mark.parametrize("home", [None, "", "/nonexistent", "relative", "~"])
@pytest.mark.parametrize("path", ["", "~/x.db", "~"])
@pytest.mark.parametrize("xdg", [None, "", "relative/data"])
def test_without_a_home_there_is_no_place(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, home: str | None, path: str, xdg: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative").mkdir()
    for name, value in (("HOME", home), ("XDG_DATA_HOME", xdg)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(DbFault, match="HIPFIND_USER_DB_PATH") as caught:
        PerfDb.open(path)
    assert caught.value.fault is Fault.NO_HOME
    assert os.listdir(tmp_path) == ["relative"]
    assert not os.path.exists("/nonexistent")


@pytest.mark.parametrize("path", ["~nosuchuser1/x", "zero\0byte"])
def test_paths_that_cannot_be_are_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DbFault) as caught:
        PerfDb.open(path)
    assert caught.value.fault is Fault.BAD_PATH
    assert os.listdir(tmp_path) == []


def test_a_working_directory_that_is_gone_is_a_fault(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(DbFault):
        PerfDb.open("x.db")


_ASCII_ONLY = """
import sys
from hipfind.perfdb.store import PerfDb
with PerfDb.open(sys.argv[1]) as db:
    print(db.info()["path"].encode("ascii", "backslashreplace").decode())
"""


def test_non_ascii_paths_work_in_the_c_locale(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "陈鹏宇 é" / "ß.db"
    quiet = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    root = pathlib.Path(__file__).parents[2]
    subprocess.run(python_command(_ASCII_ONLY, str(path)), check=True, cwd=root, env=quiet)
    assert _files(tmp_path) == ["陈鹏宇 é/ß.db"]
