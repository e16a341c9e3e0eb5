from pathlib import Path

import pytest

from nodrop_proof.chaos import store_cut
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.kit.proxy import Trouble

pytestmark = pytest.mark.timeout(300)  # real processes, on a machine that does other things too


async def test_a_relay_that_is_cut_off_from_its_database_says_nothing_false(
    tmp_path: Path,
) -> None:
    plan = Plan(fault="store-cut", count=6, seed=7, folder=tmp_path, nodes=2, callers=16)
    quick = (Trouble.CUT, Trouble.RESET)  # half-open ones are for the long run
    report = await store_cut.run(plan, lambda _done, _of: None, troubles=quick)
    assert report.ok, report.findings
    assert report.acknowledged >= 6 * store_cut.FLOW_ANSWERS
    assert sum(report.extras["troubles"].values()) == 6
