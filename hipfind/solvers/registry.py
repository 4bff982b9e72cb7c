"""Every solver once, in order of preference, the fallback last. Third parties add theirs with ``register``.

A package may also name solvers as entry points of the group ``hipfind.solvers``; each is a solver class, or a module
that registers some when it is imported. They are loaded when the registry is first asked for.
"""

from __future__ import annotations

import difflib
import inspect
import threading
import types
import warnings
from collections.abc import Iterable
from typing import Any, TypeVar

from hipfind.errors import HipfindError, UnknownSolverError
from hipfind.solvers.base import Solver
from hipfind.solvers.depthwise.bwd import ConvDirectDepthwiseBwd
from hipfind.solvers.depthwise.fwd import ConvDirectDepthwiseFwd
from hipfind.solvers.depthwise.wrw import ConvDirectDepthwiseWrw
from hipfind.solvers.direct.empty_batch import ConvEmptyBatch
from hipfind.solvers.direct.naive_bwd import ConvDirectNaiveConvBwd
from hipfind.solvers.direct.naive_fwd import ConvDirectNaiveConvFwd
from hipfind.solvers.direct.naive_wrw import ConvDirectNaiveConvWrw
from hipfind.solvers.gemm.bwd_1x1_stride1 import GemmBwd1x1_stride1
from hipfind.solvers.gemm.bwd_1x1_stride2 import GemmBwd1x1_stride2
from hipfind.solvers.gemm.bwd_point_padded import GemmBwdPointPadded
from hipfind.solvers.gemm.bwd_rest import GemmBwdRest
from hipfind.solvers.gemm.fwd_1x1_0_1 import GemmFwd1x1_0_1
from hipfind.solvers.gemm.fwd_1x1_0_2 import GemmFwd1x1_0_2
from hipfind.solvers.gemm.fwd_channel_last import GemmFwdChannelLast
from hipfind.solvers.gemm.fwd_point_padded import GemmFwdPointPadded
from hipfind.solvers.gemm.fwd_rest import GemmFwdRest
from hipfind.solvers.gemm.wrw_1x1_stride1 import GemmWrw1x1_stride1
from hipfind.solvers.gemm.wrw_channel_last import GemmWrwChannelLast
from hipfind.solvers.gemm.wrw_point_padded import GemmWrwPointPadded
from hipfind.solvers.gemm.wrw_universal import GemmWrwUniversal
from hipfind.solvers.igemm.bwd_cells import ConvTritonCellsBwd
from hipfind.solvers.igemm.bwd_v4r1 import ConvTritonIgemmBwdV4R1
from hipfind.solvers.igemm.bwd_v4r1_dynamic import ConvTritonIgemmBwdV4R1Dynamic
from hipfind.solvers.igemm.bwd_v4r1_gemm import GemmBwdV4R1
from hipfind.solvers.igemm.contract_bwd import ConvTritonContractBwd
from hipfind.solvers.igemm.contract_fwd import ConvTritonContractFwd
from hipfind.solvers.igemm.contract_wrw import ConvTritonContractWrw
from hipfind.solvers.igemm.fwd import ConvTritonIgemmFwd
from hipfind.solvers.igemm.fwd_runs import ConvTritonRunsFwd
from hipfind.solvers.igemm.wrw import ConvTritonIgemmWrw
from hipfind.solvers.upsample.block import UpsampleBwdBlock
from hipfind.solvers.upsample.empty_batch import UpsampleEmptyBatch
from hipfind.solvers.upsample.fwd_direct import UpsampleFwdDirect
from hipfind.solvers.upsample.fwd_lines import UpsampleFwdLines
from hipfind.solvers.upsample.gather import UpsampleBwdGather
from hipfind.solvers.upsample.scatter import UpsampleBwdScatter
from hipfind.solvers.upsample.separable import UpsampleBwdSeparable
from hipfind.solvers.upsample.strip import UpsampleBwdStrip
from hipfind.solvers.upsample.whole import UpsampleBwdWhole

ENTRY_POINT_GROUP = "hipfind.solvers"

AnySolver = Solver[Any]
SolverClass = type[AnySolver]
S = TypeVar("S", bound=SolverClass)

PREFERRED: tuple[SolverClass, ...] = (
    ConvEmptyBatch,
    ConvDirectDepthwiseFwd,
    ConvDirectDepthwiseBwd,
    ConvDirectDepthwiseWrw,
    GemmFwd1x1_0_1,
    GemmFwd1x1_0_2,
    GemmFwdPointPadded,
    GemmFwdRest,
    GemmFwdChannelLast,
    GemmBwd1x1_stride1,
    GemmBwd1x1_stride2,
    GemmBwdPointPadded,
    GemmBwdV4R1,
    GemmBwdRest,
    GemmWrw1x1_stride1,
    GemmWrwPointPadded,
    GemmWrwUniversal,
    GemmWrwChannelLast,
    ConvTritonContractFwd,
    ConvTritonContractBwd,
    ConvTritonContractWrw,
    ConvTritonRunsFwd,
    ConvTritonIgemmFwd,
    ConvTritonCellsBwd,
    ConvTritonIgemmBwdV4R1,
    ConvTritonIgemmBwdV4R1Dynamic,
    ConvTritonIgemmWrw,
    UpsampleEmptyBatch,
    UpsampleFwdLines,
    UpsampleBwdWhole,
    UpsampleBwdStrip,
    UpsampleBwdBlock,
    UpsampleBwdSeparable,
    UpsampleBwdScatter,
)
"""Built-in solvers, the special before the general. Those of third parties stand between them and FALLBACK."""

FALLBACK: tuple[SolverClass, ...] = (
    ConvDirectNaiveConvFwd,
    ConvDirectNaiveConvBwd,
    ConvDirectNaiveConvWrw,
    UpsampleFwdDirect,
    UpsampleBwdGather,
)
"""Solvers for whatever the others leave over."""


class Registry:
    """An ordered, immutable set of solvers, looked up by id."""

    def __init__(self, solvers: Iterable[AnySolver]) -> None:
        self.solvers: tuple[AnySolver, ...] = tuple(solvers)
        self._by_id = {solver.SolverDbId(): solver for solver in self.solvers}
        if len(self._by_id) != len(self.solvers):
            names = [solver.SolverDbId() for solver in self.solvers]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise HipfindError("solver ids must be unique", got=", ".join(twice))
        self._order = {solver_id: position for position, solver_id in enumerate(self._by_id)}

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
        """Position in the order of preference; ties in time go to the lower one. Raises UnknownSolverError."""
        self.get(solver_id)
        return self._order[solver_id]


class _Extensions:
    """Solver classes of third parties, and the registry made of them and the built-in ones. Safe from many threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a module loaded as an entry point registers solvers itself
        self._classes: list[SolverClass] = []
        self._loaded_entry_points = False
        self._registry: Registry | None = None

    def add(self, solver_class: SolverClass) -> None:
        with self._lock:
            if solver_class in self._classes:
                return
            _check(solver_class, (*PREFERRED, *self._classes, *FALLBACK))
            self._classes.append(solver_class)
            self._registry = None

    def registry(self) -> Registry:
        registry = self._registry
        if registry is not None:
            return registry
        with self._lock:
            if not self._loaded_entry_points:
                self._loaded_entry_points = True
                self._load_entry_points()
            if self._registry is None:
                self._registry = Registry(solver() for solver in (*PREFERRED, *self._classes, *FALLBACK))
            return self._registry

    def _load_entry_points(self) -> None:
        import importlib.metadata  # costs milliseconds, and is not needed to import hipfind

        for entry_point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            try:
                loaded = entry_point.load()
                if not isinstance(loaded, types.ModuleType):
                    self.add(loaded)
            except Exception as error:  # noqa: BLE001 - code of third parties, which may raise anything
                warnings.warn(
                    f"solver entry point {entry_point.name} = {entry_point.value} could not be loaded and is left out "
                    f"({type(error).__name__}: {error}); repair or remove the package that provides it",
                    RuntimeWarning,
                    stacklevel=4,
                )


_extensions = _Extensions()


def register(solver_class: S) -> S:
    """Class decorator that adds a solver of a third party to the default registry.

    The class must be a concrete Solver with a ``solver_id`` that no other solver has, and without state:
    ``__slots__ = ()``. Raises HipfindError for the first rule that it breaks.
    """
    _extensions.add(solver_class)
    return solver_class


def default_registry() -> Registry:
    """Built-in solvers and those of third parties. The same object until another solver is registered."""
    return _extensions.registry()


def _check(solver_class: object, others: Iterable[SolverClass]) -> None:
    if not (isinstance(solver_class, type) and issubclass(solver_class, Solver)):
        raise HipfindError("a solver must be a subclass of hipfind.solvers.base.Solver", got=solver_class)
    name = solver_class.__qualname__
    if inspect.isabstract(solver_class):
        missing = ", ".join(sorted(solver_class.__abstractmethods__))
        raise HipfindError(f"solver {name} must implement every abstract method", got=f"without {missing}")
    for attribute in ("solver_id", "algorithm", "operation"):
        value = getattr(solver_class, attribute, None)
        if not isinstance(value, str) or not value:
            raise HipfindError(f"{attribute} of solver {name} must be a string that is not empty", got=value)
    if solver_class.__dictoffset__ or solver_class.__basicsize__ != object.__basicsize__:
        raise HipfindError(
            f"solver {name} must be stateless", got="instances with attributes", remedy="give it `__slots__ = ()`"
        )
    for other in others:
        if other.solver_id == solver_class.solver_id:
            raise HipfindError(
                f"the id of solver {name} is taken by {other.__module__}.{other.__qualname__}",
                got=solver_class.solver_id,
                remedy="solver ids are permanent: choose another one",
            )
