"""CUDA graphs: a training step by hipfind is captured once and replayed on new numbers."""

from __future__ import annotations

import pytest
import torch

from tests.torch.cases import CASES, Case

CAPTURED = [case for case in CASES if case.name in ("3x3", "patches", "point", "depthwise", "3d", "transposed", "up")]
WARM_UPS = 3


@pytest.mark.parametrize("case", CAPTURED, ids=lambda case: case.name)
def test_a_captured_step_replays_on_new_numbers(case: Case, where: torch.device) -> None:
    if where.type == "cpu":
        pytest.skip("a CPU has no graphs")
    tensors = case.tensors(torch.float32, where=where)
    dy = torch.randn_like(case.run(case.theirs, tensors))

    def step() -> list[torch.Tensor]:
        y = case.run(case.ours, tensors)
        return [y.detach(), *torch.autograd.grad(y, tensors, dy)]

    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(where)
    side.wait_stream(torch.cuda.current_stream(where))
    with torch.cuda.stream(side):  # plans are made and kernels compiled here
        for _ in range(WARM_UPS):
            step()
    torch.cuda.current_stream(where).wait_stream(side)
    with torch.cuda.graph(graph):
        made = step()
    with torch.no_grad():
        for tensor in (*tensors, dy):
            tensor.copy_(torch.randn_like(tensor))
        for one in made:
            one.fill_(float("nan"))
    graph.replay()
    expected = step()
    assert len(made) == len(expected) > 1
    for ours, other in zip(made, expected, strict=True):
        torch.testing.assert_close(ours, other)
