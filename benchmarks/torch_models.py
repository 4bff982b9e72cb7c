"""Training steps of PyTorch models before and after hipfind.torch.optimize, interleaved in one process.

    python -m benchmarks.torch_models [--only unet,vit] [--device cuda|cpu] [--dtype bf16] [--seconds 10] [--out FILE]
                                      [--find-mode hybrid] [--tune] [--source transformers|timm]
                                      [--modes plain,graphed,compiled,channels_last+autocast]

Parts: patch_embedding (64 images of 224x224, 16x16 patches, width 768), qwen2vl (8192 patches), unet (512x512, bilinear
upsampling), vit (ViT-B/16), convnext (ConvNeXt-T). Weights are random. A step is forward, backward, and the gradients
of all parameters; in the two embeddings also the input's. Modes: plain, and, joined by +, channels_last (weights and
input), autocast (weights in fp32, the dtype by torch.autocast), compiled (both models, torch.compile(fullgraph=True)),
graphed (both steps are captured in a CUDA graph and replayed, so the host costs nothing).

`device ms` on a GPU: CUDA events around one step, queued while an earlier piece of work hides the cost of queueing and
empties the caches. `wall ms`: steps in a row, by the clock, with what the host costs. On a CPU both are the same.
`error`, of the output or of all gradients together, whichever is larger, is against the same numbers in fp32 (fp64 on a
CPU); `torch error` is that of torch's own operators.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import importlib.util
import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import hipfind
import hipfind.torch as hft
from benchmarks import report
from hipfind import settings
from hipfind.device.devices import get_device
from hipfind.errors import HipfindError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PATIENT = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "passive"}
"""Read when numpy and torch are loaded: on a CPU, threads that spin while they wait hold up the other library's."""
MIN_ROUNDS, MAX_ROUNDS = 5, 40
WALL_STEPS = 5
WARM_UPS = 3
SPARE = 2.0
"""Times as long as queueing a step takes the GPU is kept busy before it is timed."""


class UNet(nn.Module):
    """The usual one: four levels, two convolutions a level, bilinear upsampling on the way up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width, 8 * width]
        self.down = nn.ModuleList(_twice(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(
            _twice(below + skip, max(skip // 2, width))
            for below, skip in zip([8 * width, 4 * width, 2 * width, width], widths[3::-1], strict=True)
        )
        self.pool = nn.MaxPool2d(2)
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for index, block in enumerate(self.down):
            x = block(self.pool(x) if index else x)
            skips.append(x)
        for block, skip in zip(self.up, skips[3::-1], strict=True):
            x = block(torch.cat([self.larger(x), skip], 1))
        return self.head(x)


def _twice(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Part:
    """A model and its input; ``lengths`` on a CPU and on a GPU. ``wants_input``: the input's gradient is asked for."""

    make: Callable[[str], nn.Module]
    cpu: tuple[int, ...]
    gpu: tuple[int, ...]
    wants_input: bool = False


def _vit(source: str) -> nn.Module:
    if source == "timm":
        import timm

        return timm.create_model("vit_base_patch16_224")
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return ViTModel(config, add_pooling_layer=False)


def _convnext(source: str) -> nn.Module:
    if source == "timm":
        import timm

        return timm.create_model("convnext_tiny")
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig())


PARTS = {
    "patch_embedding": Part(lambda _: nn.Conv2d(3, 768, 16, 16), (64, 3, 224, 224), (64, 3, 224, 224), True),
    "qwen2vl": Part(
        lambda _: nn.Conv3d(3, 1280, (2, 14, 14), (2, 14, 14), bias=False), (8192, 3, 2, 14, 14), (8192, 3, 2, 14, 14),
        True,
    ),
    "unet": Part(lambda _: UNet(64), (1, 3, 512, 512), (4, 3, 512, 512)),
    "vit": Part(_vit, (2, 3, 224, 224), (64, 3, 224, 224)),
    "convnext": Part(_convnext, (2, 3, 224, 224), (64, 3, 224, 224)),
}  # fmt: skip


class Step:
    """A training step of one model on one input, without an optimizer."""

    def __init__(
        self, model: nn.Module, x: torch.Tensor, wants_input: bool, autocast: torch.dtype | None = None
    ) -> None:
        self.model = model
        self.x = x.clone().requires_grad_(wants_input)
        self._autocast = autocast
        self._dy: torch.Tensor | None = None

    def __call__(self) -> torch.Tensor:
        for one in (self.x, *self.model.parameters()):
            one.grad = None
        with torch.autocast(self.x.device.type, self._autocast, enabled=self._autocast is not None):
            made = self.model(self.x)
        y: torch.Tensor = made if isinstance(made, torch.Tensor) else made.last_hidden_state
        if self._dy is None:
            numbers = torch.Generator(y.device).manual_seed(1)
            self._dy = torch.randn(y.shape, generator=numbers, device=y.device).to(y.dtype)
        y.backward(self._dy)
        return y

    def results(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The output, and all gradients as one vector."""
        return self.collected(self())

    def collected(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """An output, and the gradients that its step has left, as one vector."""
        grads = (one.grad for one in (self.x, *self.model.parameters()) if one.grad is not None)
        return y.detach().double(), torch.cat([one.double().flatten() for one in grads])


class Graphed:
    """A step as a CUDA graph."""

    def __init__(self, step: Step) -> None:
        self._step = step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._y = step()

    def __call__(self) -> torch.Tensor:
        self._graph.replay()
        return self._y

    def results(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The output, and all gradients as one vector."""
        self._graph.replay()
        return self._step.collected(self._y)


AnyStep = Step | Graphed


def errors(steps: dict[str, AnyStep], first: Step, exact: torch.dtype) -> dict[str, float]:
    """Relative error of each against ``first``'s model and input in ``exact``: of output or gradients, if larger."""
    model = copy.deepcopy(first.model).to(exact)
    hft.restore(model)
    x = first.x.detach().to(exact)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        wide = Step(model, x, first.x.requires_grad).results()
    found = {}
    for name, step in steps.items():
        pairs = zip(step.results(), wide, strict=True)
        found[name] = max(float((one - other).norm() / other.norm()) for one, other in pairs)
    return found


class Clock:
    """Times steps against each other."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type != "cpu"
        self._flush = torch.zeros(1 << 27, device=device) if self._on_gpu else None
        self._reads = 0

    def race(self, steps: dict[str, AnyStep], seconds: float) -> dict[str, tuple[float, float]]:
        """Median device time and wall time of a step of each, in ms."""
        for step in steps.values():
            for _ in range(2):
                step()
        self._reads = max(map(self._reads_of, steps.values())) if self._on_gpu else 0
        device: dict[str, list[float]] = {name: [] for name in steps}
        wall: dict[str, list[float]] = {name: [] for name in steps}
        names, end = list(steps), time.monotonic() + seconds
        for round_index in range(MAX_ROUNDS):
            if round_index >= MIN_ROUNDS and time.monotonic() > end:
                break
            first = round_index % len(names)
            for name in names[first:] + names[:first]:
                device[name].append(self._device_ms(steps[name]))
                wall[name].append(self._wall_ms(steps[name]) if self._on_gpu else device[name][-1])
        return {name: (statistics.median(device[name]), statistics.median(wall[name])) for name in steps}

    def _device_ms(self, step: AnyStep) -> float:
        if self._flush is None:
            start = time.perf_counter()
            step()
            return (time.perf_counter() - start) * 1e3
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(self._reads):
            self._flush.sum()
        begin.record()
        step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def _reads_of(self, step: AnyStep) -> int:
        """How many reads of half a GB take the GPU longer than queueing the step takes the host."""
        assert self._flush is not None
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        queued = time.perf_counter()
        torch.cuda.synchronize()
        again = time.perf_counter()
        self._flush.sum()
        torch.cuda.synchronize()
        return 1 + int(SPARE * (queued - start) / (time.perf_counter() - again))

    def _wall_ms(self, step: AnyStep) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(WALL_STEPS):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / WALL_STEPS


def measure(
    name: str, mode: str, device: torch.device, options: argparse.Namespace
) -> tuple[dict[str, Any], hft.Report]:
    """A row of the table, and what optimize says."""
    part, dtype, kinds = PARTS[name], DTYPES[options.dtype], mode.split("+")
    lengths = part.cpu if device.type == "cpu" else part.gpu
    autocast = dtype if "autocast" in kinds else None
    torch.manual_seed(0)
    model = part.make(options.source).to(device, torch.float32 if autocast else dtype).train()
    x = torch.randn(lengths, device=device).to(dtype)
    if "channels_last" in kinds and x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimized = copy.deepcopy(model)
    start = time.perf_counter()
    with torch.autocast(device.type, autocast, enabled=autocast is not None):
        made = hft.optimize(
            optimized, (x.clone().requires_grad_(part.wants_input),), seconds=options.race_seconds,
            find_mode=options.find_mode, tune=options.tune, whole_step="graphed" not in kinds,
        )  # fmt: skip
    took = time.perf_counter() - start
    if "compiled" in kinds:
        torch.compiler.reset()
        for one in (model, optimized):
            one.compile(fullgraph=True)
    models = {"torch": model, "hipfind": optimized}
    eager = {which: Step(one, x, part.wants_input, autocast) for which, one in models.items()}
    steps: dict[str, AnyStep] = {which: Graphed(one) if "graphed" in kinds else one for which, one in eager.items()}
    wrong = errors(steps, eager["torch"], torch.float64 if device.type == "cpu" else torch.float32)
    times = Clock(device).race(steps, options.seconds)
    (torch_ms, torch_wall), (ours_ms, ours_wall) = times["torch"], times["hipfind"]
    row = {
        "part": name, "mode": mode, "input": "x".join(map(str, lengths)), "dtype": options.dtype,
        "torch device ms": torch_ms, "hipfind device ms": ours_ms, "gain": torch_ms / ours_ms,
        "torch wall ms": torch_wall, "hipfind wall ms": ours_wall, "wall gain": torch_wall / ours_wall,
        "swapped": f"{len(made.changed)} of {len(made.decisions)}", "error": wrong["hipfind"],
        "torch error": wrong["torch"], "optimize s": took,
    }  # fmt: skip
    return row, made


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--only", default="", help=f"parts, by commas, of {', '.join(PARTS)}")
    parser.add_argument("--device", default="cuda" if on_gpu else "cpu")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16" if on_gpu else "fp32")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the race of each part")
    parser.add_argument("--race-seconds", type=float, default=0.3, help="for each direction's race in optimize")
    parser.add_argument("--find-seconds", type=float, default=3.0, help="for measuring in each Find")
    parser.add_argument("--find-mode", default="hybrid")
    parser.add_argument("--tune", action="store_true", help="search perf configs, too")
    parser.add_argument("--db", default="", help="perf DB to use and keep; default: a new one")
    parser.add_argument("--modes", default="plain", help="by commas; a mode is kinds joined by +, see above")
    has_transformers = importlib.util.find_spec("transformers") is not None
    parser.add_argument(
        "--source", choices=["transformers", "timm"], default="transformers" if has_transformers else "timm"
    )
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def main() -> None:
    options = parse()
    device = torch.device(options.device)
    if device.type == "cpu" and not PATIENT.keys() <= os.environ.keys():
        os.environ.update(PATIENT)
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.torch_models", *sys.argv[1:]])
    rows, texts = [], []
    with tempfile.TemporaryDirectory() as home:
        # In the environment, because the gradients of a GPU's tensors are made in threads of torch's own.
        os.environ["HIPFIND_USER_DB_PATH"] = options.db or home + "/bench.db"
        os.environ["HIPFIND_FIND_TIME_LIMIT_MS"] = str(int(options.find_seconds * 1e3))
        settings.reload()
        torch.backends.cudnn.benchmark = True
        names = [name for name in PARTS if name in options.only.split(",") or not options.only]
        for name, mode in itertools.product(names, options.modes.split(",")):
            try:
                row, made = measure(name, mode, device, options)
            except (HipfindError, RuntimeError, ImportError) as error:
                print(f"{name}, {mode}: {type(error).__name__}: {error}", flush=True)
                continue
            rows.append(row)
            texts.append(f"{name}, {mode}:\n\n```\n{made}\n```")
            print("  ".join(f"{key}={report.cell(value)}" for key, value in row.items()), f"\n{made}\n", flush=True)
            write(rows, texts, device, options)  # after each part: a run may be ended by its machine


def write(rows: list[dict[str, Any]], texts: list[str], device: torch.device, options: argparse.Namespace) -> None:
    kind = "host" if device.type == "cpu" else "hip" if torch.version.hip else "cuda"
    ours = get_device(kind)
    versions = {"torch": torch.__version__, "hipfind": hipfind.__version__, "models": options.source}
    if torch.backends.cudnn.is_available():
        versions["cudnn"] = str(torch.backends.cudnn.version())
    if importlib.util.find_spec(options.source) is not None:
        versions[options.source] = importlib.import_module(options.source).__version__
    facts = report.machine({"device": ours.target.name, **ours.environment()}, versions)
    notes = "A training step (forward, backward, all gradients); medians of interleaved rounds. See the script."
    out = (
        options.out or pathlib.Path(__file__).parent / "results" / f"torch_models_{'host' if kind == 'host' else 'gpu'}"
    )
    report.write(out, "Models before and after hipfind.torch.optimize", facts, rows, notes)
    with out.with_suffix(".md").open("a") as file:
        file.write("\n\n".join(["", *texts]) + "\n")


if __name__ == "__main__":
    main()
