"""What a run is to measure, and for how long."""

from pathlib import Path

import msgspec

from nodrop_proof.bench.driving import Window
from nodrop_proof.bench.stage import OURS, Environment
from nodrop_proof.bench.system import Load


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmark."""

    systems: tuple[str, ...]
    folder: Path
    """An empty directory on the disk that is measured; whoever made it removes it."""
    loads: tuple[Load, ...] | None = None
    """For every system; None: those that each is meant for."""
    rounds: int = 3
    window: Window = Window()
    ours: Environment = OURS
    peers: Environment | None = None
    """Where the peers are installed; None: nowhere."""
