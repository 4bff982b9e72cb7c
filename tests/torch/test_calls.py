"""What a call does around its plan: streams, workspaces, copies, and tensors of several devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hipfind.torch as hft
from hipfind import settings
from hipfind.errors import ArrayError, NoSolutionError
from hipfind.find.report import Choice, Source
from hipfind.torch import calls, conv_operators, plain

WINDOW = "1,1/1,1/1,1/1,1/0,0/1/C/{}/"


def test_on_a_gpu_plans_run_on_torchs_stream_with_torchs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's call, told that its tensors lie on the GPU number 1."""
    x, w = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    call = conv_operators.call_of("fwd", x, w, None, WINDOW.format("first"))
    ran: list[Any] = []
    monkeypatch.setattr(call.plan, "run", lambda *arguments: ran.append(arguments), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 70 + index, raising=False)
    call._index = 1
    for workspace in (0, 4096):
        call._workspace = workspace
        out = call(x, w)
        addresses, output, room, stream = ran.pop()
        assert (addresses, output, stream) == ([x.data_ptr(), w.data_ptr()], out.data_ptr(), 71)
        assert bool(room) == bool(workspace)


@pytest.mark.parametrize(("strided_ms", "is_copied"), [(0.001, False), (50.0, True), (None, True)])
def test_inputs_are_copied_where_that_is_expected_to_be_faster(
    monkeypatch: pytest.MonkeyPatch, strided_ms: float | None, is_copied: bool
) -> None:
    """An image with channels last and a filter without; ``strided_ms``: what the problem takes as they lie."""

    def immediate(problem: Any, _: Any) -> list[Choice]:
        time_ms = 0.5 if problem.is_packed and len(set(problem.layouts)) == 1 else strided_ms
        return [] if time_ms is None else [Choice("Some", time_ms, 0, Source.WTI)]

    monkeypatch.setattr(calls, "immediate", immediate)
    x, w = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last), torch.randn(4, 3, 3, 3)
    call = conv_operators.call_of("fwd", x, w, None, WINDOW.format("last"))
    layouts = call.plan.problem.layouts
    assert layouts == (("NHWC",) * 3 if is_copied else ("NHWC", "NCHW", "NHWC"))
    y = call(x, w)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1))
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_packed_inputs_are_never_copied() -> None:
    for layout, format in (("first", torch.contiguous_format), ("last", torch.channels_last)):
        x, w = (torch.randn(shape).to(memory_format=format) for shape in ((2, 3, 6, 6), (4, 3, 3, 3)))
        assert conv_operators.call_of("fwd", x, w, None, WINDOW.format(layout))._format is None


def test_what_no_solver_takes_is_an_error_with_its_name() -> None:
    with settings.override(find_only_solver=("UpsampleBwdGather",)), pytest.raises(NoSolutionError, match="on host"):
        hft.conv2d(torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3))


def test_tensors_of_two_devices_are_refused() -> None:
    x, w = torch.randn(1, 2, 5, 5), torch.empty(3, 2, 3, 3, device="meta")
    with pytest.raises(ArrayError, match=r"on one device \(got cpu, meta\)"):
        conv_operators.run_conv("fwd", x, w, None, None, WINDOW.format("first"))


def test_plain_tensors_are_told_from_others() -> None:
    x, w = torch.randn(1, 2, 5, 5), torch.nn.Parameter(torch.randn(3, 2, 3, 3))
    assert plain.are_plain(x, w)
    negative = torch.randn(1, 2, 5, 5, dtype=torch.complex64).conj().imag
    assert negative.is_neg() and not plain.are_plain(negative, w)
    torch.testing.assert_close(
        hft.conv2d(negative, w), torch.nn.functional.conv2d(negative.resolve_neg().clone(), w), rtol=1e-4, atol=1e-4
    )
    with torch.inference_mode():
        assert not plain.are_plain(x * 1, w)
    with torch._subclasses.FakeTensorMode() as mode:
        assert not plain.are_plain(mode.from_tensor(x), mode.from_tensor(x))
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert not plain.are_plain(x, w)
    with torch.overrides.TorchFunctionMode():
        assert not plain.are_plain(x, w)
    assert plain.are_plain(x, w)
