"""Notices in words: what happened, why, since when, and the commands that answer it.

Notices to one reader that have the same cause are gathered into one item. Nothing is lost: the log has
every one, and the inbox shows them one by one on request.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from nodrop.log.port import Mail
from nodrop.model.commands import RELAY
from nodrop.model.handoff import DEAD, Handoff, QuestionKind, Value
from nodrop.protocol import showing, views
from nodrop.protocol.text import notice_sentence
from nodrop.protocol.times import format_duration, format_time

_REASON_CHARS_MAX: Final = 200
_DEAD: Final = frozenset(state.value for state in DEAD)
_OF_THE_RELAY: Final = frozenset({"escalated", "nudged"})
"""Notices about how a handoff stands; the others are about one thing that happened."""


class _Cause(Value, frozen=True, kw_only=True):
    """The matter of a notice, and whose move it is about."""

    about: str
    agent: str
    since: int
    code: str | None = None


def of(
    m: Mail, h: Handoff, reader: str, *, title: str, reason: str | None = None
) -> views.NoticeView:
    """Return a notice about `h` as `reader` is told of it."""
    kind = m.type.removeprefix("handoff.").removesuffix(".v1")
    cause = _standing(h, m.at) if kind in _OF_THE_RELAY else _happened(h, kind, m.at)
    return views.NoticeView(
        about=cause.about,
        agent=cause.agent,
        code=cause.code,
        what=_what(cause.about, cause.agent, cause.code, reader, "it"),
        reason=reason[:_REASON_CHARS_MAX] if reason and cause.about in _DEAD else None,
        why=_why(m, h, reader),
        since=format_time(cause.since),
        commands=_commands(cause, h, reader),
        count=1,
        handoffs=(views.NoticedView(id=h.id, ref=showing.ref(h), title=title),),
    )


def summary(notice: views.NoticeView) -> str:
    """Return a notice in one line."""
    since = f"since {notice.since}"
    said = notice_sentence(notice.what, since, reason=notice.reason, why=notice.why)
    return said if notice.count > 1 else f"{notice.handoffs[0].title}: {said}"


def gathered(items: Iterable[views.ItemView], reader: str) -> tuple[views.ItemView, ...]:
    """Return inbox items with notices of one cause as one item, at the place of the last of them."""
    groups: dict[object, list[views.ItemView]] = {}
    for item in items:
        notice = item.notice
        cause = notice and (notice.about, notice.agent, notice.code, notice.why, item.from_)
        groups.setdefault(cause or item.seq, []).append(item)
    found = [_together(group, reader) for group in groups.values()]
    return tuple(sorted(found, key=lambda item: item.seq))


def _together(group: list[views.ItemView], reader: str) -> views.ItemView:
    notices = [item.notice for item in group if item.notice is not None]
    if len(notices) < 2:  # noqa: PLR2004  # one alone is as it is
        return group[0]
    first = notices[0]
    them = f"{len(group)} handoffs"
    each = "nodrop dlq list" if first.about in _DEAD else "nodrop inbox --each"
    alike = f"nodrop dismiss {shlex.quote(first.handoffs[0].ref)} --alike"
    notice = replace(
        first,
        what=_what(first.about, first.agent, first.code, reader, them),
        reason=first.reason if len({notice.reason for notice in notices}) == 1 else None,
        since=min(notice.since for notice in notices),
        commands=(each, alike),
        count=len(group),
        handoffs=tuple(handoff for notice in notices for handoff in notice.handoffs),
    )
    return replace(group[-1], summary=summary(notice), notice=notice)


# --- what it is about ---------------------------------------------------------------------------


def _standing(h: Handoff, at: int) -> _Cause:
    """Return what a handoff waits for now: who was told of a delay reads how it stands."""
    if h.outcome is not None:
        if h.state in DEAD:
            return _ended(h, h.outcome.at)
        return _Cause(about="outcome", agent=h.origin, since=h.outcome.at)
    if h.question is not None:
        about = "terms" if h.question.kind is QuestionKind.TERMS else "blocked"
        return _Cause(about=about, agent=h.question.asked, since=h.question.asked_at)
    if h.ack is None and h.queued is None:
        return _Cause(about="unacknowledged", agent=h.recipient, since=h.offered_at)
    said = h.ack or h.queued
    promised = said.next_update_at if said is not None else None
    if promised is not None and promised <= at:
        return _Cause(about="silent", agent=h.recipient, since=promised)
    return _Cause(about="acknowledged", agent=h.recipient, since=at)


def _happened(h: Handoff, kind: str, at: int) -> _Cause:
    """Return what one entry told of."""
    if h.outcome is not None and kind == h.state.value:
        return _ended(h, at)
    if kind in {"returned", "reassigned"}:
        return _Cause(about="withdrawn", agent=h.recipient, since=at)
    return _Cause(about=kind, agent=h.recipient, since=at)


def _ended(h: Handoff, at: int) -> _Cause:
    code = h.outcome.code if h.outcome is not None else None
    told = None if code == h.state.value else code
    return _Cause(about=h.state.value, agent=h.recipient, since=at, code=told)


# --- in words -----------------------------------------------------------------------------------

_WHAT: Final[Mapping[str, str]] = {
    "unacknowledged": "{who} {have} not acknowledged {it}",
    "acknowledged": "{who} {have} acknowledged {it} meanwhile",
    "silent": "{who} {owe} an update on {it}",
    "blocked": "{who} {have} not answered a question about {it}",
    "terms": "{who} {have} not answered a counter-offer for {it}",
    "outcome": "the outcome of {it} waits for {who}",
    "failed": "{it} failed{whose}",
    "rejected": "{who} rejected {it}",
    "expired": "the deadline of {it} passed{whose}",
    "completed": "{who} completed {it}",
    "cancelled": "{it} was cancelled",
    "updated": "{who} reported on {it}",
    "answered": "the question about {it} was answered",
    "agreed": "the new terms of {it} were agreed",
    "withdrawn": "a question about {it} is no longer asked",
    "late_result_kept": "{who} handed in a result of {it} after its end",
}


def _what(about: str, agent: str, code: str | None, reader: str, it: str) -> str:
    you = agent == reader
    words = _WHAT.get(about, about.replace("_", " ") + ": {it}")
    said = words.format(
        it=it,
        who="you" if you else agent,
        whose="" if agent == RELAY.agent else f" with {'you' if you else agent}",
        have="have" if you else "has",
        owe="owe" if you else "owes",
    )
    return f"{said}: {code.replace('_', ' ')}" if code else said


def _why(m: Mail, h: Handoff, reader: str) -> str | None:
    """Return which escalation step told the reader, and whose step it is."""
    told = next((n for n in h.notices if n.reader == reader and n.version == m.version), None)
    if told is None or told.step is None:
        return None
    step = h.escalation[told.step]
    after = f" after {format_duration(step.after_ms)}" if step.after_ms else ""
    if told.step >= len(h.terms.escalation or ()):
        whose = "the team's"
    else:
        whose = "your" if reader == h.origin else f"{h.origin}'s"
    return f'{whose} step "{step.when}{after}"'


_ELSEWHERE: Final = "nodrop reassign {ref} --to NAME"
_TRACK: Final = "nodrop track {ref}"
_MINE: Final[Mapping[str, tuple[str, ...]]] = {
    "unacknowledged": ("nodrop ack {ref}",),
    "silent": ("nodrop update {ref} TEXT",),
    "outcome": ("nodrop wait {ref}",),
}
"""Where the reader owes the move."""
_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "unacknowledged": (_ELSEWHERE, _TRACK),
    "silent": (_TRACK, _ELSEWHERE),
    "blocked": ("nodrop answer {ref} TEXT", _TRACK),
    "terms": ("nodrop agree {ref}", "nodrop decline {ref}"),
    "failed": ("nodrop dlq redrive {ref}", _TRACK),
    "rejected": ("nodrop dlq redrive {ref} --to NAME", _TRACK),
    "expired": ("nodrop dlq redrive {ref}", _TRACK),
    "late_result_kept": ("nodrop dlq accept {ref}", _TRACK),
}


def _commands(cause: _Cause, h: Handoff, reader: str) -> tuple[str, ...]:
    mine = _MINE.get(cause.about) if cause.agent == reader else None
    ways = mine or _COMMANDS.get(cause.about, (_TRACK,))
    ref = shlex.quote(showing.ref(h))
    return tuple(way.format(ref=ref) for way in (*ways, "nodrop dismiss {ref}"))
