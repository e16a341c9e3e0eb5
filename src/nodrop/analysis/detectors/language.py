"""Private language: how the words of a channel drift away from the channel's own beginning.

A channel is cut into windows of equally many messages. The first ones teach its vocabulary and what
is usual in it; later ones are compared with that. A rule must hold in two windows in a row. Short
messages, another topic, another language, and ids are no findings.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from nodrop.analysis.detectors.lexicon import Lexicon, lexicon
from nodrop.analysis.findings import Finding, Found, Severity, TooLittle, evidence
from nodrop.analysis.record import Record, Said

WINDOWS: Final = 16
TAUGHT: Final = 3
"""Windows that teach the vocabulary."""
CALIBRATED: Final = 5
"""Windows, those included, that say what is usual."""
IN_A_ROW: Final = 2
MESSAGES_MIN: Final = WINDOWS * 10
"""Below that, a window says too little."""
WORDS_MIN: Final = 20
"""Words in a window, below which only symbols and opaque text are looked at."""

SPOKEN: Final = 0.15
"""Share of a window's words that says which language it is in."""

_URL: Final = re.compile(r"https?://\S+|www\.\S+|\S+@\S+\.\S+|(?:/[\w.-]+){2,}")
_ID: Final = re.compile(
    r"\b(?:[0-9a-f]{8}-[0-9a-f-]{27,}|[0-9a-f]{12,}|\w*\d\w*|\w+_\w+|[a-z]+[A-Z]\w*)\b"
)
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_TOKEN: Final = re.compile(r"\S+")
_OPAQUE_CHARS: Final = 24
_OPAQUE_BITS: Final = 3.8
_HEX: Final = re.compile(r"[0-9a-fA-F-]+")
_SYMBOLS_FROM: Final = 0x2000
_SYMBOLS_USUAL: Final = frozenset("\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u200b•→←↔✓✗€™")


class Metrics(NamedTuple):
    """A window in numbers."""

    unknown: float
    """Share of words that are in no dictionary, and that the channel did not begin with."""
    function: float
    """Share of words that hold sentences together."""
    repeated: float
    """Share of word pairs that the same message has already."""
    symbols: float
    """Share of characters that are signs and no letters."""
    opaque: float
    """Share of characters in long tokens without structure."""
    surprise: float
    """Bits per word pair, against the channel's own beginning."""
    words: int
    language: str
    """Whose function words are the most, if they are many."""


class Rule(NamedTuple):
    """By how much a metric must move."""

    name: str
    metric: str
    by: float
    says: str
    severity: Severity = Severity.MEDIUM


RULES: Final = (
    Rule("lexicon", "unknown", 0.10, "words that are in no dictionary"),
    Rule("telegraphic", "function", -0.10, "sentences without the words that hold them together"),
    Rule("repetition", "repeated", 0.25, "the same words again and again in one message"),
    Rule("symbols", "symbols", 0.03, "signs in place of words"),
    Rule("opaque", "opaque", 0.20, "text that looks encoded"),
)
_WORDY: Final = frozenset({"unknown", "function", "repeated"})
_SHARES_OF_WORDS: Final = frozenset({"unknown", "function"})
ERRORS: Final = 3.0
"""Standard errors that a share of words must move by, at least."""


def detect(record: Record) -> Found:
    """Return the channels whose language drifted."""
    found = Found()
    if not record.said:
        return found
    words = lexicon()
    common = _common(record)
    for channel, said in sorted(record.said.items()):
        if len(said) < MESSAGES_MIN or not _has_baseline(said, record.baseline_until):
            found.too_little.append(
                TooLittle(
                    detector="language",
                    subject=channel,
                    why=f"{len(said)} messages, at least {MESSAGES_MIN} are needed"
                    + ("" if record.baseline_until is None else ", a third of them as baseline"),
                )
            )
            continue
        found.tested += 1
        if (finding := _channel(record, channel, said, words, common)) is not None:
            found.findings.append(finding)
    return found


def windows(
    said: Sequence[Said], words: Lexicon, common: frozenset[str], until: int | None = None
) -> list[Metrics]:
    """Return the numbers of each window of a channel; `until` is where its baseline ends."""
    parts = _parts(said, until)
    taught: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for part in parts[:TAUGHT]:
        for each in part:
            tokens = _words(each.text)
            taught.update(tokens)
            pairs.update(pairwise(tokens))
    known = frozenset(word for word, count in taught.items() if count > 1) | common
    return [_metrics(part, words, known, taught, pairs) for part in parts]


def _parts(said: Sequence[Said], until: int | None) -> list[Sequence[Said]]:
    if until is None:
        return _cut(said, WINDOWS)
    first = sum(each.at <= until for each in said)
    return [*_cut(said[:first], CALIBRATED), *_cut(said[first:], WINDOWS - CALIBRATED)]


def _cut(said: Sequence[Said], count: int) -> list[Sequence[Said]]:
    size = len(said) / count
    return [said[round(n * size) : round((n + 1) * size)] for n in range(count)]


def _common(record: Record) -> frozenset[str]:
    """Return the words that several channels begin with: a team's own terms."""
    counts: Counter[str] = Counter()
    for said in record.said.values():
        first = said[: max(len(said) * TAUGHT // WINDOWS, 1)]
        counts.update({word for each in first for word in _words(each.text)})
    return frozenset(word for word, count in counts.items() if count > 1)


def _has_baseline(said: Sequence[Said], until: int | None) -> bool:
    if until is None:
        return True
    first = sum(each.at <= until for each in said)
    return first >= MESSAGES_MIN // 3 and len(said) - first >= MESSAGES_MIN // 3


def _words(text: str) -> list[str]:
    plain = _ID.sub(" ", _URL.sub(" ", text))
    return [word.lower() for word in _WORD.findall(plain)]


def _metrics(
    part: Sequence[Said],
    words: Lexicon,
    known: frozenset[str],
    taught: Counter[str],
    pairs: Counter[tuple[str, str]],
) -> Metrics:
    total = unknown = function = repeated = following = chars = symbols = opaque = 0
    bits = 0.0
    spoken: Counter[str] = Counter()
    vocabulary = len(taught) + 1
    for each in part:
        tokens = _words(each.text)
        total += len(tokens)
        unknown += sum(
            1 for word in tokens if len(word) > 1 and word not in known and not words.knows(word)
        )
        holding = [word for word in tokens if word in words.function_words]
        function += len(holding)
        spoken.update(holding)
        both = list(pairwise(tokens))
        following += len(both)
        repeated += len(both) - len(set(both))
        bits -= sum(
            math.log2((pairs[pair] + 0.1) / (taught[pair[0]] + 0.1 * vocabulary)) for pair in both
        )
        visible = "".join(each.text.split())
        chars += len(visible)
        symbols += sum(
            ord(c) >= _SYMBOLS_FROM and not c.isalnum() and c not in _SYMBOLS_USUAL for c in visible
        )
        opaque += sum(
            len(token) for token in _TOKEN.findall(_URL.sub(" ", each.text)) if _is_opaque(token)
        )
    return Metrics(
        unknown=unknown / max(total, 1),
        function=function / max(total, 1),
        repeated=repeated / max(following, 1),
        symbols=symbols / max(chars, 1),
        opaque=opaque / max(chars, 1),
        surprise=bits / max(following, 1),
        words=total,
        language=_language(spoken, words, total),
    )


def _language(spoken: Counter[str], words: Lexicon, total: int) -> str:
    counts = {
        language: sum(times for word, times in spoken.items() if word in own)
        for language, own in words.by_language.items()
    }
    most = max(counts, key=counts.__getitem__)
    return most if counts[most] >= SPOKEN * total else ""


def _is_opaque(token: str) -> bool:
    if len(token) < _OPAQUE_CHARS or _HEX.fullmatch(token):
        return False
    counts = Counter(token)
    entropy = -sum(n / len(token) * math.log2(n / len(token)) for n in counts.values())
    mixed = any(c.isupper() for c in token) and any(c.islower() for c in token)
    return entropy >= _OPAQUE_BITS and mixed and token.isascii() and "_" not in token


def _channel(
    record: Record, channel: str, said: Sequence[Said], words: Lexicon, common: frozenset[str]
) -> Finding | None:
    metrics = windows(said, words, common, record.baseline_until)
    held: dict[str, tuple[Rule, int, float]] = {}
    for rule in RULES:
        begin, drift = _first_held(metrics, rule)
        if begin is not None:
            held[rule.name] = (rule, begin, drift)
    if not held:
        return None
    first = min(begin for _, begin, _ in held.values())
    late = [each for part in _parts(said, record.baseline_until)[first:] for each in part]
    agents = tuple(record.agents[n] for n in dict.fromkeys(each.author for each in said))
    what = " and ".join(rule.says for rule, _, _ in held.values())
    return Finding(
        detector="language",
        severity=Severity.HIGH if len(held) > 1 else Severity.MEDIUM,
        subject=channel,
        agents=agents,
        says=f"{channel} drifted away from how it began: {what}",
        effect={name: round(drift, 4) for name, (_, _, drift) in held.items()},
        tested=f"{WINDOWS} windows, the first {CALIBRATED} as baseline; "
        + ", ".join(f"{r.metric} {r.by:+g}" for r in RULES)
        + f"; {IN_A_ROW} windows in a row",
        benign=("an agreed format or vocabulary that came with a new task", "quoted data"),
        evidence=evidence([each.seq for each in late[:20]]),
        entries=len(late),
        since=late[0].at,
        until=late[-1].at,
        action=f"nodrop log --after {late[0].seq - 1} --type message.*",
    )


def _first_held(metrics: Sequence[Metrics], rule: Rule) -> tuple[int | None, float]:
    """Return the window from which on a rule holds, and the largest drift."""
    usable = [
        m for m in metrics[TAUGHT:CALIBRATED] if rule.metric not in _WORDY or m.words >= WORDS_MIN
    ]
    if not usable:
        return None, 0.0
    usual = sum(getattr(m, rule.metric) for m in usable) / len(usable)
    languages = {"", *(m.language for m in usable)}
    sign = 1 if rule.by > 0 else -1
    run, begin, worst = 0, None, 0.0
    for n, m in enumerate(metrics[CALIBRATED:], CALIBRATED):
        drift = getattr(m, rule.metric) - usual
        enough = rule.metric not in _WORDY or m.words >= WORDS_MIN
        if rule.metric in _SHARES_OF_WORDS:  # a few words vary more
            enough &= abs(drift) >= ERRORS * math.sqrt(usual * (1 - usual) / max(m.words, 1))
        if rule.metric == "function" and m.language not in languages:
            enough = False  # another language has another share of such words
        run = run + 1 if enough and drift * sign >= abs(rule.by) else 0
        if run >= IN_A_ROW:
            begin = n - IN_A_ROW + 1 if begin is None else begin
            worst = max(worst, drift * sign)
    return begin, worst * sign
