"""Checks candidates' outputs before they may win: unwritten elements, sampled float64 reference, agreement in full.

The whole reference would cost more than the Find for large problems. So some output positions (the corners and random
ones) are computed in float64 by definition, and whole outputs are compared with each other. Where two candidates
disagree, the positions of the largest differences are computed as well, and whoever is wrong there is refused.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from hipfind.problem import tolerance
from hipfind.problem.base import Problem

_MAX_PRODUCTS = 1 << 22
"""Products that one sampled check may sum in all."""
_MAX_POINTS = 512
_MIN_POINTS = 16
_DISPUTED = 64
_SLABS = 64


@dataclasses.dataclass
class Verifier:
    """Verifies outputs of one problem. ``arrays``: role -> input data in logical shape."""

    problem: Problem
    arrays: dict[str, npt.NDArray[np.generic]]
    seed: int = 0
    _accepted: dict[str, npt.NDArray[np.generic]] = dataclasses.field(default_factory=dict)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._points = self._sample_points()
        self._expected = self.problem.reference_at(self.arrays, self._points)
        self._usual_size = self.problem.usual_size(self.arrays)

    def check(self, solver_id: str, output: npt.NDArray[np.generic]) -> None:
        """Judge one candidate's output: afterwards it is in ``refused`` with a reason, or accepted.

        A candidate accepted earlier can be refused by this call, when the two disagree and it is the wrong one.
        """
        unwritten = int(np.size(output) - np.count_nonzero(np.isfinite(output)))
        if unwritten:
            self.refused[solver_id] = f"{unwritten} of {output.size} elements unwritten or not finite"
            return
        verdict = self._compare(output[tuple(self._points.T)], self._expected)
        if not verdict.ok:
            self.refused[solver_id] = f"error {verdict.error:.2e} at sampled positions, limit {verdict.limit:.2e}"
            return
        rival = next(iter(self._accepted), None)
        if rival is None:
            self._accepted[solver_id] = output
        elif self._disagree(output, self._accepted[rival]):
            self._settle(solver_id, output, rival)

    def _settle(self, solver_id: str, output: npt.NDArray[np.generic], rival: str) -> None:
        """Compute the positions where two outputs differ most, and refuse whoever is wrong there."""
        rival_output = self._accepted[rival]
        gap = np.abs(output.astype(np.float64) - rival_output.astype(np.float64)).ravel()
        worst = np.argsort(gap)[-min(_DISPUTED, gap.size) :]
        points = np.stack(np.unravel_index(worst, output.shape), axis=1).astype(np.int64)
        expected = self.problem.reference_at(self.arrays, points)
        for name, values in ((solver_id, output), (rival, rival_output)):
            verdict = self._compare(values[tuple(points.T)], expected)
            if not verdict.error <= 2 * verdict.limit:
                self.refused[name] = (
                    f"error {verdict.error:.2e} where candidates disagree, limit {2 * verdict.limit:.2e}"
                )
        if rival in self.refused:
            del self._accepted[rival]
            if solver_id not in self.refused:
                self._accepted[solver_id] = output

    def _disagree(self, output: npt.NDArray[np.generic], other: npt.NDArray[np.generic]) -> bool:
        """True when the outputs differ by more than two right ones may, as a whole or in one slab.

        Slabs (along the first axis) keep a small wrong region from drowning in the norm of a large right one.
        """
        slabs = max(1, min(output.shape[0], _SLABS))
        for ours, theirs in zip(np.array_split(output, slabs), np.array_split(other, slabs), strict=True):
            verdict = self._compare(ours, theirs.astype(np.float64))
            if not verdict.error <= 2 * verdict.limit:
                return True
        return False

    def _compare(self, values: npt.NDArray[np.generic], expected: npt.NDArray[np.float64]) -> tolerance.Verdict:
        dtype = self.problem.tensor(self.problem.output).dtype
        length, compute = self.problem.reduction_length, self.problem.compute
        return tolerance.check(values, expected, dtype, length, compute, self._usual_size)

    def _sample_points(self) -> npt.NDArray[np.int64]:
        lengths = self.problem.tensor(self.problem.output).lengths
        count = min(_MAX_POINTS, max(_MIN_POINTS, _MAX_PRODUCTS // max(self.problem.reduction_length, 1)))
        corners = list(itertools.product(*(sorted({0, length - 1}) for length in lengths)))[:count]
        rng = np.random.default_rng(self.seed)
        random_points = np.stack([rng.integers(0, length, count) for length in lengths], axis=1)
        return np.concatenate([np.array(corners, np.int64), random_points.astype(np.int64)])
