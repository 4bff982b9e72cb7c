"""torch.compile takes the operators as they are: no graph break, the same results and gradients; torch's own checks."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.nn import functional as F

import hipfind.torch as hft
from hipfind.torch import conv_operators, upsample_operators
from hipfind.torch.modules import swap
from tests.torch.cases import CASES, Case, outputs

pytestmark = pytest.mark.usefixtures("fresh_compiler")
COMPILED = [case for case in CASES if case.name in ("3x3", "groups", "same", "unbatched", "3d", "transposed", "up")]
WINDOW = "2,1/1,1/1,1/1,1/0,0/1/C/{}/"


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case.name)
@pytest.mark.parametrize("channels_last", [False, True], ids=["first", "last"])
def test_whole_graphs_give_the_same(case: Case, channels_last: bool) -> None:
    def step(*tensors: torch.Tensor) -> torch.Tensor:
        return case.run(case.ours, list(tensors)).relu()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=False)
    tensors = case.tensors(torch.float64, channels_last)
    made = outputs(case, lambda *given, **_: compiled(*given), tensors)
    expected = outputs(case, lambda *given, **_: step(*given), tensors)
    for ours, other in zip(made, expected, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=0)
        assert ours.stride() == other.stride()


def test_a_graph_with_sizes_of_any_number_serves_a_second_batch() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda x: hft.conv2d(x, w, b, 2, 1), fullgraph=True, backend=backend, dynamic=True)
    w, b = torch.randn(5, 4, 3, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    for batch in (2, 3, 5):
        x = torch.randn(batch, 4, 9, 6 + batch, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), F.conv2d(x, w, b, 2, 1))
    assert len(graphs) == 1


@pytest.mark.parametrize("by_torch", [(), ("fwd",), ("bwd",)], ids=str)
def test_torchs_own_upsampling_is_left_for_the_compiler_to_fuse(by_torch: tuple[str, ...]) -> None:
    """hipfind's is one call in a graph; torch's becomes the operator that compilers know."""
    seen: list[str] = []

    def compiler(graph: torch.fx.GraphModule, _: object) -> object:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    module = torch.nn.Upsample(scale_factor=2, mode="bilinear")
    swap(module, by_torch)
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    y = torch.compile(module, fullgraph=True, backend=backend, dynamic=False)(x)
    torch.testing.assert_close(y, F.interpolate(x, scale_factor=2, mode="bilinear"))
    y.sum().backward()
    expected = "aten" if "fwd" in by_torch else "hipfind"
    assert [one.removesuffix(".default") for one in seen if "upsample" in one] == [
        f"{expected}.upsample_bilinear2d", "hipfind.upsample_bilinear2d_backward",
    ]  # fmt: skip


@pytest.mark.parametrize("layout", ["first", "last"])
def test_operators_pass_torchs_checks(layout: str) -> None:
    window = WINDOW.format(layout)
    x, w, b = (torch.randn(shape, requires_grad=True) for shape in ((2, 3, 6, 5), (4, 3, 3, 3), (4,)))
    y = conv_operators.conv_fwd(x, w, b, window)
    dy = torch.randn_like(y, requires_grad=True)
    torch.library.opcheck(conv_operators.conv_fwd, (x, w, b, window))
    torch.library.opcheck(conv_operators.conv_fwd, (x.detach(), w, None, window))
    torch.library.opcheck(conv_operators.conv_bwd, (dy, w, x.shape, window))
    torch.library.opcheck(conv_operators.conv_wrw, (dy, x, w.shape, window))


def test_upsampling_operators_pass_torchs_checks() -> None:
    x, dy = torch.randn(2, 3, 4, 5, requires_grad=True), torch.randn(2, 3, 8, 10, requires_grad=True)
    last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    for operator in (upsample_operators.upsample, upsample_operators.upsample_by_torch):
        for given, bwd_by_torch in ((x, False), (x, True), (last, False), (x.detach(), False)):
            torch.library.opcheck(operator, (given, [8, 10], False, 2.0, 2.0, bwd_by_torch))
    for is_channel_last in (False, True):
        rest = ([4, 5], False, 2.0, 2.0, is_channel_last)
        torch.library.opcheck(upsample_operators.upsample_backward, (dy, *rest))
