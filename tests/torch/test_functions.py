"""Values, gradients, layouts and signatures of hipfind.torch's functions, beside torch's own."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

import hipfind as hf
import hipfind.torch as hft
from hipfind.errors import ArrayError, ProblemError
from hipfind.torch import conv_operators, upsample_operators
from tests.torch.cases import CASES, Case, check, outputs

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel"),  # torch's, on its own copy
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),  # of torch by torch
]
BY_NAME = {case.name: case for case in CASES}
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every_case
@pytest.mark.parametrize("channels_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_results_and_gradients_are_torchs(
    case: Case, dtype: torch.dtype, channels_last: bool, where: torch.device
) -> None:
    tensors = case.tensors(dtype, channels_last, where)
    exact = [one.detach().cpu().double().requires_grad_() for one in tensors]
    made, expected = outputs(case, case.ours, tensors), outputs(case, case.theirs, exact)
    check(made[0], expected[0], dtype, roundings=1 + (len(tensors) == 3))
    for gradient, exact_gradient in zip(made[1:3], expected[1:3], strict=True):
        check(gradient, exact_gradient, dtype)
    if len(tensors) == 3:  # summed by torch
        torch.testing.assert_close(made[3].cpu().double(), expected[3], rtol=0.02, atol=0.02)


@every_case
@pytest.mark.parametrize("channels_last", [False, True], ids=["first", "last"])
def test_results_lie_as_torchs_and_gradients_as_their_tensors(
    case: Case, channels_last: bool, where: torch.device
) -> None:
    tensors = case.tensors(torch.float32, channels_last, where)
    made = outputs(case, case.ours, tensors)
    expected = [case.run(case.theirs, tensors), *tensors]
    for ours, other in zip(made, expected, strict=True):
        assert ours.shape == other.shape
        strides = zip(ours.stride(), other.stride(), ours.shape, strict=True)
        assert ours.numel() == 0 or all(a == b for a, b, length in strides if length > 1)


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "no_batch"], ids=lambda case: case.name)
def test_first_and_second_derivatives(case: Case, where: torch.device) -> None:
    tensors = case.tensors(torch.float64, where=where)
    assert gradcheck(lambda *given: case.run(case.ours, list(given)), tensors, fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(lambda *given: case.run(case.ours, list(given)), tensors, fast_mode=True)


@pytest.mark.parametrize("name", ["3x3", "3d", "transposed", "up"])
def test_strided_inputs_and_gradients(name: str, where: torch.device) -> None:
    """A step of two in the last axis, transposed axes, and a gradient that is one number everywhere."""
    case = BY_NAME[name]
    plain = case.tensors(torch.float64, where=where)
    wide = torch.zeros(*plain[0].shape[:-1], 2 * plain[0].shape[-1], dtype=torch.float64, device=where)
    wide[..., ::2] = plain[0].detach()
    turned = [one.detach().transpose(-1, -2).contiguous().transpose(-1, -2) for one in plain[1:2]]
    strided = [wide[..., ::2], *turned, *(one.detach() for one in plain[2:])]
    assert not strided[0].is_contiguous()
    strided = [one.requires_grad_() for one in strided]
    made, expected = case.run(case.ours, strided), case.run(case.theirs, plain)
    torch.testing.assert_close(made, expected)
    for ours, theirs in zip(
        torch.autograd.grad(made.sum(), strided), torch.autograd.grad(expected.sum(), plain), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def _looks() -> list[torch.Tensor]:
    """Images of one size whose strides torch takes for channels last, or does not."""
    first, last = torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 6).to(memory_format=torch.channels_last)
    single = torch.randn(2, 1, 5, 6)
    return [
        first, last, first[:, ::2], last[:, ::2], last[:, :3], last[:, :, :, ::2], first[:1], last[:1], single,
        single.to(memory_format=torch.channels_last), first[:, :, :1, :1], last[:, :, :1, :1], first[:, :, :1],
        first[:, :1].expand(2, 4, 5, 6), torch.ones(()).expand(2, 4, 5, 6), first.transpose(2, 3), last.transpose(0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("index", range(len(_looks())))
def test_a_resized_image_lies_as_torchs(index: int, where: torch.device) -> None:
    """Whatever the strides; and what a compiler is told is what is made."""
    x = _looks()[index].to(where)
    made, expected = hft.upsample_bilinear2d(x, (7, 9)), F.interpolate(x, (7, 9), mode="bilinear")
    torch.testing.assert_close(made, expected)
    assert made.stride() == expected.stride()
    with torch._subclasses.FakeTensorMode() as mode:
        assert upsample_operators.upsample(mode.from_tensor(x), [7, 9], False, None, None).stride() == made.stride()


def test_torchs_gradient_of_resizing_is_not_asked_for_where_order_must_be_fixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On GPUs it is an error there."""
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    ran: list[str] = []
    theirs = upsample_operators.torch_backward
    monkeypatch.setattr(upsample_operators, "torch_backward", lambda *rest: ran.append("torch") or theirs(*rest))
    gradients = []
    for is_deterministic in (False, True):
        torch.use_deterministic_algorithms(is_deterministic)
        try:
            y = upsample_operators.resize(x, [8, 10], False, (None, None), ("bwd",))
            gradients += torch.autograd.grad(y.square().sum(), x)
        finally:
            torch.use_deterministic_algorithms(False)
    assert ran == ["torch"]
    torch.testing.assert_close(*gradients)


def test_only_gradients_that_are_asked_for_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = conv_operators.run_conv
    monkeypatch.setattr(
        conv_operators, "run_conv", lambda direction, *rest: ran.append(direction) or run(direction, *rest)
    )
    x, w = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    for x_asks, w_asks, expected in ((False, True, "wrw"), (True, False, "bwd")):
        ran.clear()
        hft.conv2d(x.clone().requires_grad_(x_asks), w.clone().requires_grad_(w_asks)).sum().backward()
        assert ran == ["fwd", expected]
    ran.clear()
    with torch.no_grad():
        assert not hft.conv2d(x, w.clone().requires_grad_()).requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(hft.conv2d(x * 1, w), F.conv2d(x, w))
    assert ran == ["fwd", "fwd"]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_of_functions() -> None:
    """Gradients for each sample, and derivatives of a single level of torch.func."""
    w, samples = torch.randn(4, 3, 3, 3, dtype=torch.float64), torch.randn(3, 1, 3, 6, 6, dtype=torch.float64)

    def each(function: Callable[..., torch.Tensor]) -> torch.Tensor:
        gradient = torch.func.grad(lambda w, x: function(x, w, None, 2, 1).square().sum())
        return torch.func.vmap(gradient, (None, 0))(w, samples)

    torch.testing.assert_close(each(hft.conv2d), each(F.conv2d))
    jacobian = torch.func.jacfwd(lambda w: hft.conv2d(samples[0], w))(w[:1])
    torch.testing.assert_close(jacobian, torch.func.jacrev(lambda w: F.conv2d(samples[0], w))(w[:1]))


def test_an_input_changed_in_place_is_noticed() -> None:
    x, w = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3, requires_grad=True)
    y = hft.conv2d(x, w)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_casts_as_torch_does(dtype: torch.dtype, where: torch.device) -> None:
    for name in ("3x3", "3d", "transposed"):
        case = BY_NAME[name]
        tensors = case.tensors(torch.float32, where=where)
        with torch.autocast(where.type, dtype):
            made, expected = case.run(case.ours, tensors), case.run(case.theirs, tensors)
            double = [one.detach().double() for one in tensors]
            assert case.run(case.ours, double).dtype is torch.float64
        assert made.dtype is expected.dtype is dtype
        rounded = [one.detach().to(dtype).double() for one in tensors]
        check(made.detach(), case.run(case.theirs, rounded), dtype, roundings=2)
        assert all(one.dtype is torch.float32 for one in torch.autograd.grad(made.sum(), tensors))
    x = torch.randn(1, 2, 3, 3, device=where, requires_grad=True)
    with torch.autocast(where.type, dtype):
        assert hft.upsample_bilinear2d(x, 6).dtype is F.interpolate(x, 6, mode="bilinear").dtype


@pytest.mark.parametrize("channels_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (4, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_operands_at_odd_addresses(
    dtype: torch.dtype, taps: int, stride: int, channels_last: bool, where: torch.device
) -> None:
    """Kernels are compiled for operands at multiples of 16 bytes, too; one element further on they must not be used."""

    def odd(*lengths: int) -> torch.Tensor:
        flat = torch.randn(math.prod(lengths) + 1, device=where).to(dtype)[1:]
        n, c, h, w = lengths
        made = flat.view(n, h, w, c).permute(0, 3, 1, 2) if channels_last else flat.view(lengths)
        assert made.data_ptr() % 16
        return made.requires_grad_()

    side = 12 // stride
    x, w, dy = odd(2, 16, 12, 12), odd(32, 16, taps, taps), odd(2, 32, side, side).detach()
    pad = taps // 2 if stride == 1 else 0
    y = hft.conv2d(x, w, None, stride, pad)
    made = [y, *torch.autograd.grad(y, (x, w), dy)]
    exact_x, exact_w = (one.detach().cpu().double().requires_grad_() for one in (x, w))
    exact_y = F.conv2d(exact_x, exact_w, None, stride, pad)
    expected = [exact_y, *torch.autograd.grad(exact_y, (exact_x, exact_w), dy.cpu().double())]
    for ours, exact in zip(made, expected, strict=True):
        check(ours.detach(), exact.detach(), dtype, longest=32 * taps * taps)


def test_a_find_changes_what_runs() -> None:
    x, w = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    problem = hf.ConvProblem.create("fwd", x.shape, w.shape)
    window = "1,1/0,0/0,0/1,1/0,0/1/C/first/"
    before = conv_operators.call_of("fwd", x, w, None, window)
    assert conv_operators.call_of("fwd", x, w, None, window) is before
    best = hf.find(problem, mode="normal").best
    assert best is not None
    after = conv_operators.call_of("fwd", x, w, None, window)
    assert after is not before
    assert (after.plan.solver_id, after.plan.choice.source) == (best.solver_id, hf.Source.USER_DB)


def test_threads_share_calls_and_get_their_own_results() -> None:
    shapes = [(2, 3, side, side) for side in (5, 6, 7, 8)]
    w = torch.randn(4, 3, 3, 3)
    failures: list[str] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for index in range(20):
            x = torch.randn(shapes[(seed + index) % 4], generator=generator, requires_grad=True)
            own = w.clone().requires_grad_()
            y = hft.conv2d(x, own, padding=1)
            made = [y, *torch.autograd.grad(y.square().sum(), (x, own))]
            y = F.conv2d(x, own, padding=1)
            expected = [y, *torch.autograd.grad(y.square().sum(), (x, own))]
            if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(made, expected, strict=True)):
                failures.append(f"thread {seed}, call {index}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_work_is_queued_on_torchs_current_stream(where: torch.device) -> None:
    """On a GPU: a stream that is busy delays the call, and what follows on the stream sees its result."""
    if where.type == "cpu":
        pytest.skip("a CPU has no streams")
    x, w = torch.zeros(8, 64, 56, 56, device=where), torch.ones(64, 64, 3, 3, device=where)
    hft.conv2d(x, w)
    stream = torch.cuda.Stream(where)
    stream.wait_stream(torch.cuda.current_stream(where))
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(1.0)
        total = hft.conv2d(x, w).sum()
    torch.cuda.synchronize(where)
    assert float(total) == 8 * 64 * 54 * 54 * 64 * 9


def test_signatures_are_torchs() -> None:
    expected = {
        hft.conv2d: "input weight bias stride padding dilation groups",
        hft.conv3d: "input weight bias stride padding dilation groups",
        hft.conv_transpose2d: "input weight bias stride padding output_padding groups dilation",
        hft.upsample_bilinear2d: "input size scale_factor align_corners recompute_scale_factor",
    }
    for function, names in expected.items():
        parameters = inspect.signature(function).parameters
        assert " ".join(parameters) == names
        assert [one.default for name, one in parameters.items() if name == "groups"] in ([1], [])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: hft.conv2d(torch.randn(1, 3, 5, 5), torch.randn(4, 2, 3, 3)), ProblemError, "w must be"),
        (lambda: hft.conv2d(torch.randn(1, 3, 2, 2), torch.randn(4, 3, 3, 3)), ProblemError, "filter is larger"),
        (lambda: hft.conv2d(torch.randn(5, 5), torch.randn(4, 2, 3, 3)), ArrayError, "3 or 4 dimensions"),
        (lambda: hft.conv2d(torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3, 3)), ProblemError, "dimensions"),
        (lambda: hft.conv2d(torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3), padding="full"), ProblemError, "full"),
        (lambda: hft.conv2d(torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3), None, 2, "same"), ProblemError, "same"),
        (lambda: hft.conv2d(torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3), stride=(1,) * 3), ProblemError, "stride"),
        (lambda: hft.conv2d(torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3).double()), ProblemError, "same float"),
        (lambda: hft.conv2d(torch.ones(1, 2, 5, 5).cfloat(), torch.ones(4, 2, 3, 3).cfloat()), ProblemError, "complex"),
        (lambda: hft.conv3d(torch.randn(1, 2, 5), torch.randn(4, 2, 3, 3, 3)), ArrayError, "4 or 5 dimensions"),
        (lambda: hft.upsample_bilinear2d(torch.randn(2, 5, 5), 3), ArrayError, "4 dimensions"),
        (lambda: hft.upsample_bilinear2d(torch.randn(1, 2, 5, 5)), ProblemError, "either size or scale_factor"),
        (lambda: hft.upsample_bilinear2d(torch.randn(1, 2, 5, 5), (3, 3, 3)), ProblemError, "size needs"),
    ],
)  # fmt: skip
def test_wrong_use_is_named(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()  # type: ignore[operator]
