"""What every operation's problem offers, so that find, plans and the perf DB work for any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hipfind.problem.tensor import TensorDescriptor

Float64Array = npt.NDArray[np.float64]


class Problem(Protocol):
    """A frozen, hashable description of one operation on tensors; no device, no data.

    Tensors are known by role names ("x", "w", "y" for a convolution). ``inputs`` lists the roles that are read, in the
    order in which a plan takes its arrays; ``output`` is the one role that is written.
    """

    @property
    def operation(self) -> str:
        """Kind of operation, e.g. "conv": solvers declare which one they solve."""
        ...

    @property
    def direction(self) -> str:
        """ "fwd", "bwd" or "wrw"."""
        ...

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def output(self) -> str: ...

    @property
    def roles(self) -> tuple[str, ...]:
        """All role names in the fixed order in which invokers number their buffers."""
        ...

    def tensor(self, role: str) -> TensorDescriptor:
        """Descriptor of the tensor in this role."""
        ...

    @property
    def is_empty(self) -> bool:
        """True when nothing is summed or nothing is written (a batch of 0): the answer is trivial."""
        ...

    @property
    def flops(self) -> int:
        """Operations of the direct algorithm (2 a multiply-add)."""
        ...

    @property
    def min_bytes(self) -> int:
        """Bytes that must move at least: every input read once, the output written once."""
        ...

    @property
    def reads_output(self) -> bool:
        """True when the result also depends on the output's former contents (beta is not 0)."""
        ...

    def canonical(self) -> Problem:
        """The problem that solvers see and the perf DB stores. Two problems with one answer share it."""
        ...

    def canonical_roles(self) -> Mapping[str, str]:
        """This problem's role -> the canonical problem's role for the same array."""
        ...

    def key(self) -> str:
        """Complete key: two problems that may need different answers never share one."""
        ...

    def facts(self) -> Mapping[str, int | str]:
        """What people look for in a perf DB, by its columns' names.

        Always ``layout``; of the others those that the operation has: ``n``, ``c``, ``k``, ``groups``, ``miopen_key``,
        and sizes as in ``56x56``: ``input``, ``filter``, ``output``, ``stride``, ``pad``, ``dilation``.
        """
        ...

    def reference(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Float64Array:
        """The right result in float64 by the definition of the operation.

        ``arrays``: role -> array of any float dtype, in logical shape; the output role is needed when
        ``reads_output``. Returns the output in logical shape.
        """
        ...

    def reference_at(
        self, arrays: Mapping[str, npt.NDArray[np.generic]], indices: npt.NDArray[np.int64]
    ) -> Float64Array:
        """The right result in float64 at some output positions; ``indices`` has shape [points, output rank]."""
        ...

    @property
    def reduction_length(self) -> int:
        """How many products are summed into one output element at most; tolerances grow with it."""
        ...

    @property
    def compute(self) -> str:
        """Accumulation type: "" for the usual one, "tf32" where products of fp32 may be reduced."""
        ...

    def usual_size(self, arrays: Mapping[str, npt.NDArray[Any]]) -> float:
        """Root mean square of the result's elements if the signs of their terms were random.

        Rounding errors follow it, also where terms cancel and the result itself is smaller.
        """
        ...
