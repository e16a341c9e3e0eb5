import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

RunAlone = Callable[[Sequence[str | Path]], str]


@pytest.mark.timeout(90)  # a worker and a relay die in it, and are waited for
def test_nothing_is_dropped_or_duplicated_although_worker_and_relay_are_killed(
    run_alone: RunAlone,
) -> None:
    figures = json.loads(run_alone(["nodrop", "demo", "--json", "--keep"]))
    kept = Path(figures["home"])
    assert (kept / "nodrop.db").exists()
    shutil.rmtree(kept)
    assert figures["ok"] is True
    assert (figures["dropped"], figures["duplicated"], figures["broken"]) == (0, 0, 0)
    assert (figures["handoffs"], figures["tickets"]) == (3, 1)
    assert figures["attempts"] >= 2  # one more where a worker was kept from running for long
