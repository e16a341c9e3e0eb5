"""The adversary: an agent with one valid token that goes through all waves again and again.

Writes a line of JSON when a wave begins and one when it is over. It gives way to the relay and the
bystander on the processor, since it stands for programs on other machines.
"""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from nodrop.app.machine import allow_open_files
from nodrop.client.working.loop import fastest_loop
from nodrop_proof.adversary.waves import WAVES, Attacker

_NICE = 10
_LATE_SECONDS_MAX = 20.0


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One wave: what the relay answered, by code; None: it begins."""

    wave: str
    told: dict[str, int] | None = None
    seen: dict[str, int] = {}
    """The most that it was let have so far."""


async def run(
    url: str, token: str, *, wave_seconds: float, large: int, turns: int, names: Sequence[str]
) -> None:
    """Go through the waves so often; 0: until the process is ended."""
    attacker = Attacker(url, token)
    attacker.large_count = large
    async with attacker.open():
        for _ in range(turns) if turns else itertools.count():
            for name in names:
                _say(Told(wave=name))
                attacker.told.clear()
                attacker.tell = partial(_say_seen, name)
                attacker.ends_at = time.monotonic() + wave_seconds
                with suppress(TimeoutError):
                    async with asyncio.timeout(wave_seconds + _LATE_SECONDS_MAX):
                        await WAVES[name](attacker)
                _say(Told(wave=name, told=dict(attacker.told), seen=attacker.seen))


def _say_seen(wave: str, seen: dict[str, int]) -> None:
    _say(Told(wave=wave, seen=seen))


def _say(told: Told) -> None:
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    allow_open_files()
    if sys.platform != "win32":
        os.nice(_NICE)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        address, secret, seconds, large, turns, *chosen = sys.argv[1:]
        runner.run(
            run(
                address,
                secret,
                wave_seconds=float(seconds),
                large=int(large),
                turns=int(turns),
                names=chosen,
            )
        )
