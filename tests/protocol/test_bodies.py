"""Bodies are read without looking at their payloads."""

import msgspec
import pytest

from nodrop.protocol import bodies, canonical
from nodrop.protocol.bodies import Content, decode_content, encode_content

EXTREMES = [1e308, -1e308, 1e-300, 1.5]


def test_a_large_payload_is_neither_searched_nor_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searching a megabyte for numbers near 1e308 took forty times as long as all the rest."""
    payload = msgspec.json.encode(EXTREMES * 10_000)
    body = encode_content(Content(title="t", payload=msgspec.Raw(payload), metadata={"n": 1.5}))
    searched: list[int] = []
    monkeypatch.setattr(canonical, "has_extremes", lambda data: bool(searched.append(len(data))))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    read = decode_content(body)
    assert (read.title, bytes(read.payload), read.metadata) == ("t", payload, {"n": 1.5})
    assert searched == []


def test_extreme_numbers_beside_a_payload_are_read_with_care(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """msgspec by itself takes two seconds for a megabyte of them."""
    body = encode_content(Content(metadata={"n": EXTREMES * 1_000}))
    hooked: list[str] = []

    def hook(text: str) -> float:
        hooked.append(text)
        return float(text)

    careful = msgspec.json.Decoder(Content, float_hook=hook)
    monkeypatch.setattr(bodies, "_CAREFUL", careful)
    assert decode_content(body).metadata == {"n": EXTREMES * 1_000}
    assert len(hooked) == 4_000


@pytest.mark.parametrize("number", ["1e308", "1E308", "1e+308", "1E-300", "-2.5e-308"])
def test_extreme_numbers_are_found_wherever_they_are(number: str) -> None:
    padding = " " * canonical.EXTREME_BYTES_MIN
    assert canonical.has_extremes(f"[1,{number}]{padding}".encode())
    assert not canonical.has_extremes(f"[1,{number}]".encode()), "a few take no time"
    assert not canonical.has_extremes(f"[1,3e2,2E1,33]{padding}".encode())
