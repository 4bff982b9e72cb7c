"""Compiled kernels on disk, content-addressed: a key is a digest of all that the code depends on.

Any number of processes and nodes may share a directory: an entry is written to a temporary file and renamed, and ends
with a digest of itself, so that a torn or damaged one is noticed and built again. A directory that cannot be used is
never fatal: one warning, and the code is kept in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import pathlib
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hipfind import settings

_DIGEST_BYTES = 32
_KEY = re.compile("[0-9a-f]{64}")
_TEMPORARY = ".new-"
_LONGEST_WRITE_S = 3600.0


class Entry(NamedTuple):
    """Compiled code, and the file that begins with it (None when it is kept in memory only)."""

    code: bytes
    path: pathlib.Path | None


class CacheFile(NamedTuple):
    """A file of the cache: ``used_at`` is when a process last loaded it, in seconds since the epoch."""

    path: pathlib.Path
    nbytes: int
    used_at: float


def digest(*parts: str) -> str:
    """A key out of the parts that the code depends on: source hash, options, target, compiler identity."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class KernelCache:
    """Entries of one directory, or of memory when it is None or not usable. Safe from several threads."""

    def __init__(self, directory: pathlib.Path | None) -> None:
        self.directory = directory
        self._memory: dict[str, bytes] = {}
        self._building: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._has_warned = False

    def get(self, key: str, build: Callable[[], bytes]) -> Entry:
        """The entry of ``key``; ``build`` makes its code when there is none, or a damaged one. Passes on its errors."""
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            entry = self._find(key)
            return entry if entry is not None else self._store(key, build())

    def has(self, key: str) -> bool:
        """Whether there is an entry, damaged or not."""
        return key in self._memory or (self.directory is not None and (self.directory / key).exists())

    def put(self, key: str, code: bytes) -> None:
        """Add code that was compiled elsewhere."""
        self.get(key, lambda: code)

    def _find(self, key: str) -> Entry | None:
        code = self._memory.get(key)
        if code is not None:
            return Entry(code, None)
        if self.directory is None:
            return None
        path = self.directory / key
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(error)
            return None
        code, tail = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        if not code or hashlib.sha256(code).digest() != tail:
            return None
        with contextlib.suppress(OSError):  # another user's file: it only looks older to prune
            os.utime(path)
        return Entry(code, path)

    def _store(self, key: str, code: bytes) -> Entry:
        if self.directory is not None:
            path = self.directory / key
            try:
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                _replace(path, code + hashlib.sha256(code).digest())
            except OSError as error:
                self._warn(error)
            else:
                return Entry(code, path)
        else:
            self._warn("this user has no home directory")
        self._memory[key] = code
        return Entry(code, None)

    def files(self) -> list[CacheFile]:
        """The directory's entries and left temporary files, the one not used for the longest time first.

        Raises OSError where the directory cannot be read; one that does not exist is empty.
        """
        if self.directory is None:
            return []
        found = []
        try:
            with os.scandir(self.directory) as scan:
                for one in scan:
                    if not (_KEY.fullmatch(one.name) or one.name.startswith(_TEMPORARY)):
                        continue  # not ours
                    with contextlib.suppress(FileNotFoundError):  # another process prunes, too
                        facts = one.stat(follow_symlinks=False)
                        found.append(CacheFile(pathlib.Path(one.path), facts.st_size, facts.st_mtime))
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda file: file.used_at)

    def remove(self, files: Iterable[CacheFile]) -> list[CacheFile]:
        """Remove these; returns those that were still there. Raises OSError.

        Only names go: a process that has a kernel loaded keeps it, and one that needs it again compiles it again.
        """
        removed = []
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.path)
                removed.append(file)
        return removed

    def _warn(self, reason: object) -> None:
        with self._lock:
            if self._has_warned:
                return
            self._has_warned = True
        warnings.warn(
            f"the kernel cache {self.directory or ''} cannot be used ({reason}); compiled kernels are kept in memory; "
            "set HIPFIND_CACHE_DIR to a directory that can be written",
            UserWarning,
            stacklevel=2,
        )


def _replace(path: pathlib.Path, content: bytes) -> None:
    """Write a file so that others see all of it or nothing. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def cache_directory() -> pathlib.Path | None:
    """HIPFIND_CACHE_DIR, else a folder in the user's cache directory; None for a user without a home."""
    chosen = settings.current().cache_dir
    if chosen:
        expanded = os.path.expanduser(chosen)
        has_no_home = chosen.startswith("~") and expanded == chosen
        return None if has_no_home else pathlib.Path(os.path.abspath(expanded))
    if os.environ.get("HOME") == "" and not os.environ.get("XDG_CACHE_HOME"):
        return None
    import platformdirs  # costs milliseconds, and is not needed where the setting names a path

    try:
        directory = platformdirs.user_cache_path("hipfind") / "kernels"
    except RuntimeError:  # newer versions raise it for a user without a home
        return None
    return directory if directory.is_absolute() else None  # older ones leave "~" as it is


def old_files(
    files: Sequence[CacheFile], *, older_than_s: float = math.inf, most_bytes: float = math.inf, now: float
) -> list[CacheFile]:
    """What may go of a cache's files, which come least recently used first: what was not used for so long, and then
    the first ones until the rest fits. Temporary files of writers that died go after an hour."""
    left = sum(file.nbytes for file in files)
    old = []
    for file in files:
        age = now - file.used_at
        if file.path.name.startswith(_TEMPORARY):
            goes = age > _LONGEST_WRITE_S
        else:
            goes = age > older_than_s or left > most_bytes
        if goes:
            old.append(file)
            left -= file.nbytes
    return old


_caches: dict[pathlib.Path | None, KernelCache] = {}
_caches_lock = threading.Lock()


def kernel_cache() -> KernelCache:
    """The cache that the settings in force name; one object a directory, so that it warns once."""
    directory = cache_directory()
    with _caches_lock:
        cache = _caches.get(directory)
        if cache is None:
            cache = _caches[directory] = KernelCache(directory)
        return cache
