"""Proof on paper that a solution's steps stay inside their buffers: offsets, advances and extents against sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import WORKSPACE, ClearStep, GemmStep, KernelStep, Operand, flat
from hipfind.kernels.spec import TritonSpec
from hipfind.problem.base import Problem

_ITEMSIZE = {"fp64": 8, "int64": 8, "fp32": 4, "uint32": 4, "i32": 4, "fp16": 2, "bf16": 2, "uint16": 2}
_POINTER_ALIGNMENT = 16


def assert_inside(problem: Problem, solution: Solution) -> None:
    """Every byte that a step touches, in every loop iteration, lies in its buffer, on a boundary of its element.

    Exact for GEMMs, clears and the shared kernels; of Triton's for what is written to the workspace, which starts at
    addresses that these kernels are compiled for; of other kernels only the operands' starts are known.
    """
    room = {role: problem.tensor(role).span_bytes for role in problem.roles}
    room[WORKSPACE] = solution.workspace_bytes
    for count, step in flat(solution.steps):
        for operand, extent, itemsize in _extents(step):
            assert operand.offset >= 0 and operand.advance >= 0, f"{operand} runs backwards"
            assert operand.offset % itemsize == 0 and operand.advance % itemsize == 0, f"{operand} splits elements"
            end = operand.offset + operand.advance * (count - 1) + extent
            assert end <= room[operand.buffer], f"{operand} ends at {end} of {room[operand.buffer]} in {step}"


def _extents(step: KernelStep | GemmStep | ClearStep) -> Iterator[tuple[Operand, int, int]]:
    """Operands with the bytes that they reach and their element's size."""
    if isinstance(step, ClearStep):
        yield step.target, step.nbytes, 1
    elif isinstance(step, GemmStep):
        yield from _gemm_extents(step)
    elif isinstance(step.kernel, TritonSpec):
        yield from _triton_extents(step, step.kernel)
    else:
        yield from _kernel_extents(step)


def _gemm_extents(step: GemmStep) -> Iterator[tuple[Operand, int, int]]:
    gemm = step.gemm
    a_rows, a_columns = (gemm.k, gemm.m) if gemm.trans_a else (gemm.m, gemm.k)
    b_rows, b_columns = (gemm.n, gemm.k) if gemm.trans_b else (gemm.k, gemm.n)
    for operand, rows, columns, row_stride, distance, dtype in (
        (step.a, a_rows, a_columns, gemm.lda, gemm.stride_a, gemm.dtype),
        (step.b, b_rows, b_columns, gemm.ldb, gemm.stride_b, gemm.dtype),
        (step.c, gemm.m, gemm.n, gemm.ldc, gemm.stride_c, gemm.dtype_c),
    ):
        assert row_stride >= columns, f"rows of {operand} overlap in {gemm}"
        reach = (gemm.batch - 1) * distance + (rows - 1) * row_stride + columns
        yield operand, reach * dtype.itemsize, dtype.itemsize


def _kernel_extents(step: KernelStep) -> Iterator[tuple[Operand, int, int]]:
    itemsize = _ITEMSIZE[dict(step.kernel.defines)["ELEM"]]
    numbers = [int(value) for value in step.params]
    if step.kernel.entry == "cast_from_fp32":
        sizes = [(step.items, 4), (step.items, itemsize)]
    elif step.kernel.entry in ("im2col", "col2im"):
        image, taps, outputs = (math.prod(numbers[start : start + 3]) for start in (0, 3, 6))
        if step.kernel.entry == "im2col":
            channels = step.items // (taps * numbers[-1])
            sizes = [(channels * image, itemsize), (channels * taps * outputs, itemsize)]
        else:
            blocks = math.prod(-(-extent // block) for extent, block in zip(numbers[1:3], numbers[-2:], strict=True))
            channels = step.items // (numbers[0] * blocks)
            sizes = [(channels * taps * outputs, max(itemsize, 4)), (channels * image, itemsize)]
    elif step.kernel.entry == "strided_copy":
        lengths = [step.items // (numbers[0] * numbers[1] * numbers[-1]), *numbers[:3]]
        sizes = [(_reach(lengths, strides), itemsize) for strides in (numbers[3:7], numbers[7:11])]
    elif step.kernel.entry == "im2col_last":
        image, taps, outputs = (math.prod(numbers[start : start + 3]) for start in (0, 3, 6))
        channels, pitch = numbers[18] * numbers[19], numbers[20]
        images = step.items // (outputs * numbers[-1])
        assert pitch >= taps * channels
        sizes = [
            (images * image * channels, itemsize),
            ((images * outputs - 1) * pitch + taps * channels, itemsize),
        ]
    elif step.kernel.entry == "copy_block":
        sizes = [(_reach(numbers[:12], numbers[start : start + 12]), itemsize) for start in (12, 24)]
    elif step.kernel.entry.startswith("v4r1_columns"):
        sizes = [(elements, itemsize) for elements in _columns(step.kernel.entry, numbers)]
    elif step.kernel.entry == "copy_rows":
        unit = int(dict(step.kernel.defines)["UNIT"])
        source, to = (length * unit for length in numbers)
        rows = step.items * unit // to
        sizes = [((rows - 1) * source + min(source, to), itemsize), (rows * to, itemsize)]
    else:
        sizes = [(1, itemsize)] * len(step.operands)
    for operand, (elements, size) in zip(step.operands, sizes, strict=True):
        yield operand, elements * size, size


def _triton_extents(step: KernelStep, spec: TritonSpec) -> Iterator[tuple[Operand, int, int]]:
    numbers: dict[str, Any] = dict(spec.constants)
    numbers |= {name: int(value) for (name, _), value in zip(spec.integers, step.params, strict=True)}
    last = len(spec.pointers) - 1
    for place, ((name, dtype), operand) in enumerate(zip(spec.pointers, step.operands, strict=True)):
        elements = 1
        if name == "flags":
            elements = step.items if numbers.get("MERGED") != 1 else 0
        elif place == last:
            elements = _written(spec.entry, numbers, step.items)
        elif spec.entry == "split_sum":
            elements = numbers["PARTS"] * numbers["elements"]
        yield operand, elements * _ITEMSIZE[dtype], _POINTER_ALIGNMENT


def _written(entry: str, numbers: dict[str, Any], items: int) -> int:
    """Elements of a Triton kernel's output, 1 where that is the problem's own."""
    if entry == "pack":
        pixels, channels = numbers["out_h"] * numbers["out_w"], numbers["out_c"]
        images = items // (math.ceil(pixels / numbers["BP"]) * math.ceil(channels / numbers["BC"]))
        return images * pixels * channels
    if entry == "merge_groups":
        return int(numbers["ELEMENTS"])
    if entry == "expand_runs":
        return int(numbers["DEPTH"] * numbers["COLUMNS"])
    if entry == "expand_cells":
        return math.prod(numbers["OUTPUTS"]) * int(numbers["SUMMED"] * numbers["COLUMNS"])
    if entry == "split_sum":
        return int(numbers["elements"])
    part = numbers["part_stride" if entry == "gather" else "PART"] if numbers.get("SPLIT", 1) > 1 else 1
    return int(numbers.get("SPLIT", 1) * part)


def _columns(entry: str, numbers: list[int]) -> tuple[int, int]:
    """Elements that v4r1_gather reads of y and reaches in the columns."""
    outputs, pixels, taps = (math.prod(numbers[start : start + 3]) for start in (0, 3, 6))
    images, groups, channels, pitch = numbers[15:19]
    rows, columns = groups * channels * taps, images * pixels
    if entry.endswith("last"):
        rows, columns = columns, rows
    assert pitch >= columns
    return images * groups * channels * outputs, (rows - 1) * pitch + columns


def _reach(lengths: list[int], strides: list[int]) -> int:
    return 1 + sum((length - 1) * stride for length, stride in zip(lengths, strides, strict=True))
