"""What the solvers with Triton kernels share: rules, perf configs, and the steps around the kernel.

Sums are in fp32. Each output element is written once, by one program, or by the kernel that adds the parts of a split
sum in fixed order: results are deterministic and nothing is cleared.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand, Step
from hipfind.kernels.spec import TritonSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import TensorDescriptor
from hipfind.solvers.base import TunableSolver
from hipfind.solvers.gemm import rules
from hipfind.solvers.geometry import lies_channel_last
from hipfind.solvers.igemm import tiles
from hipfind.solvers.igemm.tiles import Product, TileConfig
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_MAX_ELEMENTS = 2**31 - 1 - 2**16
"""Offsets are 32-bit numbers, some of which are computed a little past the end."""
_ENOUGH_CHANNELS = 32
"""Channels of a group that matrix cores are fed with; smaller groups are merged."""
_FEWEST_CHANNELS = 4
"""Channels of a group below which nearly all that matrix cores do is wasted."""
VECTOR = 8
"""Neighbouring channels that are loaded at a time."""
_SUM_TILE = 4096
"""Numbers that one program adds up."""
_PARTS_BYTES = 64 << 20
_FEWEST_DEPTH = 256
"""Elements of the sum that a part has at least."""
_ALIGNMENT = 256


class TritonSolver(TunableSolver[ConvProblem, TileConfig]):
    """A convolution whose work is one matrix product by matrix cores."""

    __slots__ = ()

    algorithm = "ImplicitGEMM"

    def IsDynamic(self, problem: ConvProblem) -> bool:
        return False

    @abc.abstractmethod
    def product(self, target: Target, problem: ConvProblem) -> Product:
        """Sizes of the matrix product."""

    @abc.abstractmethod
    def prepared_bytes(self, target: Target, problem: ConvProblem) -> int:
        """Workspace of the copies that are made first; parts of split sums lie behind them."""

    @abc.abstractmethod
    def steps(self, target: Target, problem: ConvProblem, config: TileConfig) -> tuple[Step, ...]:
        """The solution's steps."""

    def GetWorkspaceSize(self, target: Target, problem: ConvProblem) -> int:
        parts = self.product(target, problem).parts
        sums = parts * problem.tensor(problem.output).elements * 4 if parts > 1 else 0
        return aligned(self.prepared_bytes(target, problem)) + sums if sums else self.prepared_bytes(target, problem)

    def GetSolution(self, target: Target, problem: ConvProblem, config: TileConfig | None = None) -> Solution:
        chosen = self.checked_config(target, problem, config)
        return self.solution(target, problem, self.steps(target, problem, chosen), str(chosen))

    def GetDefaultPerformanceConfig(self, target: Target, problem: ConvProblem) -> TileConfig:
        return tiles.default(target, self.product(target, problem))

    def IsValidPerformanceConfig(self, target: Target, problem: ConvProblem, config: TileConfig) -> Applicability:
        return tiles.check(target, self.product(target, problem), config)

    def Search(self, target: Target, problem: ConvProblem) -> Iterator[TileConfig]:
        return tiles.every(target, self.product(target, problem))

    def parse_config(self, text: str) -> TileConfig:
        return TileConfig.parse(text, self.solver_id)


def common(target: Target, problem: ConvProblem, direction: str) -> Applicability:
    """What every Triton solver asks for: matrix cores that Triton knows, a dtype that they take, 32-bit offsets."""
    answer = rules.common(target, problem, direction)
    if not answer:
        return answer
    if not (target.has_matrix_cores and target.triton):
        return no(Reason.NO_TRITON, target.arch)
    if not (problem.dtype.is_half or (problem.dtype is DType.FP32 and _multiplies_fp32(target, problem))):
        return no(Reason.DTYPE, f"{problem.dtype.value}: no matrix instructions with its precision")
    if problem.groups > 1 and min(problem.c, problem.k) // problem.groups < _FEWEST_CHANNELS:
        return no(Reason.CHANNELS, f"fewer than {_FEWEST_CHANNELS} a group")
    for role in problem.roles:
        if problem.tensor(role).elements > _MAX_ELEMENTS:
            return no(Reason.TOO_LARGE, f"{problem.tensor(role).elements} elements of {role}")
    return APPLICABLE


def left_over(target: Target, problem: ConvProblem, contract: TunableSolver[ConvProblem, TileConfig]) -> Applicability:
    """Not what the product on tensors as they lie does without a copy: channel-first layouts, few channels."""
    in_vectors = lies_channel_last(problem) and problem.c // problem.groups % VECTOR == 0
    if not in_vectors and contract.IsApplicable(target, problem):
        return no(Reason.SPECIALIZED, contract.SolverDbId())
    return APPLICABLE


def no_padding(problem: ConvProblem) -> Applicability:
    """No padding on any side."""
    if any(problem.pad) or any(problem.pad_end):
        return no(Reason.PADDING, f"{problem.pad} before, {problem.pad_end} after")
    return APPLICABLE


def _multiplies_fp32(target: Target, problem: ConvProblem) -> bool:
    """AMD's MFMA takes fp32; NVIDIA's matrix cores round it to tf32, which a problem must allow."""
    if target.vendor == "nvidia":
        return problem.compute == "tf32"
    return target.vendor == "amd" and target.arch.startswith("gfx9")


def precision_of(problem: ConvProblem) -> str:
    """What the kernel's products of fp32 are rounded to."""
    return "tf32" if problem.compute == "tf32" else "ieee"


def useful_parts(target: Target, m: int, n: int, k: int, batch: int, out_elements: int) -> int:
    """Into how many parts it can pay to cut the sum: while units are idle, parts are long, and their sums fit."""
    busy = -(-m // 128) * -(-n // 128) * batch
    wanted = 4 * target.compute_units // max(busy, 1)
    return max(1, min(wanted, k // _FEWEST_DEPTH, _PARTS_BYTES // (4 * out_elements), 64))


def aligned(nbytes: int) -> int:
    """Rounded up to where the next buffer of the workspace may start."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def merged_groups(problem: ConvProblem) -> int:
    """How many groups are made one because they have few channels each; a power of two that divides the groups."""
    fewest = min(problem.c, problem.k) // problem.groups
    merged = 1
    while merged * fewest < _ENOUGH_CHANNELS and problem.groups % (2 * merged) == 0:
        merged *= 2
    return merged


def three(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    """Depth, height, width; 2D has ``fill`` in front."""
    depth, height, width = (*(fill,) * (3 - len(values)), *values)
    return depth, height, width


class Launch(NamedTuple):
    """What a solver's main kernel runs on: prepared inputs, where flags and the output go, run-time parameters.

    ``prepared_bytes``: workspace in front of the parts of a split sum. ``flags``: where programs that must do their
    tile again say so, None for kernels without flags. ``to``: None for the problem's output. ``again``: whether
    programs may set flags.
    """

    inputs: tuple[Operand, ...]
    prepared_bytes: int
    params: tuple[int, ...] = ()
    flags: Operand | None = None
    to: Operand | None = None
    again: bool = False
    sum_axes: tuple[int, ...] = (0, 1, 0, 0, 0, 0, 0, 0)
    """Where the elements of a split sum's parts go in the output; as they come."""


def flag_bytes(product: Product) -> int:
    """Room for a flag of each program, whatever the config."""
    return 4 * product.batch * product.parts * -(-product.m // tiles.SMALLEST[0]) * -(-product.n // tiles.SMALLEST[1])


def launched(
    problem: ConvProblem, product: Product, config: TileConfig, spec: TritonSpec, launch: Launch
) -> tuple[KernelStep, ...]:
    """The launch, the one that does flagged tiles again, the one that adds up the parts of a split sum.

    The output is the kernel's last pointer, flags the one before.
    """
    output = problem.tensor(problem.output)
    to = launch.to or Operand(problem.output)
    parts = Operand(WORKSPACE, aligned(launch.prepared_bytes))
    is_split = config.split > 1
    if is_split:
        spec = dataclasses.replace(spec, pointers=(*spec.pointers[:-1], (spec.pointers[-1][0], "fp32")))
    moved = sum(problem.tensor(role).nbytes for role in problem.inputs)
    written = config.split * output.elements * 4 if is_split else output.nbytes
    flags = () if launch.flags is None else (launch.flags,)
    step = KernelStep(
        spec, (*launch.inputs, *flags, parts if is_split else to), launch.params,
        items=tiles.programs(product, config), flops=problem.flops, bytes=moved + written, efficiency=1.0,
    )  # fmt: skip
    steps: tuple[KernelStep, ...] = (step,)
    if launch.again:
        again = tuple((name, 1 if name == "AGAIN" else value) for name, value in spec.constants)
        spec = dataclasses.replace(spec, constants=again, stages=1)  # seldom does anything
        steps += (dataclasses.replace(step, kernel=spec, flops=0, bytes=4 * step.items),)
    return (*steps, _sum_of_parts(config.split, output, parts, to, launch.sum_axes)) if is_split else steps


def _sum_of_parts(
    split: int, output: TensorDescriptor, parts: Operand, to: Operand, axes: tuple[int, ...]
) -> KernelStep:
    rows = 1 << (split - 1).bit_length()
    block = _SUM_TILE // rows
    divisor = 16 if output.elements % 16 == 0 else 1
    spec = TritonSpec(
        "common.py", "split_sum", (("parts", "fp32"), ("out", output.dtype.value)), (("elements", divisor),),
        (("PARTS", split), ("ROWS", rows), ("AXES", axes), ("BLOCK", block)),
    )  # fmt: skip
    return KernelStep(
        spec, (parts, to), (output.elements,), items=-(-output.elements // block),
        flops=split * output.elements, bytes=split * output.elements * 4 + output.nbytes,
    )  # fmt: skip
