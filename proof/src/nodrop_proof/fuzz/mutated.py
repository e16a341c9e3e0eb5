"""Seeds of `decoders`, changed at random: as many inputs as asked for, the same for the same seed.

Blind where `guided` looks at what an input reached, but needs nothing installed.
"""

import traceback
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from nodrop_proof.fuzz import decoders
from nodrop_proof.fuzz.findings import Findings

INPUT_BYTES_MAX: Final = 4_096
CHANGES_MAX: Final = 6
_PROGRESS_EVERY: Final = 1_000
_BYTES: Final = b'{}[]",:\\0123456789eE+-.tfn \t\n\x00\x7f\x80\xbf\xc0\xed\xf4\xff%/&='
"""What a decoder may stumble over, rather than any byte."""


def run(
    *,
    runs: int,
    seed: int,
    progress: Callable[[int, int], None],
    targets: Mapping[str, decoders.Target] = decoders.TARGETS,
) -> Findings:
    """Give each target its share of `runs`."""
    given: dict[str, int] = {}
    told: dict[str, str] = {}
    for name, target in targets.items():
        random = Random(f"{seed} {name}")  # noqa: S311  # seeded, so that it can be repeated
        seeds = decoders.SEEDS[name]
        for number in range(-(-runs // len(targets))):
            data = seeds[number] if number < len(seeds) else changed(random, seeds)
            try:
                decoders.feed(target, data)
            except Exception:  # noqa: BLE001  # whatever it is, it is what is looked for
                if name not in told:
                    told[name] = f"{data!r}\n{traceback.format_exc()}"
            given[name] = number + 1
            if number % _PROGRESS_EVERY == 0:
                progress(sum(given.values()), runs)
    return Findings(runs=sum(given.values()), seed=seed, targets=given, told=told)


def changed(random: Random, seeds: tuple[bytes, ...]) -> bytes:
    """Return one of the seeds with a few changes."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, CHANGES_MAX)):
        at = random.randint(0, len(data))
        end = min(len(data), at + random.randint(0, 8))
        match random.randrange(7):
            case 0:
                del data[at:end]
            case 1:
                data[at:at] = data[at:end] * random.randint(1, 80)
            case 2:
                data[at:at] = random.choice(decoders.WORDS)
            case 3:
                data[at:end] = bytes(random.choices(_BYTES, k=random.randint(1, 4)))
            case 4:
                other = random.choice(seeds)
                data[at:] = other[random.randint(0, len(other)) :]
            case 5 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case _:
                data[at:at] = bytes([random.choice(_BYTES)]) * random.randint(1, 200)
    return bytes(data[:INPUT_BYTES_MAX])
