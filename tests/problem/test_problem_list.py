"""Lists of problems: every form, told apart by content, with the place of whatever cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.problem.conv import DIRECTIONS, ConvProblem
from hipfind.problem.driver import to_command
from hipfind.problem.problem_list import ProblemList, read_list
from hipfind.problem.upsample import UpsampleProblem
from tests.helpers.shared import needs_shared, shared_dir
from tests.helpers.strategies import conv_problems

PATCHES = ConvProblem.create("fwd", (9500, 3, 14, 14), (1280, 3, 14, 14), stride=14, dtype="bf16")
RESIZED = UpsampleProblem.create("bwd", (4, 8, 16, 16), (4, 8, 32, 32), align_corners=True)
COMMAND = to_command(PATCHES)
MIOPEN_KEY = PATCHES.miopen_key()


def keys(found: ProblemList) -> list[str]:
    return [one.problem.key() for one in found.problems]


def messages(found: ProblemList) -> list[str]:
    return [f"{one.where}: {one.error}" for one in found.errors]


@pytest.mark.parametrize(
    "line",
    [
        COMMAND,
        COMMAND.replace("./bin/MIOpenDriver", "hipfind"),
        COMMAND.removeprefix("./bin/MIOpenDriver "),
        f"MIOpen(HIP): Command [LogCmdConvolution] {COMMAND}",
        f"[1,3]<stdout>:MIOpen(HIP): Command [LogCmdFindConvolution] {COMMAND}\r",
        MIOPEN_KEY,
        f"{MIOPEN_KEY}=GemmFwdRest:1.86,0,miopenConvolutionFwdAlgoGEMM;Other:2=3,0,x",
        PATCHES.key(),
        f"  {PATCHES.key()}  ",
        f"- {PATCHES.key()}",
        f"- {COMMAND}",
        f"problems: ['{MIOPEN_KEY}']",
        "[{direction: fwd, x: [9500, 3, 14, 14], w: [1280, 3, 14, 14], stride: 14, dtype: bf16}]",
        "conv:\n  - {name: seed, n: 9500, c: 3, in: [14, 14], k: 1280, filter: [14, 14], stride: [14, 14], pad: [0, 0],"
        " dilation: [1, 1], groups: 1, direction: fwd, dtype: bf16}",
        "---\ndefaults: {directions: [fwd], dtypes: [bf16]}\nproblems:\n- n: 9500\n  c: 3\n  in: [14, 14]\n  k: 1280\n"
        "  filter: [14, 14]\n  stride: 14\n",
    ],
)
def test_every_form_of_one_problem(line: str) -> None:
    for text in (line, f"# a comment: with a colon\n\n{line}\n"):
        found = read_list(text, "list")
        assert messages(found) == []
        assert keys(found) == [PATCHES.key()]


@pytest.mark.parametrize(
    "line",
    [
        RESIZED.key(),
        f"[{RESIZED.key()}]",
        "- {x: [4, 8, 16, 16], scales: 2, align_corners: true}",
        "upsample:\n- {n: 4, c: 8, in: [16, 16], out: [32, 32], align_corners: true}",
        "upsample_bilinear2d_backward:\n- {n: 4, c: 8, in: [16, 16], out: [32, 32], align_corners: true}",
        "defaults: {directions: [fwd, bwd], dtype: fp32}\nproblems:\n- {operation: upsample, x: [4, 8, 16, 16],"
        " y: [4, 8, 32, 32], align_corners: true}",
    ],
)
def test_upsampling_problems(line: str) -> None:
    found = read_list(line, "list")
    assert messages(found) == []
    assert keys(found) == [RESIZED.key()]


def test_an_upsampling_may_ask_for_both_directions() -> None:
    text = "upsample:\n- {n: 4, c: 8, in: [16, 16], out: [32, 32], align_corners: true, directions: [fwd, bwd]}"
    forward = UpsampleProblem.create("fwd", (4, 8, 16, 16), (4, 8, 32, 32), align_corners=True)
    for one in (text, f"- {forward.key()}\n- {RESIZED.key()}", "\n".join((forward.key(), RESIZED.key()))):
        found = read_list(one, "x")
        assert (keys(found), found.errors) == ([forward.key(), RESIZED.key()], [])


@given(conv_problems())
def test_any_key_is_read_in_a_line_and_in_yaml(problem: ConvProblem) -> None:
    for text in (problem.key(), f"- '{problem.key()}'"):
        assert keys(read_list(text, "x")) == [problem.key()]


def test_a_file_of_lines_may_mix_them_and_says_where_each_stands() -> None:
    text = "\n".join(["# problems", COMMAND, "", RESIZED.key(), MIOPEN_KEY, "./bin/MIOpenDriver conv -n 4 -F 0"])
    found = read_list(text, "layers.txt")
    assert [one.where for one in found.problems] == [f"layers.txt:{line}" for line in (2, 4, 5, 6, 6, 6)]
    assert [one.problem.direction for one in found.problems[3:]] == list(DIRECTIONS)
    assert [one.where for one in found.unique()] == [f"layers.txt:{line}" for line in (2, 4, 6, 6, 6)]


def test_problems_that_are_one_in_canonical_form_are_listed_once() -> None:
    transposed = ConvProblem.create("fwd", (2, 4, 5, 5), (4, 3, 3, 3), mode="transpose")
    found = read_list(f"{transposed.key()}\n{transposed.canonical().key()}", "x")
    assert (len(found.problems), len(found.unique())) == (2, 1)


def test_what_cannot_be_read_is_named_with_its_line_and_the_rest_goes_on() -> None:
    bad = [
        "hello",
        "./bin/MIOpenDriver conv -n x",
        "conv-fwd-n1",
        "./bin/MIOpenDriver pool -n 1",
        "3-8-8=x",
        "convfp8 -n 1",
    ]
    found = read_list("\n".join([*bad, COMMAND]), "list.txt")
    assert keys(found) == [PATCHES.key()]
    assert [one.where for one in found.errors] == [f"list.txt:{line}" for line in range(1, 7)]
    for message, part in zip(
        messages(found),
        ("MIOpenDriver command, a key", "--batchsize (-n)", "looks like conv-", "base argument", "looks like", "fp8"),
        strict=True,
    ):
        assert part in message


def test_a_logs_other_lines_are_passed_over() -> None:
    log = f"""Epoch: 1
MIOpen(HIP): Info [get_device_name] Raw device name: gfx942
MIOpen(HIP): Command [LogCmdPooling] ./bin/MIOpenDriver pool -W 14 -H 14
loss: 0.5 - {{unbalanced
MIOpen(HIP): Command [LogCmdConvolution] {COMMAND}
MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n x
\x00\x1b[0m binary
"""
    found = read_list(log, "train.log")
    assert keys(found) == [PATCHES.key()]
    (message,) = messages(found)
    assert message.startswith("train.log:6: --batchsize (-n) needs a whole number")


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("conv:\n- {n: 1, c: 3, k: 8, filter: [1, 1]}", 2, "in is missing"),
        ("- {x: [1, 3, 8, 8]}", 1, "x and w, or n, c, in, k, filter"),
        ("- {x: [1, 3, 8, 8], w: [8, 3, 1, 1], k: 8}", 1, "x and w, or n, c, in, k, filter"),
        ("- {x: 5, w: [8, 3, 1, 1]}", 1, "x must be whole numbers (got 5)"),
        ("- {x: [1, 3, 8, 8], w: [8, 4, 1, 1]}", 1, "w must be [K, C/groups"),
        ("- {n: 1, c: 3, in: 8, k: 8, filter: [1, 1]}", 1, "in is a list"),
        ("- {n: 1, c: 3, in: [8, 8], k: 8, filter: [1, 1], groups: 2}", 1, "divisible by groups"),
        ("- {n: 1, c: 3, in: [8, 8], k: 8, filtr: [1, 1]}", 1, "did you mean filter?"),
        ("- {operation: pool, n: 1}", 1, "unknown operation (got pool); known: conv, upsample"),
        ("- {x: [1, 3, 8, 8], w: [8, 3, 1, 1], dtype: fp32, dtypes: [fp16]}", 1, "not both"),
        ("- {x: [1, 3, 8, 8], w: [8, 3, 1, 1], dtypes: fp16}", 1, "dtypes is a list"),
        ("- {x: [1, 3, 8, 8], w: [8, 3, 1, 1], layout: NDHWC}", 1, "layout"),
        ("- {x: [1, 3, 8, 8], w: [8, 3, 1, 1], direction: up}", 1, "direction"),
        ("- {x: [1, 3, 8, 8], w: [8, 3, 1, 1], deterministic: 1}", 1, "true or false"),
        ("- {x: [1, 3, 8, 8], y: [1, 3, 9, 9], in: [8, 8]}", 1, "x and y, or n, c, in, out"),
        ("- {operation: upsample, x: [1, 3, 8, 8]}", 1, "dy or a scale"),
        ("- 5", 1, "a mapping of fields, a key or a driver command"),
        ("-\n- {}", 1, "a mapping of fields"),
        ("- 2026-99-99", 1, "not plain data"),
        ("- &a [*a]", 1, "not plain data"),
        ("conv:\n- {n: 1\n", 3, "not YAML"),
        ("a: b: c", 1, "not YAML"),
        ("conv: {n: 1}", 1, "a section is a list of problems"),
        ("convs:\n- {}", 1, "known: defaults, problems, conv"),
        ("conv: []\ndefaults: {stride: 2}", 2, "legal: direction, dtype, layout"),
    ],
)
def test_yaml_that_breaks_a_rule(text: str, where: int, part: str) -> None:
    (message,) = [one for one in messages(read_list(text, "list.yaml")) if part in one]
    assert message.startswith(f"list.yaml:{where}: ")


def test_an_item_that_cannot_be_read_leaves_the_others() -> None:
    found = read_list(f"problems:\n- {{n: 1}}\n- {PATCHES.key()}\n- hello\n- {RESIZED.key()}", "x")
    assert keys(found) == [PATCHES.key(), RESIZED.key()]
    assert [one.where for one in found.errors] == ["x:2", "x:4"]


def test_plural_fields_make_every_combination_and_an_items_own_field_counts_before_the_default() -> None:
    found = read_list(
        """
defaults: {dtypes: [fp16, bf16], layouts: [channels_first, channels_last]}
conv:
- {n: 1, c: 2, in: [4, 4], k: 3, filter: [1, 1], directions: [fwd, bwd]}
- {n: 1, c: 2, in: [4, 4, 4], k: 3, filter: [1, 1, 1], direction: fwd, dtype: fp32}
- {n: 1, c: 2, in: [4, 4], k: 4, filter: [1, 1], groups: 2, mode: trans, direction: fwd, dtype: fp32, layout: NCHW}
""",
        "x",
    )
    assert messages(found) == []
    two = [(one.problem.direction, *one.problem.key().split("-")[12:14]) for one in found.problems[:8]]
    assert two == [(d, t, f) for d in ("fwd", "bwd") for t in ("fp16", "bf16") for f in ("NCHW", "NHWC")]
    assert [key.split("-")[12:14] for key in keys(found)[8:10]] == [["fp32", "NCDHW"], ["fp32", "NDHWC"]]
    assert found.problems[10].problem == ConvProblem.create(
        "fwd", (1, 2, 4, 4), (2, 2, 1, 1), groups=2, mode="transpose"
    )  # fmt: skip


@given(st.text(max_size=200) | st.text("-[]{}:, ax1\n#=&*'\"|>!%", max_size=60))
def test_any_text_is_read_or_named(text: str) -> None:
    found = read_list(text, "x")
    assert all(str(error) and where.startswith("x") for where, error in found.errors)


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 9) | st.floats() | st.sampled_from(["fp16", "NHWC", "bwd", "x", ""]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
_FIELD_NAMES = ("n", "c", "in", "k", "filter", "x", "w", "y", "stride", "pad", "dilation", "groups", "mode", "alpha",
                "direction", "directions", "dtype", "dtypes", "layout", "layouts", "out", "x", "y", "scales",
                "align_corners", "x_strides", "output_padding", "compute", "name", "operation")  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(_FIELD_NAMES), _PLAIN, max_size=4),
    st.sampled_from(["x: [1, 3, 8, 8], w: [8, 3, 1, 1]", "n: 1, c: 3, in: [8, 8], k: 8, filter: [1, 1]",
                     "x: [1, 3, 4, 4], y: [1, 3, 8, 8]"]),
)  # fmt: skip
def test_any_value_of_a_field_is_taken_or_named(fields: dict[str, object], rest: str) -> None:
    import yaml

    text = yaml.safe_dump([{**yaml.safe_load("{" + rest + "}"), **fields}])
    found = read_list(text, "x")
    assert found.problems or found.errors


@needs_shared
def test_the_suite_and_miopens_lists_are_read_whole() -> None:
    suite = read_list((shared_dir() / "bench" / "suite.yaml").read_text(), "suite.yaml")
    assert (len(suite.problems), suite.errors) == (18 * 3 + 6, [])
    folder = shared_dir() / "data" / "miopen" / "driver_commands"
    lists = [read_list(one.read_text(), one.name) for one in sorted(folder.iterdir())]
    assert sum(len(one.problems) for one in lists) == 4897
    assert [error for one in lists for error in one.errors] == []
