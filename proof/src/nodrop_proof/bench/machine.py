"""The machine that was measured on: what a reader must know before quoting a figure."""

import os
import platform
import time
from pathlib import Path
from typing import Final, Self

import msgspec

from nodrop_proof.bench.figures import quantile

_PROBE_SECONDS: Final = 1.0
_PAGE: Final = b"\0" * 4_096


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Processor, system, disk and how busy it was."""

    processor: str
    cores: int
    system: str
    python: str
    sync_p50_ms: float
    """Median of a 4 KiB append and fdatasync, before the run."""
    load_average: float
    """Over the minute before the run: what others did on it."""

    @property
    def busy(self) -> bool:
        """Whether others did so much on it that figures say more about them."""
        return self.load_average > self.cores / 2

    @classmethod
    def look(cls, folder: Path) -> Self:
        """Return what this machine is, with the disk that `folder` is on."""
        return cls(
            processor=_processor(),
            cores=os.cpu_count() or 1,
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            sync_p50_ms=_sync_p50_ms(folder / "probe"),
            load_average=os.getloadavg()[0],
        )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _sync_p50_ms(path: Path) -> float:
    took: list[float] = []
    with path.open("wb", buffering=0) as file:
        until = time.perf_counter() + _PROBE_SECONDS
        while (began := time.perf_counter()) < until:
            file.write(_PAGE)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    path.unlink()
    return quantile(sorted(took), 0.5) * 1_000
