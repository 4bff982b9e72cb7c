"""What gpu_check looks at, a function a part: each returns its line of the table, or raises."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import hipfind as hf
from hipfind.device.base import Device
from hipfind.device.devices import get_device, list_devices
from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import NoAlgorithmError
from hipfind.errors import DeviceError, HipfindError, OutOfMemoryError
from hipfind.invokers.steps import WORKSPACE, KernelStep, flat
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem import ConvProblem, tolerance
from hipfind.problem.dtypes import DType
from hipfind.solvers.registry import default_registry
from tests.helpers.arrays import make_arrays
from tests.helpers.conv_cases import point_outputs
from tests.helpers.solving import check_all
from tests.solvers.catalogue import conv_problems

_FLOATS = (DType.FP32, DType.FP16, DType.BF16, DType.FP64)
_SEED_SHAPE = {"x": (9500, 3, 14, 14), "w": (1280, 3, 14, 14), "stride": 14, "dtype": "bf16"}


class Check:
    """The device under test and the time that a part has."""

    def __init__(self, device_name: str, seconds: float) -> None:
        self.device_name = device_name
        self.end = time.monotonic() + seconds

    @property
    def device(self) -> GpuDevice:
        device = get_device(self.device_name)
        if not isinstance(device, GpuDevice):
            raise DeviceError("this checks GPUs", got=device.name)
        return device

    def time_left(self) -> float:
        return self.end - time.monotonic()


def devices(check_: Check) -> str:
    """(a) What can run here, and each device's versions."""
    for info in list_devices():
        print(info.name, "works" if info.available else f"does not: {info.reason}", info.target or "")
        if info.available:
            print("   ", get_device(info.name).environment())
    target = check_.device.target
    return f"{target.name}, {target.arch}, {target.compute_units} units, {target.bandwidth_gbs:.0f} GB/s"


def memory(check_: Check) -> str:
    """Copies, fills, an allocation that is too large, and that memory comes back."""
    device = check_.device
    values = np.random.default_rng(0).standard_normal(1_000_003).astype(np.float32)
    block = device.allocate(values.nbytes)
    device.copy_in(block.address, values)
    np.testing.assert_array_equal(device.as_numpy(block, np.float32, values.shape), values)
    device.set_bytes(block.address, block.nbytes, 0xFF)
    assert np.isnan(device.as_numpy(block, np.float32, values.shape)).all()
    try:
        device.allocate(1 << 50)
        raise AssertionError("a petabyte was granted")
    except OutOfMemoryError as error:
        print(error)
    with device.driver.active():
        before, _ = device.driver.memory_info()
        for _ in range(8):
            device.allocate(1 << 30)
        after, _ = device.driver.memory_info()
    assert before - after < 2 << 30, "freed memory did not come back"
    return "copies, fills, out of memory"


def products(check_: Check) -> str:
    """(b) Every legal GEMM: types, transposes, batches, beta, gaps, alignments; against float64."""
    device, count, worst = check_.device, 0, 0.0
    rng = np.random.default_rng(1)
    types = [(one, one) for one in _FLOATS] + [(one, DType.FP32) for one in _FLOATS if one.is_half]
    switches = itertools.product(types, (False, True), (False, True), (1, 3), (0.0, 1.0), (0, 1, 8))
    sizes = itertools.cycle([(64, 48, 80), (5, 7, 9), (1, 33, 200), (130, 1, 3), (17, 24, 588)])
    for (dtype, dtype_c), trans_a, trans_b, batch, beta, gap in switches:
        m, n, k = next(sizes)
        a = _random(rng, (batch, *((k, m) if trans_a else (m, k))), gap, dtype)
        b = _random(rng, (batch, *((n, k) if trans_b else (k, n))), gap, dtype)
        c = _random(rng, (batch, m, n), gap, dtype_c)
        spec = GemmSpec(
            m, n, k, dtype, dtype_c, a.shape[2], b.shape[2], c.shape[2], trans_a, trans_b, batch,
            a[0].size, b[0].size, c[0].size, 1.5, beta,
        )  # fmt: skip
        out = _multiply(device, spec, (a, b, c), offset=count % 3)
        wide = [array[..., : array.shape[2] - gap].astype(np.float64) for array in (a, b, c)]
        left = wide[0].transpose(0, 2, 1) if trans_a else wide[0]
        right = wide[1].transpose(0, 2, 1) if trans_b else wide[1]
        error = tolerance.relative_error(out[..., :n].astype(np.float64), 1.5 * (left @ right) + beta * wide[2])
        limit = 2 * tolerance.limit(dtype_c, k)
        assert error <= limit, f"error {error:.2e}, limit {limit:.2e} for {spec}"
        assert gap == 0 or np.array_equal(out[..., n:], c[..., n:]), f"gaps between rows were written for {spec}"
        worst = max(worst, error / limit)
        count += 1
    large = GemmSpec(4096, 4096, 4096, DType.BF16, DType.BF16, 4096, 4096, 4096)
    return (
        f"{count} products right (worst {worst:.2f} of the limit), {_count_ranks(device, large)} ranks for 4096 cubed"
    )


def _count_ranks(device: Device, spec: GemmSpec) -> int:
    for rank in range(100):
        try:
            device.prepare_gemm(dataclasses.replace(spec, rank=rank))
        except NoAlgorithmError:
            return rank
    return 100


def _random(rng: np.random.Generator, shape: tuple[int, ...], gap: int, dtype: DType) -> np.ndarray[Any, Any]:
    return rng.standard_normal((*shape[:-1], shape[-1] + gap)).astype(dtype.numpy)


def _multiply(device: Device, spec: GemmSpec, arrays: tuple[Any, Any, Any], offset: int) -> np.ndarray[Any, Any]:
    """The product of operands that start ``offset`` elements off a well aligned address."""
    blocks = [device.allocate(array.nbytes + 256) for array in arrays]
    for block, array in zip(blocks, arrays, strict=True):
        device.copy_in(block.address + offset * array.itemsize, array)
    a, b, c = (block.address + offset * array.itemsize for block, array in zip(blocks, arrays, strict=True))
    device.prepare_gemm(spec)(a, b, c, 0)
    out = np.empty_like(arrays[2])
    device.copy_out(out, c)
    return out


def kernels(check_: Check) -> str:
    """(b) Every portable kernel that a solver uses, on the GPU and on the host, with the same random operands."""
    device, host = check_.device, get_device("host")
    found: dict[KernelSpec, tuple[KernelStep, dict[str, int]]] = {}
    for problem in _small_problems():
        for solver in default_registry().for_operation("conv"):
            if solver.IsApplicable(device.target, problem):
                solution = solver.GetSolution(device.target, problem)
                sizes = {role: problem.tensor(role).span_bytes for role in problem.roles}
                sizes[WORKSPACE] = solution.workspace_bytes
                for _, step in flat(solution.steps):
                    if isinstance(step, KernelStep) and step.items:
                        found.setdefault(step.kernel, (step, sizes))
    for step, sizes in found.values():
        for ours, theirs in zip(_run_kernel(device, step, sizes), _run_kernel(host, step, sizes), strict=True):
            assert np.allclose(ours, theirs, rtol=2e-2, atol=1e-3, equal_nan=True), f"GPU and host differ in {step}"
    return f"{len(found)} kernels agree with the host: " + ", ".join(sorted({spec.entry for spec in found}))


def _run_kernel(device: Device, step: KernelStep, sizes: dict[str, int]) -> list[np.ndarray[Any, Any]]:
    """All buffers after one launch, as float64. Their bytes begin as small random numbers of the kernel's type."""
    rng = np.random.default_rng(7)
    name = dict(step.kernel.defines)["ELEM"]
    dtype = DType(name).numpy if name in {one.value for one in DType} else np.dtype(np.uint16)
    contents, places = {}, {}
    for buffer in sorted({operand.buffer for operand in step.operands}):
        values = rng.integers(-3, 4, -(-sizes[buffer] // dtype.itemsize))
        contents[buffer] = np.abs(values).astype(dtype) if dtype.kind == "u" else values.astype(dtype)
        places[buffer] = device.allocate(contents[buffer].nbytes)
        device.copy_in(places[buffer].address, contents[buffer])
    addresses = [places[operand.buffer].address + operand.offset for operand in step.operands]
    device.prepare_kernel(step.kernel, step.params, step.items)(addresses, 0)
    return [device.as_numpy(places[name], dtype, contents[name].shape).astype(np.float64) for name in places]


def solvers(check_: Check) -> str:
    """(c) Every solver that applies, on poisoned buffers between guard bytes, against float64."""
    device, runs, done, total = check_.device, 0, 0, 0
    everyone, errors = default_registry().for_operation("conv"), []
    for problem in _small_problems():
        total += 1
        if check_.time_left() < 5:
            continue
        done += 1
        try:
            runs += len(check_all(device, everyone, problem, seed=3))
        except (AssertionError, HipfindError) as error:
            errors.append(f"{problem.key()}: {error}")
            print(errors[-1])
    assert not errors, f"{len(errors)} of {done} problems failed, first: {errors[0]}"
    return f"{runs} runs of solvers on {done} of {total} problems right"


def _small_problems() -> Iterator[ConvProblem]:
    for direction, dtype, last in itertools.product(("fwd", "bwd", "wrw"), ("bf16", "fp32", "fp16"), (False, True)):
        for problem in point_outputs(direction, dtype, last).values():
            yield problem.canonical()
    for problem in conv_problems():
        yield problem.canonical()


def find_and_plan(check_: Check) -> str:
    """(c) Find and plan through the public API, on arrays of torch where it is there."""
    device, names, on_torch = check_.device.name, [], 0
    for direction, layout in itertools.product(("fwd", "bwd", "wrw"), ("NCHW", "NHWC")):
        for dtype in ("fp32", "bf16"):
            problem = ConvProblem.create(
                direction, (6, 8, 12, 12), (16, 8, 3, 3), stride=2, pad=1, dtype=dtype, layout=layout
            )
            report = hf.find(problem, mode="normal", device=device, verify="always")
            assert report.best is not None, f"no solver won for {problem.key()}"
            wrong = [one for one in report.candidates if one.outcome.name in ("WRONG_RESULT", "RUN_FAILED")]
            assert not wrong, f"{wrong[0]}"
            names.append(report.best.solver_id)
            on_torch += _plan_on_torch(problem, device)
    return f"{len(names)} finds, {on_torch} plans on torch tensors; winners {', '.join(sorted(set(names)))}"


def _plan_on_torch(problem: ConvProblem, device: str) -> int:
    """Run the plan on torch tensors on a stream of torch's own; 0 where torch is not there."""
    try:
        import torch
    except ImportError:
        return 0
    if not torch.cuda.is_available():
        return 0
    arrays = make_arrays(problem, 5)
    inputs = []
    for role in problem.inputs:
        base = np.array(arrays[role].base).view(np.uint8)
        flat_bytes = torch.from_numpy(base).to(device.replace("hip", "cuda"))
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[problem.dtype.value]
        descriptor = problem.tensor(role)
        inputs.append(flat_bytes.view(kind).as_strided(descriptor.lengths, descriptor.strides))
    with torch.cuda.stream(torch.cuda.Stream()):
        out = hf.plan(problem, device=device)(*inputs)
    torch.cuda.synchronize()
    result = out.float().cpu().numpy()
    output = problem.tensor(problem.output)
    verdict = tolerance.check(
        result.astype(output.dtype.numpy), problem.reference(arrays), output.dtype, problem.reduction_length
    )
    assert verdict.ok, f"{verdict} on torch tensors for {problem.key()}"
    return 1


def timing(check_: Check) -> str:
    """(d) Rates that events must show: copy bandwidth and a large product; graphs; what a launch costs the host."""
    device = check_.device
    nbytes = 1 << 30
    block, other = device.allocate(nbytes), device.allocate(nbytes)
    places = [block.address, other.address]
    # A cast to its own type moves bytes and does nothing else; a strided copy divides three times for each element.
    copy = device.prepare_kernel(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "fp32"),)), (), nbytes // 4)
    copy_ms = _best(device, lambda: copy(places, 0))
    strided = device.prepare_kernel(
        KernelSpec("strided_copy.hip", "strided_copy", (("ELEM", "int64"),)),
        (1, 1, nbytes // 8, 0, 0, 0, 1, 0, 0, 0, 1, 1, nbytes // 8), nbytes // 8,
    )  # fmt: skip
    strided_ms = _best(device, lambda: strided(places, 0))
    fill_ms = _best(device, lambda: device.set_bytes(block.address, nbytes, 0))
    size = 8192
    product = device.prepare_gemm(GemmSpec(size, size, size, DType.BF16, DType.BF16, size, size, size))
    rng = np.random.default_rng(2)
    half = rng.standard_normal(size * size, dtype=np.float32).astype(DType.BF16.numpy)
    device.copy_in(block.address, half)
    middle = block.address + half.nbytes
    product_ms = _best(device, lambda: product(block.address, block.address, middle, 0))
    small = device.prepare_kernel(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "bf16"),)), (), 256)
    launch_us = _host_us(lambda: small(places, 0))
    tiny = device.prepare_gemm(GemmSpec(32, 32, 32, DType.BF16, DType.BF16, 32, 32, 32))
    gemm_us = _host_us(lambda: tiny(block.address, other.address, middle, 0))
    replays = [_captured(device, run) for run in (lambda on: small(places, on), lambda on: tiny(*places, middle, on))]
    graph_us = [10 * _best(device, lambda replay=replay: replay(0)) for replay in replays]
    cold_ms = device.time_ms(lambda: small(places, 0))
    device.flush_cache()
    print(
        f"one small launch: {cold_ms * 1e3:.1f} us by events; behind a flush {_behind_flush(device, small, places)} us"
    )
    return (
        f"copy {2 * nbytes / copy_ms / 1e6:.0f} GB/s, strided copy of 8-byte elements "
        f"{2 * nbytes / strided_ms / 1e6:.0f} GB/s, fill {nbytes / fill_ms / 1e6:.0f} GB/s, "
        f"bf16 {size} cubed {2 * size**3 / product_ms / 1e9:.0f} TFLOP/s, host cost of a launch {launch_us:.1f} us, "
        f"of a product {gemm_us:.1f} us; in a graph a launch takes {graph_us[0]:.1f} us, a product {graph_us[1]:.1f} us"
    )


def _captured(device: Device, run: Callable[[int], None]) -> Callable[[int], None]:
    """A hundred runs as one graph. Raises DeviceError with the device's reason where it makes none."""
    reasons = _Messages()
    log = logging.getLogger("hipfind.device")
    level = log.level
    log.addHandler(reasons)
    log.setLevel(logging.INFO)
    try:
        replay = device.capture(lambda stream: [run(stream) for _ in range(100)] and None)
    finally:
        log.removeHandler(reasons)
        log.setLevel(level)
    if replay is None:
        raise DeviceError(f"{device.name} makes no graph of launches", got="; ".join(reasons.texts))
    return replay


class _Messages(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _best(device: Device, run: Callable[[], None], rounds: int = 7) -> float:
    return min(device.time_ms(run) for _ in range(rounds))


def _behind_flush(device: Device, run: Any, places: list[int]) -> str:
    samples = []
    for _ in range(9):
        device.flush_cache()
        samples.append(device.time_ms(lambda: run(places, 0)))
    return f"{sorted(samples)[4] * 1e3:.1f}"


def _host_us(run: Callable[[], None], calls: int = 300) -> float:
    """Least host time of a call while the queue has room."""
    best = float("inf")
    for _ in range(10):
        get_time = time.perf_counter
        start = get_time()
        for _ in range(calls // 10):
            run()
        best = min(best, (get_time() - start) / (calls // 10))
    return best * 1e6


def threads(check_: Check) -> str:
    """Four threads with kernels and products of their own on one device, and a wrong stream's error."""
    device, errors = check_.device, []
    cast = device.prepare_kernel(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "fp32"),)), (), 10_000)

    def work(number: int) -> None:
        try:
            source, to = device.allocate(40_000), device.allocate(40_000)
            for turn in range(20):
                values = np.full(10_000, number * 100 + turn, np.float32)
                device.copy_in(source.address, values)
                cast([source.address, to.address], 0)
                np.testing.assert_array_equal(device.as_numpy(to, np.float32, (10_000,)), values)
        except (AssertionError, HipfindError) as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return "4 threads, 80 launches"


def seed_shape(check_: Check) -> str:
    """(d) The seed's shape in all directions, by Find."""
    device, lines = check_.device.name, []
    for direction in ("fwd", "bwd", "wrw"):
        if check_.time_left() < 10:
            break
        start = time.monotonic()
        report = hf.find(ConvProblem.create(direction, **_SEED_SHAPE), mode="normal", device=device)
        for one in report.candidates:
            time_ms = f"{one.time_ms:.4f}" if one.time_ms is not None else "-"
            print(f"{direction} {one.solver_id:34} {one.outcome.name:20} {time_ms:>9} ms  {one.reason[:80]}")
        best = report.best
        assert best is not None
        lines.append(f"{direction} {best.time_ms:.4f} ms {best.solver_id} ({time.monotonic() - start:.1f} s)")
    return "; ".join(lines)


PARTS: dict[str, Callable[[Check], str]] = {
    "devices": devices,
    "memory": memory,
    "products": products,
    "kernels": kernels,
    "threads": threads,
    "timing": timing,
    "seed": seed_shape,
    "find": find_and_plan,
    "solvers": solvers,
}
