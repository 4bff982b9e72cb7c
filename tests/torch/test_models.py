"""Real models, unmodified, with hipfind doing all that it can: outputs and gradients are torch's own."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping
from typing import Any

import pytest
import torch

import hipfind.torch as hft
from hipfind.problem.dtypes import DType
from hipfind.problem.tolerance import limit, relative_error
from hipfind.torch.modules import is_of_interest, swap, why_not
from tests.torch.cases import LONGEST
from tests.torch.models import MODELS, Model

pytestmark = pytest.mark.filterwarnings(
    "ignore:Attempting to run cuBLAS, but there was no current CUDA context",  # of torch's own threads
)
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
PARAMS = [pytest.param(one, id=one.name, marks=[] if one.name == "U-Net" else needs_transformers) for one in MODELS]
every_model = pytest.mark.parametrize("model", PARAMS)


def swap_all(model: torch.nn.Module) -> int:
    """Give all to hipfind that it can do, worth it or not; how many modules that are."""
    modules = [module for module in model.modules() if is_of_interest(module) and not why_not(module)]
    for module in modules:
        swap(module, ())
    return len(modules)


def call(model: torch.nn.Module, example: Any) -> torch.Tensor:
    """The model's result as one tensor."""
    made = model(**example) if isinstance(example, Mapping) else model(example)
    return made if isinstance(made, torch.Tensor) else made.last_hidden_state


def step(model: torch.nn.Module, example: Any) -> dict[str, torch.Tensor]:
    """The result and every parameter's gradient."""
    model.zero_grad()
    y = call(model, example)
    torch.manual_seed(2)
    y.backward(torch.randn(y.shape, dtype=torch.float64).to(y.device, y.dtype))
    grads = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {"output": y.detach()} | {name: one.clone() for name, one in grads.items()}


def to(example: Any, dtype: torch.dtype, where: torch.device | str = "cpu") -> Any:
    if isinstance(example, Mapping):
        return {name: to(one, dtype, where) for name, one in example.items()}
    return example.to(where, dtype if example.is_floating_point() else example.dtype)


@every_model
@pytest.mark.parametrize("channels_last", [False, True], ids=["first", "last"])
def test_outputs_and_gradients_are_torchs_to_fp64(model: Model, channels_last: bool, where: torch.device) -> None:
    theirs, example = model.make().to(where, torch.float64), to(model.example(), torch.float64, where)
    if channels_last and model.name != "Qwen2-VL":  # whose filters have five dimensions
        theirs = theirs.to(memory_format=torch.channels_last)
    ours = copy.deepcopy(theirs)
    assert swap_all(ours) == model.swapped
    made, expected = step(ours, example), step(theirs, example)
    assert made.keys() == expected.keys() and len(made) > 5
    scale = max(float(one.abs().max()) for one in expected.values())
    for name, one in made.items():
        error = float((one - expected[name]).abs().max())
        assert error <= 1e-10 * scale, f"{name}: {error} of {scale}"


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_errors_are_as_torchs(model: Model, dtype: torch.dtype, where: torch.device) -> None:
    """Of all gradients and the output together, against the same model in fp64 with the same, rounded numbers.

    A bias is added to a rounded result, as torch does on GPUs: two roundings where torch's CPU operators have one, so
    up to sqrt(2) times their error. Where torch's is smaller than the limit of one sum of products, that limit holds.
    """
    theirs, example = model.make().to(where, dtype), to(model.example(), dtype, where)
    exact_model, ours = copy.deepcopy(theirs).double(), copy.deepcopy(theirs)
    swap_all(ours)
    exact, made, expected = (
        step(exact_model, to(example, torch.float64, where)),
        step(ours, example),
        step(theirs, example),
    )
    for kinds in (["output"], [name for name in exact if name != "output"]):
        whole, *others = (
            torch.cat([one[name].flatten().double().cpu() for name in kinds]).numpy() for one in (exact, made, expected)
        )
        error, torchs = (relative_error(one, whole) for one in others)
        assert error <= max(1.5 * torchs, limit(DType.parse(dtype), LONGEST)), (error, torchs)


@every_model
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_models_have_one_graph_and_the_same_result(model: Model, where: torch.device) -> None:
    """Qwen2-VL's own code reads its grid's numbers, which no graph can hold: only its patch embedding is compiled."""
    ours, example = model.make().to(where, torch.float64), to(model.example(), torch.float64, where)
    swap_all(ours)
    part: torch.nn.Module = ours
    if model.name == "Qwen2-VL":
        part, example = ours.patch_embed, example["hidden_states"]
    expected = step(part, example)
    made = step(torch.compile(part, fullgraph=True, backend="aot_eager"), example)
    assert len(made) >= len(expected)  # a graph has gradients of zero where eager mode has none
    for name, one in made.items():
        other = expected.get(name.removeprefix("_orig_mod."), torch.zeros_like(one))
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@every_model
def test_optimize_and_undo_leave_the_model_as_it_was(model: Model) -> None:
    module, example = model.make(), model.example()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    kinds = [type(one) for one in module.modules()]
    parameters = list(module.parameters())
    random = torch.get_rng_state()
    report = hft.optimize(module, example, seconds=0.001, find_mode="fast")
    assert torch.equal(torch.get_rng_state(), random)
    assert len(report.changed) + len(report.left) == model.swapped
    assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True))
    after = module.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], one) for name, one in before.items())
    report.undo()
    assert [type(one) for one in module.modules()] == kinds
