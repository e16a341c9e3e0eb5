"""The dashboard under load: a store with a long past, open handoffs, and events while Chromium looks.

Prints the figures as JSON, and exits with 1 where one of them is beyond its bound.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from nodrop.app import SystemClock
from nodrop_proof.bench import past

HERE = Path(__file__).parent


def main() -> int:
    """Fill a store, then let Node start the relay, the events and the browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--handoffs", type=int, default=100_000, help="in the store")
    parser.add_argument("--open", type=int, default=1_000, help="of them open")
    parser.add_argument("--rate", type=int, default=200, help="events per second")
    parser.add_argument("--minutes", type=float, default=1, help="how long it is looked at")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nodrop-bench-") as folder:
        now = SystemClock().now()
        template = asyncio.run(past.record(finished=True, now_ms=now))
        settled = asked.handoffs - asked.open
        past.filled({settled: Path(folder)}, template, now_ms=now)
        measure = [
            *("node", str(HERE / "measure.mjs"), str(Path(folder) / "home"), sys.executable),
            *(str(asked.open), str(asked.rate), str(asked.minutes)),
        ]
        return subprocess.run(measure, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
