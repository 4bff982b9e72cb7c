"""The kernel cache: one build a key, damaged entries, directories that cannot be used, several processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import warnings

import pytest

from hipfind import settings
from hipfind.device.kernel_cache import CacheFile, KernelCache, cache_directory, digest, kernel_cache, old_files
from hipfind.errors import CompileError
from tests.helpers.process import ROOT, clean_environment, run_python

KEY = digest("some", "key")
CODE = bytes(range(256)) * 40


class Builds:
    """A build function that counts its calls."""

    def __init__(self, code: bytes = CODE) -> None:
        self.count = 0
        self._code = code
        self._lock = threading.Lock()

    def __call__(self) -> bytes:
        with self._lock:
            self.count += 1
        return self._code


def never() -> bytes:
    raise AssertionError("an entry that is there must not be built")


def test_keys_tell_all_parts_apart():
    assert len({digest("a", "b"), digest("b", "a"), digest("ab"), digest("a", "b", "")}) == 4


def test_an_entry_is_built_once_and_found_by_other_objects(tmp_path):
    builds = Builds()
    first = KernelCache(tmp_path).get(KEY, builds)
    second = KernelCache(tmp_path).get(KEY, never)
    assert first == second and first.code == CODE and builds.count == 1
    assert first.path is not None and first.path.read_bytes().startswith(CODE)
    assert [path.name for path in tmp_path.iterdir()] == [KEY], "one file an entry, nothing left over"


def test_the_directory_is_made_for_its_owner_only(tmp_path):
    directory = tmp_path / "陈 é" / "kernels#?"
    KernelCache(directory).get(KEY, Builds())
    assert directory.stat().st_mode & 0o777 == 0o700


def _truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flip(content: bytes) -> bytes:
    return content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]


@pytest.mark.parametrize("damage", [_truncate, _flip, lambda _: b"", lambda _: b"\0" * 32, lambda c: c + b"x"])
def test_a_damaged_entry_is_built_again(tmp_path, damage):
    path = KernelCache(tmp_path).get(KEY, Builds()).path
    path.write_bytes(damage(path.read_bytes()))
    builds = Builds()
    assert KernelCache(tmp_path).get(KEY, builds).code == CODE and builds.count == 1
    assert KernelCache(tmp_path).get(KEY, never).code == CODE, "the good entry is stored"


def test_an_entry_that_vanishes_is_built_again(tmp_path):
    cache = KernelCache(tmp_path)
    cache.get(KEY, Builds()).path.unlink()
    builds = Builds()
    assert cache.get(KEY, builds).code == CODE and builds.count == 1


def test_errors_of_the_build_are_passed_on_and_not_kept(tmp_path):
    cache = KernelCache(tmp_path)

    def fail() -> bytes:
        raise CompileError("no such type")

    with pytest.raises(CompileError, match="no such type"):
        cache.get(KEY, fail)
    assert cache.get(KEY, Builds()).code == CODE


def test_threads_that_want_one_key_wait_for_one_build(tmp_path):
    cache, builds, codes = KernelCache(tmp_path), Builds(), []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        codes.append(cache.get(KEY, builds).code)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [CODE] * 8 and builds.count == 1


def _in_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "kernels"


def _full_disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", no_space)
    return tmp_path


def _busy_rename(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    monkeypatch.setattr(os, "unlink", busy)
    return tmp_path


@pytest.mark.parametrize("make", [_in_a_file, _full_disk, _busy_rename])
def test_a_directory_that_cannot_be_written_costs_one_warning(tmp_path, monkeypatch, make):
    cache, builds = KernelCache(make(tmp_path, monkeypatch)), Builds()
    with pytest.warns(UserWarning, match="HIPFIND_CACHE_DIR") as caught:
        entries = [cache.get(KEY, builds), cache.get(KEY, builds), cache.get(digest("other"), builds)]
    assert len(caught) == 1
    assert [entry.code for entry in entries] == [CODE] * 3 and builds.count == 2, "kept in memory"
    assert all(entry.path is None for entry in entries)


def test_a_read_only_directory_is_still_read(tmp_path, monkeypatch):
    KernelCache(tmp_path).get(KEY, Builds())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelCache(_full_disk(tmp_path, monkeypatch)).get(KEY, never).code == CODE


def test_an_unreadable_entry_is_kept_in_memory(tmp_path):
    (tmp_path / KEY).mkdir()  # reading a directory fails, and so does replacing it by a file
    cache, builds = KernelCache(tmp_path), Builds()
    with pytest.warns(UserWarning, match="kept in memory") as caught:
        assert cache.get(KEY, builds).code == cache.get(KEY, builds).code == CODE
    assert len(caught) == 1 and builds.count == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("{}/x y", "{}/x y"), (".", "{}"), ("./a%20b", "{}/a%20b"), ("~/k", "{}/k"), ('"q"/', '{}/"q"')],
)
def test_the_setting_means_exactly_that_path(tmp_path, monkeypatch, name, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with settings.override(cache_dir=name.format(tmp_path)):
        assert cache_directory() == pathlib.Path(expected.format(tmp_path))
        assert kernel_cache() is kernel_cache() and kernel_cache().directory == cache_directory()


@pytest.mark.parametrize("setting", ["", "~/kernels"])
def test_a_user_without_a_home_gets_no_directory_called_tilde(tmp_path, setting):
    script = (
        "import os, warnings\n"
        "from hipfind.device.kernel_cache import kernel_cache\n"
        "if os.getuid() == 0: os.setuid(123456)\n"  # a user that no list of users knows
        "os.environ.pop('HOME', None)\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    code = kernel_cache().get('key', lambda: b'code').code\n"
        "    print(code, len(caught))\n"
    )
    done = run_python(["-c", script], tmp_path, cwd=tmp_path, HIPFIND_CACHE_DIR=setting, PYTHONPATH=str(ROOT))
    assert done.stdout.strip() == "b'code' 1", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("home", ["", "/nonexistent/home"])
def test_a_home_that_cannot_be_written_is_not_fatal(tmp_path, home):
    script = (
        "import os, warnings\n"
        "from hipfind.device.kernel_cache import kernel_cache\n"
        "with warnings.catch_warnings(record=True):\n"
        "    warnings.simplefilter('always')\n"
        "    os.mkdir = lambda *a, **k: (_ for _ in ()).throw(PermissionError(13, 'Permission denied'))\n"
        "    print(kernel_cache().get('key', lambda: b'code'))\n"
    )
    environment = {**clean_environment(tmp_path), "HOME": home, "HIPFIND_CACHE_DIR": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "Entry(code=b'code', path=None)", done.stderr
    assert list(tmp_path.iterdir()) == []


RACE = """
import os, random, sys
from hipfind.device.kernel_cache import KernelCache
import pathlib
real, rng = os.replace, random.Random(os.getpid())
def replace(a, b):
    if rng.random() < 0.2: raise OSError(16, "busy")
    real(a, b)
os.replace = replace
cache = KernelCache(pathlib.Path(sys.argv[1]))
for turn in range(40):
    key = f"key{turn % 6}"
    code = key.encode() * 5000
    assert KernelCache(cache.directory).get(key, lambda: code).code == code
    if rng.random() < 0.3:
        (cache.directory / key).unlink(missing_ok=True)
"""


def test_processes_that_write_and_delete_at_once_never_fail_or_read_half_an_entry(tmp_path):
    environment = clean_environment(tmp_path, PYTHONWARNINGS="ignore", PYTHONPATH=str(ROOT))
    processes = [
        subprocess.Popen([sys.executable, "-c", RACE, str(tmp_path / "cache")], env=environment, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.startswith(".new-")]


def test_the_least_recently_used_file_comes_first(tmp_path: pathlib.Path) -> None:
    cache = KernelCache(tmp_path)
    keys = [digest(str(index)) for index in range(3)]
    for index, key in enumerate(keys):
        cache.get(key, Builds())
        os.utime(tmp_path / key, (1000.0 + index, 1000.0 + index))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".new-abc").write_bytes(b"half")
    os.utime(tmp_path / ".new-abc", (1.0, 1.0))
    assert [file.path.name for file in cache.files()] == [".new-abc", *keys]
    KernelCache(tmp_path).get(keys[0], never)  # another process uses it
    assert [file.path.name for file in cache.files()] == [".new-abc", keys[1], keys[2], keys[0]]
    assert {file.nbytes for file in cache.files()[1:]} == {len(CODE) + 32}


def test_removed_files_are_built_again_and_others_are_not_touched(tmp_path: pathlib.Path) -> None:
    cache = KernelCache(tmp_path)
    cache.get(KEY, Builds())
    (tmp_path / "notes.txt").write_text("mine")
    files = cache.files()
    assert cache.remove(files) == files and cache.remove(files) == []  # another process was faster
    assert os.listdir(tmp_path) == ["notes.txt"]
    builds = Builds()
    assert cache.get(KEY, builds).code == CODE and builds.count == 1


def test_a_cache_that_is_not_there_has_no_files(tmp_path: pathlib.Path) -> None:
    assert KernelCache(tmp_path / "none").files() == KernelCache(None).files() == []


FILES = [CacheFile(pathlib.Path(name), nbytes, used_at) for name, nbytes, used_at in [
    (".new-old", 5, 0.0), ("a", 100, 1000.0), ("b", 50, 5000.0), (".new-fresh", 7, 9999.0), ("c", 30, 10_000.0),
]]  # fmt: skip


@pytest.mark.parametrize(("limits", "gone"), [
    ({}, [".new-old"]), ({"older_than_s": 6000.0}, [".new-old", "a"]), ({"older_than_s": 0.0}, [".new-old", "a", "b"]),
    ({"most_bytes": 187}, [".new-old"]), ({"most_bytes": 186}, [".new-old", "a"]),
    ({"most_bytes": 0}, [".new-old", "a", "b", "c"]), ({"most_bytes": 80, "older_than_s": 1.0}, [".new-old", "a", "b"]),
])  # fmt: skip
def test_what_may_go(limits: dict[str, float], gone: list[str]) -> None:
    assert [file.path.name for file in old_files(FILES, **limits, now=10_000.0)] == gone
