"""A channel is held to its own beginning: drift is found, other changes are not."""

import base64
import random
from collections.abc import Callable

import pytest

from kit.small_log import Log
from nodrop.analysis.detectors import language

PLAIN = (
    "Could you check the invoice of the customer and tell me what is wrong with it?",
    "The package is late, so we should ask the driver where it is today.",
    "I have read the report, and it is good, but two of the tables are missing.",
    "Please send it to them before we close the ticket, and thank you for that.",
    "There is a new order in the queue, and nobody has had time to look at it.",
)
GERMAN = (
    "Ich habe die Rechnung geprüft und dem Kunden noch einmal geschickt.",
    "Wir sollten den Termin auf die nächste Woche legen, weil noch vieles fehlt.",
)
VOWELS = str.maketrans("", "", "aeiou")
Later = Callable[[str], str]
LATER: dict[str, Later] = {
    "no vowels": lambda text: " ".join(w[0] + w[1:].translate(VOWELS) for w in text.split()),
    "telegrams": lambda text: " ".join(w for w in text.split() if len(w) > 4),
    "repetition": lambda text: " ".join([*text.split()[:3], *["to me"] * 8]),
    "signs": lambda text: " ".join("◆⊕" if len(w) > 4 else w for w in text.split()),
    "encoded": lambda text: base64.b64encode(text.encode()).decode(),
}
FINE: dict[str, Later] = {
    "as before": lambda text: text,
    "shorter": lambda text: text.partition(",")[0],
    "ids": lambda text: f"{text} See 4f9a1c2b7d8e4f9a1c2b7d8e and ORD-12345.",
    "links": lambda text: f"{text} https://example.com/a/b?c=4f9a1c2b7d8eABCdefGHIjkl",
    "another language": lambda _: random.Random(1).choice(GERMAN),
}


def talk(log: Log, later: Later, messages: int = 320) -> None:
    chance = random.Random(2)
    for n in range(messages):
        text = chance.choice(PLAIN)
        said = later(text) if n > messages // 2 else text
        log.record.say("a ↔ b", **log.tick(), author="ab"[n % 2], text=said)


@pytest.mark.parametrize("how", LATER)
def test_drift_is_found_with_the_entries_from_which_on(log: Log, how: str) -> None:
    talk(log, LATER[how])
    [finding] = language.detect(log.record).findings
    assert finding.subject == "a ↔ b"
    assert set(finding.agents) == {"a", "b"}
    assert 140 <= finding.evidence[0] <= 220


@pytest.mark.parametrize("how", FINE)
def test_what_changes_for_good_reasons_is_not(log: Log, how: str) -> None:
    talk(log, FINE[how])
    told = language.detect(log.record)
    assert not told.findings
    assert told.tested == 1


def test_a_few_messages_say_nothing(log: Log) -> None:
    talk(log, LATER["no vowels"], messages=60)
    told = language.detect(log.record)
    assert not told.findings
    assert "60 messages" in told.too_little[0].why


def test_a_channel_that_was_private_from_the_start_is_not_drift_unless_a_baseline_says_so(
    log: Log,
) -> None:
    talk(log, LATER["no vowels"])
    log.record.baseline_until = log.record.said["a ↔ b"][280].at
    # Half of the baseline is private already, so less of what follows is news.
    told = language.detect(log.record)
    assert not told.findings
