"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hipfind.cli import text
from hipfind.errors import ParseError


@pytest.mark.parametrize(
    ("given_text", "nbytes"),
    [
        ("0", 0),
        ("33554432", 32 << 20),
        ("32MiB", 32 << 20),
        ("32 mib", 32 << 20),
        (" 1GiB ", 1 << 30),
        ("2KiB", 2048),
        ("2kB", 2000),
        ("3MB", 3_000_000),
        ("4GB", 4_000_000_000),
        ("7B", 7),
    ],
)
def test_sizes_are_read(given_text: str, nbytes: int) -> None:
    assert text.parse_size(given_text) == nbytes


@pytest.mark.parametrize("given_text", ["", "MiB", "-1", "1.5MiB", "1e6", "32 XB", "32  MiB", "٣", "1" * 30, "0x10"])
def test_what_is_no_size_is_refused(given_text: str) -> None:
    with pytest.raises(ParseError, match="a size is a whole number of bytes"):
        text.parse_size(given_text)


@given(st.integers(0, 2**55))
@example(1_023_488)  # 999.5 KiB
@example(1024**2 - 1)
def test_a_printed_size_is_within_one_percent(nbytes: int) -> None:
    shown = text.size(nbytes)
    number, unit = shown.split()
    power = ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert float(number) * 1024**power == pytest.approx(nbytes, rel=0.01)
    assert len(number.replace(".", "")) <= 4 or unit == "TiB"


@given(st.floats(1e-4, 1e7))
def test_a_printed_time_is_exact_to_four_digits_or_a_tenth_of_a_microsecond(value: float) -> None:
    assert float(text.ms(value)) == pytest.approx(value, rel=5.1e-4, abs=5.1e-5)
    assert "e" not in text.ms(value)


def test_times_carry_their_spread_with_the_same_digits() -> None:
    assert text.ms_with_spread(12.3456, 0.789) == "12.35 ±0.79"
    assert text.ms_with_spread(1234.5, 6.7) == "1234 ±7"
    assert text.ms_with_spread(None, 0.0) == "-"
    assert text.ms(None) == "-"
    assert text.size(None) == "-"


def test_rates() -> None:
    assert text.rate(2e9, 1.0) == "2 TFLOP/s"
    assert text.rate(2e9, 10.0) == "200 GFLOP/s"
    assert text.rate(2e9, 0.0) == "-"


def test_a_long_message_becomes_one_short_line() -> None:
    assert text.one_line("first\n  second\n") == "first second"
    cut = text.one_line("word " * 100, limit=50)
    assert len(cut) == 50
    assert cut.endswith("...")
