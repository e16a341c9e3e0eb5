"""Random changes to a log: every one is found and named. The long run is a command."""

import copy
import random

import pytest

from nodrop.audit.verify.chain import Checkpoint
from nodrop.audit.verify.verifier import Verifier
from nodrop.protocol import canonical
from nodrop_proof import tampering
from nodrop_proof.kit.signer import MemorySigner
from nodrop_proof.tampering import KINDS, Evidence, evidence, first_bad, tampered, trial

CHANGES = 40 * len(KINDS)


@pytest.fixture
async def found() -> Evidence:
    return await evidence(handoffs=4)


async def test_every_change_is_found_and_named(found: Evidence) -> None:
    report = trial(found, CHANGES, seed=20261116)
    assert dict(report.tried) == dict.fromkeys(KINDS, 40)
    assert (report.missed, report.misnamed) == ([], [])


async def test_the_log_itself_holds(found: Evidence) -> None:
    assert first_bad(found, found.entries) is None


async def test_a_log_with_an_erased_body_still_holds(found: Evidence) -> None:
    entries = copy.deepcopy(found.entries)
    erased = [entry for entry in entries if entry["body"] is not None]
    for entry in erased:
        entry["body"] = None
    assert len(erased) > 4
    assert first_bad(found, entries) is None


async def test_without_a_checkpoint_a_rewritten_log_would_pass(found: Evidence) -> None:
    """The control: it is what was kept outside that finds these."""
    rewritten, _ = tampered(found, "rewrite", random.Random(1))
    assert first_bad(found, rewritten, checkpoint=False) is None
    assert first_bad(found, rewritten) is not None


def test_what_a_rewritten_log_says_of_itself_does_not_replace_what_was_said_before() -> None:
    signer = MemorySigner()

    def said(head: str) -> Checkpoint:
        stated = {"team": "default", "size": 3, "head": head, "at": 0}
        return Checkpoint(
            team="default",
            size=3,
            head=head,
            at="1970-01-01T00:00:00.000Z",
            public_key=signer.public_key,
            signature=signer.sign(canonical.dumps(stated)),
        )

    verifier = Verifier("default", relay_key=signer.public_key)
    verifier.expect(said("a" * 64))
    verifier.expect(said("a" * 64))
    assert verifier.holds, "the same said twice is no contradiction"
    verifier.expect(said("b" * 64))
    assert not verifier.holds
    finding = verifier.verdict().finding
    assert finding is not None
    assert (finding.seq, finding.type) == (3, "checkpoint")


async def test_a_verifier_that_looks_at_no_hash_misses_changes(
    found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blind(tampering.Verifier):
        @property
        def holds(self) -> bool:
            return False  # so nothing is ever read

    monkeypatch.setattr(tampering, "Verifier", Blind)
    assert len(trial(found, len(KINDS), seed=1).missed) == len(KINDS)
