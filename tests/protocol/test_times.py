import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.model.limits import DAY, HOUR, MINUTE, SECOND
from nodrop.protocol.times import (
    format_duration,
    format_time,
    parse_due,
    parse_duration,
    parse_time,
)


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("4h", 4 * HOUR),
        ("4 hours", 4 * HOUR),
        ("1 hour", HOUR),
        ("30 minutes", 30 * MINUTE),
        ("1h 30m", 90 * MINUTE),
        ("1 hour and 30 minutes", 90 * MINUTE),
        ("2 days, 3 hours", 2 * DAY + 3 * HOUR),
        ("PT4H", 4 * HOUR),
        ("P1DT12H", 36 * HOUR),
        ("PT0.5S", 500),
        ("250ms", 250),
        ("1.5h", 90 * MINUTE),
        (90, 90 * SECOND),
        (0.25, 250),
        ("90", 90 * SECOND),
        (0, 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: str | float, ms: int) -> None:
    assert parse_duration(written) == ms


@pytest.mark.parametrize(
    "written",
    ["", " ", "soon", "4 parsecs", "h", "-4h", "4h!", "P", "PT", "4 4", "١h", "1" * 70, -1, 1e13, "1e999", "1e13", "e5", ".",
     float("nan"), float("inf"), True],
)  # fmt: skip
def test_what_is_no_duration_is_refused(written: str | float) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "ms"),
    [("1.5e2", 150_000), ("1E1", 10_000), ("4.2e-71", 1), (1e-300, 1), ("0.0001s", 1), ("0e5", 0)],
)
def test_a_number_is_read_however_it_is_spelled_and_is_never_less_than_it_says(
    written: str | float, ms: int
) -> None:
    assert parse_duration(written) == ms


@given(st.integers(0, 10_000 * DAY))
def test_what_is_written_is_read_back(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms


@given(st.integers(0, 4_000_000_000_000))
def test_a_time_is_written_and_read_back(ms: int) -> None:
    assert parse_time(format_time(ms)) == ms


@pytest.mark.parametrize("written", ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
def test_a_time_of_long_ago_is_written_with_all_of_its_digits(written: str) -> None:
    assert format_time(parse_time(written)) == written


def test_a_due_time_may_be_a_time_or_a_duration() -> None:
    now = parse_time("2026-11-15T12:00:00.000Z")
    assert parse_due("4 hours", now=now) == parse_due("2026-11-15T16:00:00Z", now=now)
    assert parse_due("2026-11-15T18:00:00+02:00", now=now) == now + 4 * HOUR
    with pytest.raises(ValueError, match="offset"):
        parse_due("2026-11-15T16:00:00", now=now)
