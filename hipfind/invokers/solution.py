"""Solution: what a solver hands out. Frozen data that can be saved as JSON and loaded again, never pickled."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from hipfind.errors import ParseError
from hipfind.invokers.steps import ClearStep, GemmStep, KernelStep, LoopStep, Operand, Step, flat
from hipfind.kernels.spec import AnyKernel, GemmSpec, KernelSpec, TritonSpec
from hipfind.problem.dtypes import DType

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Solution:
    """A solver's answer for one problem and config: the steps to run and the workspace that they need.

    ``problem_key`` is the canonical problem's key, ``config`` the perf config as text ("" without one).
    """

    solver_id: str
    solver_version: int
    problem_key: str
    steps: tuple[Step, ...]
    workspace_bytes: int = 0
    config: str = ""

    @property
    def kernels(self) -> tuple[AnyKernel, ...]:
        """The kernels to compile, each once, in order of first use."""
        specs = [step.kernel for _, step in flat(self.steps) if isinstance(step, KernelStep)]
        return tuple(dict.fromkeys(specs))

    @property
    def source_hash(self) -> str:
        """Identity of the code behind this solution: solver version and every kernel's content hash."""
        digest = hashlib.sha256(f"{self.solver_id}:{self.solver_version}".encode())
        for spec in self.kernels:
            digest.update(spec.content_hash.encode())
        return digest.hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data; ``from_dict`` inverts it."""
        return {
            "format": FORMAT,
            "solver_id": self.solver_id,
            "solver_version": self.solver_version,
            "problem_key": self.problem_key,
            "config": self.config,
            "workspace_bytes": self.workspace_bytes,
            "steps": [_encode(step) for step in self.steps],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Solution:
        """Inverse of ``to_dict``. Raises ParseError for another format or malformed data."""
        if data.get("format") != FORMAT:
            raise ParseError(f"a saved solution must have format {FORMAT}", got=repr(data.get("format")))
        try:
            return cls(
                solver_id=str(data["solver_id"]),
                solver_version=int(data["solver_version"]),
                problem_key=str(data["problem_key"]),
                config=str(data["config"]),
                workspace_bytes=int(data["workspace_bytes"]),
                steps=tuple(_decode(step) for step in data["steps"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ParseError("a saved solution is malformed", got=f"{type(error).__name__}: {error}") from error


def _encode(step: Step) -> dict[str, Any]:
    if isinstance(step, LoopStep):
        return {"kind": "loop", "count": step.count, "body": [_encode(inner) for inner in step.body]}
    if isinstance(step, ClearStep):
        return {"kind": "clear", "target": dataclasses.asdict(step.target), "nbytes": step.nbytes}
    if isinstance(step, GemmStep):
        gemm = {**dataclasses.asdict(step.gemm), "dtype": step.gemm.dtype.value, "dtype_c": step.gemm.dtype_c.value}
        operands = {name: dataclasses.asdict(getattr(step, name)) for name in ("a", "b", "c")}
        return {"kind": "gemm", "gemm": gemm, **operands}
    return {"kind": "triton" if isinstance(step.kernel, TritonSpec) else "kernel", **dataclasses.asdict(step)}


def _decode(data: dict[str, Any]) -> Any:
    kind = data["kind"]
    if kind == "loop":
        return LoopStep(int(data["count"]), tuple(_decode(inner) for inner in data["body"]))
    if kind == "clear":
        return ClearStep(Operand(**data["target"]), int(data["nbytes"]))
    if kind == "gemm":
        gemm = {**data["gemm"], "dtype": DType(data["gemm"]["dtype"]), "dtype_c": DType(data["gemm"]["dtype_c"])}
        return GemmStep(GemmSpec(**gemm), *(Operand(**data[name]) for name in ("a", "b", "c")))
    if kind not in ("kernel", "triton"):
        raise ValueError(f"unknown kind of step {kind!r}")
    fields = {name: value for name, value in data.items() if name != "kind"}
    kernel = {name: _frozen(value) for name, value in fields.pop("kernel").items()}
    spec = KernelSpec(**kernel) if kind == "kernel" else TritonSpec(**kernel)
    operands = tuple(Operand(**operand) for operand in fields.pop("operands"))
    return KernelStep(spec, operands, tuple(fields.pop("params")), **fields)


def _frozen(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
