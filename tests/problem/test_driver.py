"""MIOpenDriver command lines in every form in which users, logs and lists hold them; lines written from problems."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given

from hipfind.errors import ParseError, ProblemError
from hipfind.problem import ConvProblem
from hipfind.problem.driver import DriverCommand, parse_command, to_command
from hipfind.problem.driver_flags import FLAGS, PROBLEM_FLAGS
from tests.helpers.shared import needs_shared, shared_dir
from tests.helpers.strategies import conv_problems

SEED = "conv -n 9500 -c 3 -H 14 -W 14 -k 1280 -y 14 -x 14 -u 14 -v 14 -F 2"
SEED_PROBLEM = ConvProblem.create("bwd", (9500, 3, 14, 14), (1280, 3, 14, 14), stride=14)


def only(command: str) -> ConvProblem:
    (problem,) = parse_command(command).problems()
    return problem


# what a line means ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        SEED,
        "./bin/MIOpenDriver " + SEED,
        "/opt/rocm/bin/MIOpenDriver " + SEED + "\n",
        "C:\\rocm\\bin\\MIOpenDriver.exe " + SEED,
        "hipfind " + SEED,
        "python -m hipfind " + SEED,
        "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver " + SEED + " -t 1",
        "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver " + SEED + " -m conv -g 1 -t 1 -S 97",
        "$ MIOPEN_FIND_MODE=1 MIOPEN_LOG_LEVEL=6 ./bin/MIOpenDriver " + SEED,
        "user@node:~# it's slow: ./bin/MIOpenDriver " + SEED,
        "cd MIOpenDriver && ./MIOpenDriver " + SEED,
        SEED.replace(" -n 9500", " -n9500").replace(" -H 14", " -H=14"),
        "conv --batchsize 9500 --in_channels=3 --in_h 14 --in_w=14 --out_channels 1280 --fil_h 14 --fil_w 14 "
        "--conv_stride_h 14 --conv_stride_w 14 --forw 2",
        SEED.replace("-F 2", "-F 1 -F 2"),
        SEED + " --conv_stride_d 0 --pad_d 7 --in_d 1 --fil_d 99 --dilation_d 0 --trans_output_pad_d 3",
        SEED + " --mode conv --pad_mode default --bias 0 --tensor_vect 0 --in_cast_type -1 --trans_output_pad_h 1",
        SEED.replace("conv", "convfp32"),
    ],
)
def test_one_problem_in_many_forms(line: str) -> None:
    assert parse_command(line).problems() == [SEED_PROBLEM]
    assert ConvProblem.from_driver_command(line) == [SEED_PROBLEM]


def test_words_are_taken_as_well_as_a_line() -> None:
    words = SEED.split()
    assert parse_command(words) == parse_command(["./bin/MIOpenDriver", *words]) == parse_command(SEED)


@pytest.mark.parametrize(
    ("forw", "directions"),
    [
        (0, ["fwd", "bwd", "wrw"]), (1, ["fwd"]), (2, ["bwd"]), (3, ["fwd", "bwd"]), (4, ["wrw"]), (5, ["fwd", "wrw"]),
        (6, ["bwd", "wrw"]), (7, ["fwd", "bwd", "wrw"]),
    ],
)  # fmt: skip
def test_directions(forw: int, directions: list[str]) -> None:
    problems = parse_command(f"conv -F {forw}").problems()
    assert [problem.direction for problem in problems] == directions


def test_defaults_are_miopens() -> None:
    expected = ConvProblem.create("fwd", (100, 3, 32, 32), (32, 3, 3, 3))
    assert only("conv -F 1") == expected
    assert only("conv -F 1 -_ 3") == ConvProblem.create("fwd", (100, 3, 32, 32, 32), (32, 3, 3, 3, 3))


@pytest.mark.parametrize(
    ("base", "dtype"),
    [
        ("conv", "fp32"), ("convfp16", "fp16"), ("convbfp16", "bf16"), ("convfp64", "fp64"),
        ("convint8", ("int8", "int8", "int32")),
    ],
)  # fmt: skip
def test_bases(base: str, dtype: Any) -> None:
    expected = ConvProblem.create("fwd", (100, 3, 32, 32), (32, 3, 3, 3), dtype=dtype)
    assert only(f"{base} -F 1") == expected
    assert parse_command(base).problems()[0] == expected
    assert len(parse_command(base).problems()) == (1 if base == "convint8" else 3)


def test_odd_short_names_in_3d() -> None:
    line = (
        "conv -_ 3 -! 5 -H 9 -W 8 -@ 2 -y 3 -x 1 -# 2 -u 1 -v 3 -$ 1 -p 0 -q 2 -^ 2 -l 1 -j 1 -n 2 -c 4 -k 6 -g 2 -F 4"
    )
    expected = ConvProblem.create(
        "wrw", (2, 4, 5, 9, 8), (6, 2, 2, 3, 1), stride=(2, 1, 3), pad=(1, 0, 2), dilation=(2, 1, 1), groups=2
    )
    assert only(line) == expected
    quoted = line.replace("-!", "'-!'").replace("-$", '"-$"').replace("-#", "-\\#")
    assert only(quoted) == expected


def test_transposed() -> None:
    line = "conv -n 2 -c 6 -H 5 -W 4 -k 4 -y 3 -x 3 -u 2 -v 3 -p 1 -q 1 -m trans -Y 1 -X 2 -g 2 -F 1"
    problem = only(line)
    assert problem == ConvProblem.create(
        "fwd", (2, 6, 5, 4), (6, 2, 3, 3), stride=(2, 3), pad=1, mode="transpose", output_padding=(1, 2), groups=2
    )
    assert problem.y.lengths == (2, 4, 10, 12)
    assert only("conv -m trans -_ 3 -! 2 -H 2 -W 2 -# 2 -% 1 -c 2 -k 4 -F 2").y.lengths == (100, 4, 6, 4, 4)


@pytest.mark.parametrize(
    ("flags", "layouts"),
    [
        ("", ("NCHW", "NCHW", "NCHW")),
        ("--in_layout NHWC --fil_layout NHWC --out_layout NHWC", ("NHWC", "NHWC", "NHWC")),
        ("-I NHWC -f NHWC -O NHWC", ("NHWC", "NHWC", "NHWC")),
        ("-I nhwc -f nhwc --out_layout nhwc", ("NHWC", "NHWC", "NHWC")),
        # MIOpen logs only the layouts that are not its default, so what is missing is the default
        ("--in_layout NHWC", ("NHWC", "NCHW", "NCHW")),
        ("--in_layout NHWC --out_layout NHWC", ("NHWC", "NCHW", "NHWC")),
        ("--out_layout NCHW", ("NCHW", "NCHW", "NCHW")),
        ("-f NHWC", ("NCHW", "NHWC", "NCHW")),
        ("-_ 3 -I NDHWC -O NCDHW", ("NDHWC", "NCDHW", "NCDHW")),
    ],
)
def test_layouts(flags: str, layouts: tuple[str, str, str]) -> None:
    assert only(f"conv -F 1 {flags}").layouts == layouts


@pytest.mark.parametrize(
    ("flags", "pads", "out"),
    [
        ("-H 14 -W 15 -y 3 -x 5 -z same", (1, 2), (14, 15)),
        ("-H 14 -W 15 -y 3 -x 5 -p 7 -q 7 -z same -u 2 -v 2", (0, 2), (6, 8)),
        ("-H 224 -W 224 -y 7 -x 7 -u 2 -v 2 -z same", (2, 2), (111, 111)),
        ("-H 14 -W 14 -y 2 -x 1 -u 3 -v 3 -z same", (0, 0), (5, 5)),
        ("-H 14 -W 14 -y 3 -x 3 -p 1 -q 1 -z valid", (0, 0), (12, 12)),
        # MIOpen computes pads for plain convolutions only; others have those given
        ("-H 14 -W 14 -y 3 -x 3 -p 1 -q 2 -l 2 -z same", (1, 2), (12, 16)),
        ("-H 14 -W 14 -y 1 -x 1 -p 1 -q 2 -l 2 -z same", (0, 0), (14, 14)),
        ("-H 14 -W 14 -y 3 -x 3 -p 1 -q 2 -m trans -z valid", (1, 2), (14, 12)),
    ],
)
def test_pad_modes(flags: str, pads: tuple[int, int], out: tuple[int, int]) -> None:
    problem = only(f"conv -F 1 {flags}")
    assert problem.pad == problem.pad_end == pads
    assert problem.out_spatial == out


def test_math_type_allows_tf32_where_it_can_be_used() -> None:
    assert only("conv -F 1 -M 0").compute == "tf32"
    assert only("conv -F 1 --math_type 1").compute == ""
    assert only("convfp16 -F 1 -M 0").compute == ""


def test_run_options() -> None:
    command = parse_command("conv -i 3 -V 0 -t 1 -w 2 -s 1 -S 97 -P 0 -o 1 -N 1 -C /tmp/x")
    assert (command.iterations, command.verify, command.time, command.wall, command.search) == (3, False, True, 2, True)
    assert (command.solution, command.print_problem, command.dump_output) == (97, False, True)
    assert command.init_output_nan
    assert command.values["verification_cache"] == "/tmp/x"
    defaults = parse_command("conv")
    assert (defaults.iterations, defaults.verify, defaults.time, defaults.wall) == (10, True, False, 0)
    assert defaults.solution is None
    assert not (defaults.search or defaults.dump_output or defaults.init_output_nan)


@pytest.mark.parametrize(
    ("text", "solution"), [("-1", None), ("-7", None), ("0", 0), ("85", 85), ("GemmBwdRest", "GemmBwdRest")]
)
def test_solution(text: str, solution: int | str | None) -> None:
    assert parse_command(f"conv -S {text}").solution == solution


# what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "needs a base argument"),
        ("./bin/MIOpenDriver", "unknown base argument.*bin/MIOpenDriver|needs a base argument"),
        ("pool -n 1", "unknown base argument.*pool.*legal: conv"),
        ("covn -n 1", r"unknown base argument.*covn.*did you mean conv\?"),
        ("./bin/MIOpenDriver CBAInfer -n 1", "unknown base argument.*CBAInfer"),
        ("convfp8 -n 1", "fp8 and bf8 are not supported"),
        ("conv 14", "flags with values.*14"),
        ("conv -n 1 14", "flags with values.*14"),
        ("conv -", "flags with values"),
        ("conv -H", r"--in_h \(-H\) needs a value"),
        ("conv --in_h", r"--in_h \(-H\) needs a value"),
        ("conv --in_h=", r"--in_h \(-H\) needs a whole number.*''"),
        ("conv -H x", r"--in_h \(-H\) needs a whole number.*'x'"),
        ("conv -H 1.5", r"--in_h \(-H\) needs a whole number.*'1.5'"),
        ("conv -n -c 3", r"--batchsize \(-n\) needs a whole number.*'-c'"),
        ("conv -n " + "9" * 30, r"--batchsize \(-n\) needs a whole number"),
        ("conv --in_hh 4", r"unknown flag.*--in_hh.*did you mean --in_h\?"),
        ("conv --dilatoin_h 4", r"unknown flag.*did you mean --dilation_h\?"),
        ("conv --zzz 4", "unknown flag.*--zzz.*hipfind conv --help"),
        ("conv -Q 4", "unknown flag.*-Q"),
        ("conv -in_h 4", "two dashes.*-in_h.*write --in_h"),
        ("conv -forw=1", "two dashes.*write --forw"),
        ("conv -wall 1", "two dashes.*write --wall"),
        ("conv -F 8", r"--forw \(-F\) has no such value.*'8'.*legal: 0, 1"),
        ("conv -_ 4", r"--spatial_dim \(-_\) has no such value.*legal: 2, 3"),
        ("conv -m transpose", r"--mode \(-m\) has no such value.*legal: conv, trans"),
        ("conv -z SAME", r"--pad_mode \(-z\) has no such value.*legal: default, same, valid"),
        ("conv -I CHWN", r"--in_layout \(-I\) has no such value.*'CHWN'.*legal: NCHW"),
        ("conv -i 0", r"--iter \(-i\) must be 1 or more"),
        ("conv -g 0", r"--group_count \(-g\) must be 1 or more"),
        ("conv -b 1", r"--bias \(-b\): a bias is not part"),
        ("conv -a bias.bin", r"--in_bias \(-a\): a bias is not part"),
        ("conv -r 1", r"--pad_val \(-r\): padding is by zeros"),
        ("conv -Z 1 -L 4", r"--tensor_vect \(-Z\): vectorized layouts"),
        ("conv -L 4", r"--vector_length \(-L\): vectorized layouts"),
        ("conv -U fp8", r"--in_cast_type \(-U\): fp8 and bf8 casts"),
        ("conv --out_cast_type bf8", r"--out_cast_type \(-T\): fp8 and bf8 casts"),
        ("conv -R fp8", r"--wei_cast_type \(-R\): fp8 and bf8 casts"),
        ("conv -C 'x", "shell's words: No closing quotation"),
    ],
)
def test_lines_that_are_refused(line: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_command(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("conv -y 40", "filter is larger than the padded image"),
        ("conv -c 4 -k 6 -g 4", "--in_channels and --out_channels must be divisible by --group_count"),
        ("conv -c 4 -k 5 -g 2 -m trans", "must be divisible by --group_count"),
        ("conv -m trans -Y 1", "output_padding must be 0 or more and less than the stride"),
        ("conv -u 0", "stride must be 1 or more"),
        ("conv -u 0 -z same", "stride must be 1 or more"),
        ("conv -p -1", "pad must be 0 or more"),
        ("conv -n -1", "lengths must not be negative"),
        ("conv -I NCDHW", "unknown layout for 2 spatial dimensions"),
        ("convint8 -F 2", "forward only"),
    ],
)
def test_values_that_contradict_each_other(line: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        parse_command(line).problems()


def test_a_command_made_from_values_is_checked_as_a_line_is() -> None:
    assert DriverCommand.create("conv", {"in_h": 14, "mode": "conv"}) == parse_command("conv -H 14")
    with pytest.raises(ParseError, match=r"unknown flag.*--in_hh"):
        DriverCommand.create("conv", {"in_hh": 14})
    with pytest.raises(ParseError, match=r"needs a whole number.*'None'"):
        DriverCommand.create("conv", {"in_h": None})


# the flag table -------------------------------------------------------------------------------------------------------


def test_the_table_has_miopens_names_and_defaults() -> None:
    table = {flag.long: (flag.short, flag.default) for flag in FLAGS}
    expected = """
        in_layout I|out_layout O|fil_layout f|spatial_dim _ 2|forw F 0|batchsize n 100|in_channels c 3|in_d ! 32|
        in_h H 32|in_w W 32|out_channels k 32|fil_d @ 3|fil_h y 3|fil_w x 3|conv_stride_d # 1|conv_stride_h u 1|
        conv_stride_w v 1|pad_d $ 0|pad_h p 0|pad_w q 0|pad_val r 0|dilation_d ^ 1|dilation_h l 1|dilation_w j 1|
        trans_output_pad_d % 0|trans_output_pad_h Y 0|trans_output_pad_w X 0|group_count g 1|mode m conv|
        pad_mode z default|bias b 0|iter i 10|verify V 1|verification_cache C|time t 0|wall w 0|search s 0|
        printconv P 1|dump_output o 0|in_data d|weights e|dout_data D|in_bias a|solution S -1|gpualloc G 0|
        tensor_vect Z 0|vector_length L 1|in_cast_type U -1|out_cast_type T -1|wei_cast_type R -1|
        init_output_nan N 0|tuning_policy & 0|math_type M 1|gpubuffer_check ~ 0|use_hip_graph J 0"""
    rows = [row.split() for row in expected.split("|")]
    assert {row[0]: (row[1], row[2] if len(row) > 2 else "") for row in rows} == {
        name: (short, str(default)) for name, (short, default) in table.items()
    }
    assert len({flag.short for flag in FLAGS}) == len(table) == len(FLAGS)


def test_every_default_is_legal_and_only_problem_flags_change_a_problem() -> None:
    every = " ".join(f"--{flag.long}={flag.default}" for flag in FLAGS)
    assert parse_command(f"conv {every}") == parse_command("conv")
    run = {flag.long for flag in FLAGS} - {flag.long for flag in PROBLEM_FLAGS}
    other = {flag.long: (1 if flag.kind is int else "text") for flag in FLAGS if flag.long in run}
    assert DriverCommand.create("conv", other).problems() == parse_command("conv").problems()


# lines written --------------------------------------------------------------------------------------------------------


def test_lines_have_the_form_of_miopens_log() -> None:
    assert to_command(SEED_PROBLEM) == (
        "./bin/MIOpenDriver conv -n 9500 -c 3 -H 14 -W 14 -k 1280 -y 14 -x 14 -p 0 -q 0 -u 14 -v 14 -l 1 -j 1 "
        "-m conv -g 1 -F 2 -t 1"
    )
    problem = ConvProblem.create(
        "wrw", (2, 4, 5, 9, 8), (6, 2, 2, 3, 1), stride=(2, 1, 3), groups=2, dtype="bf16", layout=("NDHWC", "", "NDHWC")
    )
    assert to_command(problem) == (
        "./bin/MIOpenDriver convbfp16 -n 2 -c 4 --in_d 5 -H 9 -W 8 -k 6 --fil_d 2 -y 3 -x 1 --pad_d 0 -p 0 -q 0 "
        "--conv_stride_d 2 -u 1 -v 3 --dilation_d 1 -l 1 -j 1 --spatial_dim 3 --in_layout NDHWC --out_layout NDHWC "
        "-m conv -g 2 -F 4 -t 1"
    )


@given(conv_problems(packed=True, asymmetric_pads=False, attributes=True))
def test_round_trip(problem: ConvProblem) -> None:
    problem = dataclasses.replace(problem, deterministic=False)
    assert parse_command(to_command(problem)).problems() == [problem]


def test_int8_round_trip() -> None:
    problem = ConvProblem.create("fwd", (2, 4, 5, 5), (8, 4, 3, 3), dtype=("int8", "int8", "int32"))
    assert parse_command(to_command(problem)).problems() == [problem]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad": ((0, 1), (0, 0))}, "pads that differ"),
        ({"alpha": 2.0}, "alpha and beta.*alpha 2.0"),
        ({"beta": 1.0}, "alpha and beta.*beta 1.0"),
        ({"deterministic": True}, "deterministic"),
        ({"x_strides": (200, 50, 5, 1)}, "no layout name for x"),
        ({"dtype": ("int8", "int8", "fp32")}, "another output than int32.*y fp32"),
    ],
)
def test_what_a_line_cannot_say(changes: dict[str, Any], message: str) -> None:
    problem = ConvProblem.create(**{"direction": "fwd", "x": (2, 4, 5, 5), "w": (8, 4, 3, 3), **changes})
    with pytest.raises(ProblemError, match=message):
        to_command(problem)


@needs_shared
def test_miopens_lists_of_model_layers() -> None:
    count = 0
    for path in sorted((shared_dir() / "data" / "miopen" / "driver_commands").glob("*.txt")):
        for line in path.read_text().splitlines():
            (problem,) = parse_command(line).problems()
            words = dict(zip(line.split()[2::2], line.split()[3::2], strict=True))
            names = ("--batchsize", "--in_channels", "--in_h", "--in_w")
            assert problem.x.lengths == tuple(int(words[name]) for name in names)
            if count % 10 == 0:
                assert parse_command(to_command(problem)).problems() == [problem]
            count += 1
    assert count == 4897
