"""Every solver once, in order of preference, the fallback last. Third parties add theirs with ``register``."""

from __future__ import annotations

import difflib
import importlib.metadata
import threading
from collections.abc import Iterable
from typing import Any, TypeVar

from hipfind.errors import HipfindError, UnknownSolverError
from hipfind.solvers.base import Solver

AnySolver = Solver[Any]
S = TypeVar("S", bound=type[AnySolver])


class Registry:
    """An ordered, immutable set of solvers, looked up by id."""

    def __init__(self, solvers: Iterable[AnySolver]) -> None:
        self.solvers: tuple[AnySolver, ...] = tuple(solvers)
        self._by_id = {solver.SolverDbId(): solver for solver in self.solvers}
        if len(self._by_id) != len(self.solvers):
            names = [solver.SolverDbId() for solver in self.solvers]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise HipfindError("solver ids must be unique", got=", ".join(twice))

    def for_operation(self, operation: str) -> tuple[AnySolver, ...]:
        return tuple(solver for solver in self.solvers if solver.operation == operation)

    def get(self, solver_id: str) -> AnySolver:
        """The solver with this id. Raises UnknownSolverError, with the closest names."""
        solver = self._by_id.get(solver_id)
        if solver is None:
            close = difflib.get_close_matches(solver_id, self._by_id, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else "`hipfind solvers` lists the known ones"
            raise UnknownSolverError("unknown solver", got=solver_id, remedy=hint)
        return solver

    def __contains__(self, solver_id: str) -> bool:
        return solver_id in self._by_id

    def order(self, solver_id: str) -> int:
        """Position in the order of preference; ties in time go to the lower one."""
        return list(self._by_id).index(solver_id)
