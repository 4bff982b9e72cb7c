"""Session: one device with its perf DB, solver registry and timer; what find, immediate mode and plans work with.

Sessions keep answers and built plans in memory. They are safe from several threads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from hipfind import settings
from hipfind.device.base import Device
from hipfind.device.devices import get_device
from hipfind.find.report import Choice, Source
from hipfind.find.timing import DeviceTimer, Timer
from hipfind.invokers.workspace import WorkspacePool
from hipfind.perfdb.fingerprint import environment_of
from hipfind.perfdb.guard import GuardedDb
from hipfind.perfdb.records import Environment
from hipfind.solvers.registry import Registry, default_registry

_KEPT_PLANS = 1024
_RECHECK_S = 1.0
"""An answer that did not come from the DB is looked up again after this long: another process may have measured."""

T = TypeVar("T")


class LruCache(Generic[T]):
    """A bounded mapping that drops what was used least recently. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[Any, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> T | None:
        with self._lock:
            item = self._items.get(key)
            if item is not None:
                self._items.move_to_end(key)
            return item

    def put(self, key: Any, item: T) -> None:
        with self._lock:
            self._items[key] = item
            self._items.move_to_end(key)
            while len(self._items) > self._size:
                self._items.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()


@dataclasses.dataclass(frozen=True)
class Answer:
    """Ranked choices for one problem, and the stale records that were seen and not used."""

    choices: tuple[Choice, ...]
    notes: tuple[str, ...]
    looked_up_at: float

    @property
    def is_fresh(self) -> bool:
        from_db = bool(self.choices) and self.choices[0].source in (Source.USER_DB, Source.TRIVIAL)
        return from_db or time.monotonic() - self.looked_up_at < _RECHECK_S


class Session:
    """One device and what belongs to it. ``registry`` None: the default one, also when solvers are registered later."""

    def __init__(
        self,
        device: Device,
        db: GuardedDb,
        registry: Registry | None = None,
        timer: Timer | None = None,
    ) -> None:
        self.device = device
        self.db = db
        self._has_own_registry = registry is not None
        self.registry = registry or default_registry()
        self.timer = timer or DeviceTimer(device)
        self.environment: Environment = environment_of(device.environment())
        self.workspaces = WorkspacePool(device)
        self.answers: LruCache[Answer] = LruCache(_KEPT_PLANS)
        self.plans: LruCache[Any] = LruCache(_KEPT_PLANS)
        self.reported_configs: set[tuple[str, str, str]] = set()
        """Problem, solver and config of each recorded config that was refused with a warning."""
        self.generation = 0
        """Raised when answers that were given may no longer be the best."""
        self._measuring = threading.Lock()

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """One measurement at a time on a device: two at once would time each other."""
        with self._measuring:
            yield

    def see_new_solvers(self) -> None:
        """Take the default registry as it is now, and drop answers that did not know all of its solvers."""
        if not self._has_own_registry and self.registry is not default_registry():
            self.registry = default_registry()
            self.forget()

    def forget(self) -> None:
        """Drop every answer and plan kept in memory; the DB stays as it is."""
        self.answers.clear()
        self.plans.clear()
        self.generation += 1


_sessions: dict[tuple[object, ...], Session] = {}
_sessions_lock = threading.Lock()


def session_for(device: str | Device | None = None, make_db: Callable[[], GuardedDb] = GuardedDb) -> Session:
    """The process's session for a device name (None: the default device) and the DB that the settings name."""
    current = settings.current()
    resolved = device if isinstance(device, Device) else get_device(device or current.device)
    key = (
        resolved.name, current.user_db_path, current.disable_user_db, current.system_db_path,
        current.disable_system_db, current.disable_packaged_db,
    )  # fmt: skip
    session = _sessions.get(key)
    if session is not None and session.device is resolved:
        session.see_new_solvers()
        return session
    with _sessions_lock:
        session = _sessions.get(key)
        if session is None or session.device is not resolved:
            session = _sessions[key] = Session(resolved, make_db())
        return session
