import io
import sys
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli import values
from nodrop.cli.handoffs import offer
from nodrop.model.errors import InvalidRequestError, NotFoundError, Problem, TooLargeError


def type_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("3.4.1", "3.4.1"),
        ("3.4", 3.4),
        ("null", None),
        ("", ""),
        ("NaN", "NaN"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_if_it_parses_else_text(written: str, value: Any) -> None:
    assert values.json_or_text(written) == value


@pytest.mark.parametrize(
    ("written", "value"),
    [("4.2", 4.2), ("4.10", "4.10"), ("1e3", "1e3"), ("12", 12), ('["4.10"]', ["4.10"])],
)
def test_what_a_person_types_is_no_number_that_reads_otherwise(written: str, value: Any) -> None:
    assert values.typed(written) == value


def test_a_value_may_be_in_a_file_or_on_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "result.json").write_text('{"a": "ü"}\n')
    assert values.json_or_text(f"@{tmp_path}/result.json") == {"a": "ü"}
    type_in(monkeypatch, b"two\nlines\n")
    assert values.json_or_text("-") == "two\nlines"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"cannot read nowhere\.json: No such file"):
        values.text_of("@nowhere.json")


def test_more_than_a_relay_takes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"x" * 2_000_000)
    with pytest.raises(TooLargeError, match="stdin is larger than 1310720 bytes"):
        values.text_of("-")


def test_bytes_that_are_no_text_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"ab\xff")
    with pytest.raises(InvalidRequestError) as refused:
        values.text_of("-")
    assert refused.value.errors == (Problem(path="stdin", message="is not UTF-8 at byte 2"),)


def test_json_that_does_not_parse_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "offer.json"
    file.write_text('{\n "to": "b"\n "title": 1}')
    with pytest.raises(InvalidRequestError) as refused:
        offer.read(str(file))
    assert refused.value.errors == (
        Problem(path=f"{file} line 3 column 2", message="is not JSON: Expecting ',' delimiter"),
    )


def test_an_offer_is_json_or_a_text_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "offer"
    file.write_text('\ufeff\n{"to": "b"}')
    assert offer.read(str(file)) == {"to": "b"}
    type_in(monkeypatch, "HANDOFF: a → b\n".encode())
    assert offer.read("-") == {"from": "a", "to": "b"}


def test_a_wait_that_is_no_duration_is_refused_with_its_option() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        values.waiting("soon", option="--wait")
    assert [problem.path for problem in refused.value.errors] == ["--wait"]


def test_only_what_was_given_is_sent() -> None:
    assert values.given(a=None, b=0, from_="x") == {"b": 0, "from": "x"}


def test_bounds_are_read_by_their_names() -> None:
    read = values.limits(["open_handoffs_max=10", "offers_per_second_max=0.5"], path="--limit")
    assert (read.open_handoffs_max, read.offers_per_second_max, read.legs_max) == (10, 0.5, 32)


@pytest.mark.parametrize(
    "written", ["open_handoffs=10", "open_handoffs_max", "legs_max=many", "legs_max=-1", "="]
)
def test_a_bound_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(InvalidRequestError):
        values.limits([written], path="--limit")
