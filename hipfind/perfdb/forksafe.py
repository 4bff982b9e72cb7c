"""Objects with a lock that stay usable on both sides of os.fork.

sqlite keeps its file locks in process-wide tables, and the operating system does not hand locks to a forked child. A
child with an inherited connection, even an unused one, would believe that it holds locks that it does not, and could
write into a log file that the parent has just deleted. So every connection to a file is closed before a fork and
opened again at the next use, in the parent and in the child; locks are held across the fork, so that no other thread
leaves one locked for ever in the child.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref


class ForkSafe:
    """Base of objects that are used by several threads under ``lock`` and let go of files before a fork.

    Whoever holds the lock of one such object may take only locks of objects made after it: that is the order in which
    a fork takes them.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        with _registry_lock:
            self._serial = next(_serials)
            _live.add(self)

    def before_fork(self) -> None:
        """Close what must not be inherited. Called with the lock held."""


_registry_lock = threading.RLock()
_serials = itertools.count()
_live: weakref.WeakSet[ForkSafe] = weakref.WeakSet()
_held: list[ForkSafe] = []


def _before_fork() -> None:
    while True:
        _registry_lock.acquire()  # kept once nothing is left to lock: no object is made during the fork
        others = [one for one in _live if one not in _held]
        if not others:
            break
        _registry_lock.release()
        for one in sorted(others, key=lambda one: one._serial):
            one.lock.acquire()
            _held.append(one)
    for one in _held:
        one.before_fork()


def _after_fork() -> None:
    while _held:
        _held.pop().lock.release()
    _registry_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
