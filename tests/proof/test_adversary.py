"""The report about an adversary names the waves that broke a bound, and what the relay did meanwhile."""

from pathlib import Path

import msgspec

from nodrop_proof.adversary import probed
from nodrop_proof.adversary.run import Report, Wave

CALM = Wave(
    name="topics",
    handoffs=100,
    p99_ms=50.0,
    worst_ms=90.0,
    peak_mb=150.0,
    rise_mb=1.0,
    busy_ms=20.0,
    during="",
    told={"ok": 1},
)
HARMFUL = msgspec.structs.replace(
    CALM,
    name="waits",
    p99_ms=3_000.0,
    peak_mb=2_000.0,
    rise_mb=90.0,
    busy_ms=257.0,
    during="f:1 < g:2",
)
HELD = Report(
    seconds=600.0,
    load=(0.1, 2.0),
    handoffs=10_000,
    p50_before_ms=10.0,
    p99_before_ms=20.0,
    p50_ms=20.0,
    p99_ms=200.0,
    before_mb=100.0,
    peak_mb=500.0,
    after_mb=129.0,
    after_seconds=30.0,
    restarts=0,
    busy_ms=100.0,
    waves=[CALM, HARMFUL],
    seen={"polls": 1_000},
    bounds={"polls": 1_000},
)


def test_nothing_is_broken_within_the_bounds() -> None:
    assert HELD.broken() == []


def test_each_broken_bound_comes_with_what_broke_it() -> None:
    broken = msgspec.structs.replace(
        HELD,
        p99_ms=251.0,
        peak_mb=2_000.0,
        after_mb=131.0,
        busy_ms=257.0,
        restarts=1,
        seen={"polls": 1_001},
    ).broken()
    assert broken == [
        "polls: 1001, at most 1000",
        "others' p99 is 251 ms, at most 250 (waits 3000)",
        "memory rose to 2000 MiB, at most 1024 (waits 2000)",
        "memory stayed at 131 MiB, at most 130 (waits +90, topics +1)",
        "the relay ended 1 times",
        "its loop was busy for 257 ms, at most 150 (waits: f:1 < g:2)",
    ]


def test_nobody_answered_is_broken_too() -> None:
    [said] = msgspec.structs.replace(HELD, handoffs=0).broken()
    assert said.startswith("others' p99")


def test_the_probe_is_read_as_it_grows(tmp_path: Path) -> None:
    probe = probed.Probed(tmp_path)
    assert probe.news() == []
    first, second = probed.Busy(busy_ms=1.0), probed.Busy(busy_ms=80.0, during="f:1")
    told = b"".join(msgspec.json.encode(busy) + b"\n" for busy in (first, second))
    file = tmp_path / probed.PROBE
    file.write_bytes(told[:-5])
    assert probe.news() == [first]
    file.write_bytes(told)
    assert probe.news() == [second]
    assert probe.news() == []
