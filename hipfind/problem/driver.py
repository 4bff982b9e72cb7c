"""MIOpenDriver's command lines for convolutions, read into problems and written from them.

Read are lines as users type them, as MIOpen logs them (``MIOpen(HIP): Command [LogCmdConvolution]
./bin/MIOpenDriver conv -n ...``, with a shell prompt or variables before the program's name) and as its lists of model
layers hold them. A line means here the problem that it means to MIOpenDriver; what hipfind cannot do is refused by
the flag's name. Source: MIOpen's ``driver/conv_driver.hpp``, ``driver/InputFlags.cpp``, ``src/driver_arguments.cpp``.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from hipfind.errors import ParseError, ProblemError
from hipfind.problem.conv import ConvProblem
from hipfind.problem.driver_flags import BASES, FLAGS, Flag
from hipfind.problem.dtypes import DType
from hipfind.problem.miopen_key import layout_names
from hipfind.problem.tensor import LAYOUTS

_BY_LONG = {flag.long: flag for flag in FLAGS}
_BY_SHORT = {flag.short: flag for flag in FLAGS}
_PROGRAM = re.compile(r"""(?:^|[\s/\\"'])(?:MIOpenDriver(?:\.exe)?|hipfind)["']?\s+(?P<rest>[A-Za-z].*)""", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_DIRECTION_BITS = {"fwd": 1, "bwd": 2, "wrw": 4}
_AXES = {2: "hw", 3: "dhw"}


@dataclasses.dataclass(frozen=True)
class DriverCommand:
    """A MIOpenDriver command: the base argument and the value of every flag, by its long name.

    Made by ``parse_command`` from text or by ``create`` from values; both check every value.
    """

    base: str
    values: Mapping[str, int | str] = dataclasses.field(hash=False)

    @classmethod
    def create(cls, base: str, values: Mapping[str, object]) -> DriverCommand:
        """A command from flag values by long name; flags that are not given have their defaults.

        Raises ParseError, naming the flag, for an unknown one and for values that are not legal or not supported.
        """
        return _command(base, values.items())

    def problems(self) -> list[ConvProblem]:
        """One problem for each direction asked for, in the order forward, backward data, backward weights.

        Raises ProblemError where the values contradict each other.
        """
        ndim, groups = self._int("spatial_dim"), self._int("group_count")
        n, c, k = self._int("batchsize"), self._int("in_channels"), self._int("out_channels")
        if c % groups or k % groups:
            raise ProblemError("--in_channels and --out_channels must be divisible by --group_count",
                               got=f"{c}, {k} and {groups}")  # fmt: skip
        transposed = self.values["mode"] == "trans"
        first, second = (c, k // groups) if transposed else (k, c // groups)
        dtype = BASES[self.base]
        return [
            ConvProblem.create(
                direction,
                x=(n, c, *self._per_axis("in_")),
                w=(first, second, *self._per_axis("fil_")),
                stride=self._per_axis("conv_stride_"),
                pad=self._pads(),
                dilation=self._per_axis("dilation_"),
                groups=groups,
                dtype=(dtype, dtype, DType.INT32 if dtype is DType.INT8 else dtype),
                layout=[self._text(f"{name}_layout") or LAYOUTS[ndim][0] for name in ("in", "fil", "out")],
                mode=self._text("mode"),
                output_padding=self._per_axis("trans_output_pad_") if transposed else 0,
                compute="tf32" if self.values["math_type"] == 0 and dtype is DType.FP32 else "",
            )
            for direction in self.directions
        ]

    @property
    def directions(self) -> tuple[str, ...]:
        """Directions asked for by ``--forw``; 0 is all that the dtype has, and int8 has only forward."""
        bits = self._int("forw") or (1 if BASES[self.base] is DType.INT8 else 7)
        return tuple(direction for direction, bit in _DIRECTION_BITS.items() if bits & bit)

    @property
    def iterations(self) -> int:
        """Timed runs."""
        return self._int("iter")

    @property
    def verify(self) -> bool:
        """Compare the results with a reference."""
        return self._int("verify") != 0

    @property
    def time(self) -> bool:
        """Print the device time."""
        return self._int("time") != 0

    @property
    def wall(self) -> int:
        """0: no wall-clock time, 1: print it, 2: warm up first. MIOpen prints it only with ``time``."""
        return self._int("wall")

    @property
    def search(self) -> bool:
        """Tune tunable solvers."""
        return self._int("search") != 0

    @property
    def print_problem(self) -> bool:
        return self._int("printconv") != 0

    @property
    def dump_output(self) -> bool:
        """Write the results to files."""
        return self._int("dump_output") != 0

    @property
    def init_output_nan(self) -> bool:
        """Fill the outputs with NaN before the run."""
        return self._int("init_output_nan") != 0

    @property
    def verification_cache(self) -> str:
        """Folder that keeps reference results; "" for none."""
        return self._text("verification_cache")

    @property
    def buffer_check(self) -> int:
        """0: none; 1, 2: look for writes before the start, after the end of the buffers."""
        return self._int("gpubuffer_check")

    @property
    def tuning_policy(self) -> int:
        """0: the setting's; 1 to 5: what Find does about perf configs, by MIOpen's numbers."""
        return self._int("tuning_policy")

    @property
    def use_graph(self) -> bool:
        """Replay the run as a recorded graph."""
        return self._int("use_hip_graph") != 0

    @property
    def solution(self) -> int | str | None:
        """None: Find; 0: the fastest in immediate mode; else the solver's numeric id or its name."""
        text = self._text("solution")
        if not _INTEGER.fullmatch(text):
            return text
        return int(text) if int(text) >= 0 else None

    def _int(self, name: str) -> int:
        return int(self.values[name])

    def _text(self, name: str) -> str:
        return str(self.values[name])

    def _per_axis(self, prefix: str) -> tuple[int, ...]:
        return tuple(self._int(prefix + axis) for axis in _AXES[self._int("spatial_dim")])

    def _pads(self) -> tuple[int, ...]:
        """Pads of each axis by ``--pad_mode``, as MIOpenDriver computes them.

        "same" pads half of what is missing on both sides, rounded down, so an output extent can be one less than
        ceil(image / stride). Transposed and dilated convolutions have the pads given, whatever the mode.
        """
        taps, dilations = self._per_axis("fil_"), self._per_axis("dilation_")
        mode = self.values["pad_mode"]
        is_plain = self.values["mode"] == "conv" and (set(dilations) == {1} or set(taps) == {1})
        if mode == "default" or not is_plain:
            return self._per_axis("pad_")
        if mode == "valid":
            return (0,) * len(taps)
        return tuple(
            max(tap - ((image % step if step > 0 else 0) or step), 0) // 2
            for image, tap, step in zip(self._per_axis("in_"), taps, self._per_axis("conv_stride_"), strict=True)
        )


def parse_command(command: str | Sequence[str]) -> DriverCommand:
    """The command of a line of text, or of its words (the program's name may lead them).

    ``--in_h 14``, ``--in_h=14``, ``-H 14`` and ``-H14`` are all taken; a flag given twice has its last value. Raises
    ParseError, naming the flag and the value.
    """
    words = _words(command) if isinstance(command, str) else list(command)
    if words and re.split(r"[/\\]", words[0])[-1] in ("MIOpenDriver", "MIOpenDriver.exe", "hipfind"):
        words = words[1:]
    if not words:
        raise ParseError("a driver command needs a base argument", got=command, remedy="legal: " + ", ".join(BASES))
    return _command(words[0], _given(words[1:]))


def to_command(problem: ConvProblem) -> str:
    """The MIOpenDriver line of a problem, in the form in which MIOpen logs its calls; ``parse_command`` inverts it.

    Raises ProblemError, naming the field, for what such a line cannot say: tensors that are not packed, pads that
    differ before and after an axis, alpha and beta, deterministic, an int8 problem with another output than int32.
    """
    p = problem
    _check_expressible(p)
    base = next(name for name, dtype in BASES.items() if dtype is p.dtype)
    flags: list[tuple[str, int | str]] = [("-n", p.n), ("-c", p.c), *_axis_flags(p.in_spatial, "--in_d", "-H", "-W")]
    flags += [("-k", p.k), *_axis_flags(p.filter, "--fil_d", "-y", "-x"), *_axis_flags(p.pad, "--pad_d", "-p", "-q")]
    flags += _axis_flags(p.stride, "--conv_stride_d", "-u", "-v")
    flags += _axis_flags(p.dilation, "--dilation_d", "-l", "-j")
    if p.ndim == 3:
        flags.append(("--spatial_dim", 3))
    names = zip(("--in_layout", "--fil_layout", "--out_layout"), layout_names(p), strict=True)
    flags += [(flag, name) for flag, name in names if name != LAYOUTS[p.ndim][0]]
    flags.append(("-m", "trans" if p.mode == "transpose" else "conv"))
    if p.mode == "transpose":
        flags += _axis_flags(_output_padding(p), "--trans_output_pad_d", "-Y", "-X")
    flags += [("-g", p.groups), ("-F", _DIRECTION_BITS[p.direction]), ("-t", 1)]
    if p.compute == "tf32":
        flags.append(("-M", 0))
    return " ".join(["./bin/MIOpenDriver", base, *(f"{flag} {value}" for flag, value in flags)])


def _command(base: str, given: Iterable[tuple[str, object]]) -> DriverCommand:
    if base in ("convfp8", "convbfp8"):
        raise ParseError("fp8 and bf8 are not supported", got=base, remedy="legal: " + ", ".join(BASES))
    if base not in BASES:
        raise ParseError(
            "unknown base argument", got=base, remedy=_suggestion(base, BASES, "legal: " + ", ".join(BASES))
        )
    checked: dict[str, int | str] = {flag.long: flag.default for flag in FLAGS}
    for name, value in given:
        checked[name] = _checked(_by_long(name), value)
    return DriverCommand(base, MappingProxyType(checked))


def _axis_flags(values: tuple[int, ...], *names: str) -> list[tuple[str, int | str]]:
    return list(zip(names[-len(values) :], values, strict=True))


def _output_padding(p: ConvProblem) -> tuple[int, ...]:
    """What a transposed output has more than the smallest one that its x can come from."""
    return tuple(
        large + 2 * pad - dilation * (taps - 1) - 1 - (small - 1) * step
        for large, small, pad, dilation, taps, step in zip(
            p.out_spatial, p.in_spatial, p.pad, p.dilation, p.filter, p.stride, strict=True
        )
    )


def _check_expressible(p: ConvProblem) -> None:
    wrong = {
        "pads that differ before and after an axis": (p.pad != p.pad_end, f"pad {p.pad}, pad_end {p.pad_end}"),
        "alpha and beta": (not p.has_default_scaling, f"alpha {p.alpha}, beta {p.beta}"),
        "deterministic": (p.deterministic, "deterministic True"),
        "an int8 problem with another output than int32": (
            p.dtype is DType.INT8 and p.y.dtype is not DType.INT32,
            f"y {p.y.dtype.value}",
        ),
    }
    for field, (is_wrong, value) in wrong.items():
        if is_wrong:
            raise ProblemError(f"a MIOpenDriver line cannot say {field}", got=value)


def _words(text: str) -> list[str]:
    """The words behind the program's name; all words of a text without one."""
    match = _PROGRAM.search(text)
    try:
        return shlex.split(match["rest"] if match else text)
    except ValueError as error:
        raise ParseError(f"a driver command must be a shell's words: {error}", got=text) from None


def _given(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(long name, value) of each flag in the words, in order."""
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flag = _by_long(name)
        elif word.startswith("-") and len(word) > 1:
            flag, value = _by_short(word)
            equals = value
        else:
            raise ParseError("a driver command is flags with values behind the base argument", got=word,
                             remedy="flags start with - or --")  # fmt: skip
        if not equals:
            try:
                value = next(rest)
            except StopIteration:
                raise ParseError(f"{_label(flag)} needs a value", got=word) from None
        yield flag.long, value


def _by_long(name: str) -> Flag:
    if name not in _BY_LONG:
        raise ParseError(
            "unknown flag", got=f"--{name}", remedy=_suggestion(name, _BY_LONG, "see hipfind conv --help", "--")
        )
    return _BY_LONG[name]


def _by_short(word: str) -> tuple[Flag, str]:
    """Flag and attached value ("" without one) of a word that starts with a single dash."""
    name = word[1:].partition("=")[0]
    if len(name) > 1 and name in _BY_LONG:
        raise ParseError("a long flag needs two dashes", got=word, remedy=f"write --{name}")
    if word[1] not in _BY_SHORT:
        raise ParseError("unknown flag", got=word, remedy=_suggestion(name, _BY_LONG, "see hipfind conv --help", "--"))
    return _BY_SHORT[word[1]], word[2:].removeprefix("=")


def _checked(flag: Flag, value: object) -> int | str:
    """The value in the flag's type. Raises ParseError where it is not legal or not supported."""
    text = str(value).upper() if flag.is_layout else str(value)
    if flag.kind is int and not _INTEGER.fullmatch(text):
        raise ParseError(f"{_label(flag)} needs a whole number", got=repr(text))
    checked = flag.kind(text)
    if flag.only and checked != flag.default:
        raise ParseError(f"{_label(flag)}: {flag.only}", got=repr(text), remedy=f"leave it at {flag.default!r}")
    if flag.choices and checked not in flag.choices:
        legal = ", ".join(str(choice) for choice in flag.choices if choice != "")
        raise ParseError(f"{_label(flag)} has no such value", got=repr(text), remedy=f"legal: {legal}")
    if flag.least is not None and int(checked) < flag.least:
        raise ParseError(f"{_label(flag)} must be {flag.least} or more", got=repr(text))
    return checked


def _label(flag: Flag) -> str:
    return f"--{flag.long} (-{flag.short})"


def _suggestion(name: str, legal: Mapping[str, object], otherwise: str, prefix: str = "") -> str:
    close = difflib.get_close_matches(name, legal, n=1)
    return f"did you mean {prefix}{close[0]}?" if close else otherwise
