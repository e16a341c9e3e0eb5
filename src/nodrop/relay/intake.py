"""From a request to a command: defaults filled in, durations resolved, bounds kept.

Everything wrong with a request is found here and told with its path, all of it at once where that
is possible. Nothing here knows the state of a handoff.
"""

import operator
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import compress
from typing import Any, Final, cast

import msgspec

from nodrop.model import commands, template
from nodrop.model.clocks import HEAD_START_MS
from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    Problem,
    TooLargeError,
    UnsupportedFieldError,
)
from nodrop.model.handoff import (
    Backoff,
    Elsewhere,
    Escalation,
    Leg,
    Priority,
    Proposal,
    State,
    Terms,
    When,
)
from nodrop.model.limits import Limits
from nodrop.model.names import AGENT_ID, is_agent_id, is_name, name_pattern
from nodrop.protocol import bodies, canonical, requests, traces
from nodrop.protocol.bodies import Content, LegText
from nodrop.protocol.operations import kind_of
from nodrop.protocol.times import (
    Duration,
    format_duration,
    format_time,
    parse_due,
    parse_duration,
)
from nodrop.relay.identity.proved import Proved

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_PROBLEMS_TOLD_MAX: Final = 20
LEG_ON: Final = ("completed", "failed")
LEG_ROOTS: Final = ("result", "origin", "payload", "outcome")
"""What the template of a leg's payload may refer to."""
_SETTLE: Final = commands.Settle()


class Intake:
    """Reads requests under one relay's limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.legs_max = limits.legs_max
        usual = _Reader(limits, 0)
        agent, trace = re.compile(AGENT_ID).fullmatch, traces.TRACEPARENT.fullmatch
        name = name_pattern(limits.key_chars_max).fullmatch
        text = re.compile(rf"(?s).{{0,{limits.text_chars_max}}}").fullmatch
        self._fits = (agent, agent, text, text, text, name, name, name, name, trace)
        """What returns None where a short text is none: one for each that `_short_of` returns."""
        self._usual_backoff = usual.backoff(requests.BackoffSpec())
        self._usual_terms = self._terms(requests.Offer(), usual)

    # --- offers ---

    def terms(self, offer: requests.Offer, *, now: int) -> Terms:
        """Return the terms that an offer asks for."""
        short = _short_of(offer)
        said = tuple(map(_is_said, short))
        fits = map(_call, compress(self._fits, said), compress(short, said))
        asks = offer.to is not None or offer.capability is not None
        if asks and _rare_of(offer) == _USUAL and None not in fits:  # as most are
            deadline_at = now + self._limits.deadline_ms
            return msgspec.structs.replace(self._usual_terms, deadline_at=deadline_at)
        read = _Reader(self._limits, now)
        terms = self._terms(offer, read)
        self._check_offer(offer, read)
        read.done()
        return terms

    def _terms(self, offer: requests.Offer, read: "_Reader") -> Terms:
        limits = self._limits
        return Terms(
            priority=read.priority(offer.priority, "priority"),
            accept_within_ms=read.duration(
                offer.accept_within, "accept_within", limits.accept_within_ms
            ),
            update_every_ms=read.duration(
                offer.update_every, "update_every", limits.update_every_ms
            ),
            deadline_at=read.due(offer.deadline, "deadline", limits.deadline_ms),
            answer_within_ms=limits.answer_within_ms,
            outcome_within_ms=limits.outcome_within_ms,
            attempts_max=read.attempts(offer.attempts_max, "attempts_max"),
            backoff=self._usual_backoff if offer.backoff is None else read.backoff(offer.backoff),
            escalation=None
            if offer.escalation is None
            else tuple(read.escalations(offer.escalation)),
            timeout_asked_ms=read.duration_or_none(offer.timeout, "timeout"),
            marks=read.marks(offer),
        )

    def _check_offer(self, offer: requests.Offer, read: "_Reader") -> None:
        read.unsupported(offer.supersedes, "supersedes")
        if offer.group is not None:
            read.wrong("group", "a group is offered as a whole: POST /v1/groups")
        if offer.contract_digest is not None:
            read.digest(offer.contract_digest, "contract_digest")
            if offer.to is None:
                read.wrong("to", "a contract is with one agent: name it")
        read.agent(offer.from_, "from")
        read.agent(offer.to, "to")
        for path in ("trigger", "title", "expected_outcome"):
            read.text(getattr(offer, path), path)
        for path in ("capability", "correlation_id", "parent_id", "idempotency_key"):
            read.name(getattr(offer, path), path)
        read.traceparent(offer.traceparent)
        if len(offer.watchers) > self._limits.watchers_max:
            read.wrong("watchers", f"at most {self._limits.watchers_max}")
        else:
            for index, watcher in enumerate(offer.watchers):
                read.agent(watcher, f"watchers[{index}]")
        if offer.to is None and offer.capability is None:
            read.wrong("to", "name a recipient, a capability, or both")

    def team_steps(self, specs: tuple[requests.TeamStepSpec, ...]) -> tuple[Escalation, ...]:
        """Return the escalation steps of a team."""
        read = _Reader(self._limits, 0)
        steps = tuple(
            read.escalations(
                tuple(
                    requests.EscalationSpec(when=spec.when, after=spec.after, notify=spec.notify)
                    for spec in specs
                )
            )
        )
        read.done()
        return steps

    def legs(self, offer: requests.Offer) -> tuple[Leg, ...]:
        """Return the legs to come."""
        if not offer.then:
            return ()
        read = _Reader(self._limits, 0)
        if len(offer.then) > self._limits.legs_max:
            read.wrong("then", f"at most {self._limits.legs_max} legs")
            read.done()
        legs = tuple(read.leg(leg, f"then[{index}]") for index, leg in enumerate(offer.then))
        read.done()
        return legs

    def content(self, offer: requests.Offer, proved: Proved | None = None) -> bytes:
        """Return the body of an offer, and of what proves who made it."""
        content = Content(
            trigger=offer.trigger,
            title=offer.title,
            payload=msgspec.Raw(canonical.dumps(offer.payload)),
            expected_outcome=offer.expected_outcome,
            observations=offer.observations,
            parameters=offer.parameters,
            covariates=offer.covariates,
            metadata=offer.metadata,
            legs=tuple(map(_leg_text, offer.then)) if offer.then else (),
            signed=proved.kept if proved else None,
            verified=proved is not None and offer.from_ in {None, proved.agent},
        )
        body = canonical.dumps(content)
        return body if len(body) <= self._limits.body_bytes_max else self.bounded(body)

    # --- the other commands ---

    def command(self, request: requests.Request, *, now: int) -> commands.Command:
        """Return the command that a request about an existing handoff means."""
        kind = kind_of(request.__class__)
        said: Any = request
        if kind is requests.Settle:
            return _SETTLE
        if kind is requests.Complete:
            body = canonical.dumps({"result": said.result})
            if len(body) > self._limits.body_bytes_max:
                self.bounded(body)
            return commands.Complete(attempt=said.attempt, body=body)
        if kind is requests.Ack and (
            said.status is said.position is said.eta is said.next_update is None
        ):  # the relay is to fill in all that it may say
            return commands.Acknowledge(attempt=said.attempt, queued=said.queued)
        read = _Reader(self._limits, now)
        command = self._command(request, read)
        read.done()
        return command

    def _command(self, request: requests.Request, read: "_Reader") -> commands.Command:
        match request:
            case requests.Update():
                read.text(request.status, "status")
                said: dict[str, Any] = {
                    "attempt": request.attempt,
                    "position": read.position(request.position),
                    "eta_at": read.due_or_none(request.eta, "eta"),
                    "next_update_at": read.due_or_none(request.next_update, "next_update"),
                    "body": bodies.words(status=request.status),
                }
                if isinstance(request, requests.Ack):
                    return commands.Acknowledge(queued=request.queued, **said)
                return commands.Update(**said)
            case requests.Reject():
                return commands.Reject(attempt=request.attempt, body=self._reason(request, read))
            case requests.Counter():
                return self._counter(request, read)
            case requests.Block():
                return self._block(request, read)
            case requests.Fail():
                read.name(request.code, "code")
                return commands.Fail(
                    attempt=request.attempt,
                    retryable=request.retryable,
                    code=request.code,
                    body=self._reason(request, read),
                )
            case requests.Release():
                return commands.Release(
                    attempt=request.attempt,
                    checkpoint=self._checkpoint(request.checkpoint),
                    body=self._reason(request, read),
                )
            case requests.Step():
                read.name(request.name, "name")
                body = self.bounded(bodies.data("value", request.value))
                return commands.RecordStep(attempt=request.attempt, name=request.name, body=body)
            case requests.Checkpoint():
                body = self.bounded(bodies.data("checkpoint", request.checkpoint))
                return commands.Checkpoint(attempt=request.attempt, body=body)
            case requests.Cancel():
                return commands.Cancel(body=self._reason(request, read))
            case requests.Discard():
                return commands.Discard(body=self._reason(request, read))
            case requests.Erase():
                return commands.Erase()
            case requests.Dismiss():
                read.agent(request.inbox, "inbox")
                return commands.Dismiss(reader=request.inbox)
            case requests.Note():
                return commands.Note(body=self.note(request))
            case _:
                raise TypeError(type(request))

    def note(self, request: requests.Note) -> bytes:
        """Return the body of a note."""
        read = _Reader(self._limits, 0)
        read.text(request.text, "text")
        if not request.text.strip():
            read.wrong("text", "must say something")
        read.done()
        return bodies.data("text", request.text)

    def answer(self, request: requests.Answer) -> bytes:
        """Return the body of an answer."""
        return self.bounded(bodies.data("answer", request.answer))

    def reason(self, reason: str | None) -> bytes | None:
        """Return the body that holds a reason."""
        read = _Reader(self._limits, 0)
        read.text(reason, "reason")
        read.done()
        return bodies.words(reason=reason)

    def name(self, name: str | None, path: str) -> None:
        """Refuse what cannot be a name: odd characters in one could pass for others."""
        if name is None or is_name(name, chars_max=self._limits.key_chars_max):
            return
        read = _Reader(self._limits, 0)
        read.name(name, path)
        read.done()

    def traceparent(self, value: str | None) -> None:
        """Refuse what is no trace context."""
        read = _Reader(self._limits, 0)
        read.traceparent(value)
        read.done()

    def text(self, text: str | None, path: str) -> None:
        """Refuse a text over the bound."""
        read = _Reader(self._limits, 0)
        read.text(text, path)
        read.done()

    def agent(self, agent: str | None, path: str) -> None:
        """Refuse what cannot be an agent's id."""
        read = _Reader(self._limits, 0)
        read.agent(agent, path)
        read.done()

    def due(self, value: Duration | None, path: str, default_ms: int, *, now: int) -> int:
        """Return the point in time that `value` names."""
        read = _Reader(self._limits, now)
        due = read.due(value, path, default_ms)
        read.done()
        return due

    def length(self, value: Duration, path: str) -> int:
        """Return a length of time, nothing included."""
        read = _Reader(self._limits, 0)
        length = read.duration(value, path, 0, least=0)
        read.done()
        return length

    def contract(self, request: requests.Contract, *, now: int) -> None:
        """Refuse terms that no offer could have."""
        read = _Reader(self._limits, now)
        read.agent(request.to, "to")
        read.name(request.capability, "capability")
        for name in ("timeout", "update_every", "accept_within"):
            read.duration_or_none(getattr(request, name), name)
        read.due_or_none(request.deadline, "deadline")
        if request.attempts_max is not None:
            read.attempts(request.attempts_max, "attempts_max")
        if request.reliability is not None:
            read.between(request.reliability, "reliability", 0, 1)
        read.done()

    def length_or(self, value: Duration | None, default_ms: int) -> int:
        """Return how long a duration is that was read before."""
        return _Reader(self._limits, 0).duration(value, "", default_ms)

    def deadline(self, value: Duration | None) -> str:
        """Return a deadline that was read before in the one way to write it: as it was meant."""
        if value is None:
            return format_duration(self._limits.deadline_ms)
        length = parse_due(value, now=0)
        # The same from another start is a point in time, anything else a duration.
        is_time = parse_due(value, now=1) == length
        return format_time(length) if is_time else format_duration(length)

    def wait(self, value: Duration, *, now: int) -> int:
        """Return until when a caller waits: at once, or at most the relay's bound from now."""
        read = _Reader(self._limits, now)
        wait = read.duration(value, "wait", 0, least=0)
        read.done()
        return now + min(wait, self._limits.wait_ms_max)

    def limit(self, value: int | None) -> int:
        """Return how many items a page holds."""
        if value is None:
            return self._limits.page_items
        if value < 1:
            problem = Problem(path="limit", message="must be at least 1")
            raise InvalidRequestError("the page would be empty", errors=(problem,))
        return min(value, self._limits.page_items_max)

    def state(self, value: str | None) -> str | None:
        """Refuse what no handoff can be: a list of them would only look empty."""
        if value is not None and value not in tuple(State):
            problem = Problem(path="state", message=f"expected one of {', '.join(State)}")
            raise InvalidRequestError("there is no such state", errors=(problem,))
        return value

    def marks(self, request: requests.ListHandoffs) -> tuple[str, ...]:
        """Return the marks that a list is asked for by."""
        read = _Reader(self._limits, 0)
        marks = read.marks(request)
        read.done()
        return marks

    def heartbeat_ms(self, seconds: float | None) -> int | None:
        """Return the heartbeat a taker promises."""
        if seconds is None:
            return None
        least, most = self._limits.heartbeat_seconds_min, self._limits.heartbeat_seconds_max
        read = _Reader(self._limits, 0)
        read.between(seconds, "heartbeat_seconds", least, most)
        read.done()
        return round(seconds * 1000)

    def process(self, process: str | None, default: str) -> str:
        """Return the process a taker names; one that names none is its agent's only one."""
        read = _Reader(self._limits, 0)
        read.name(process, "process")
        read.done()
        return default if process is None else process

    def bounded(self, body: bytes) -> bytes:
        """Refuse a body over the bound."""
        if len(body) > self._limits.body_bytes_max:
            raise TooLargeError(f"{len(body)} bytes, at most {self._limits.body_bytes_max}")
        return body

    def _reason(self, request: Any, read: "_Reader") -> bytes | None:
        read.text(request.reason, "reason")
        return bodies.words(reason=request.reason)

    def _checkpoint(self, value: Any) -> bytes | None:
        if value is msgspec.UNSET:
            return None
        return self.bounded(bodies.data("checkpoint", value))

    def _counter(self, request: requests.Counter, read: "_Reader") -> commands.Counter:
        proposal = Proposal(
            deadline_at=read.due_or_none(request.deadline, "deadline"),
            update_every_ms=read.duration_or_none(request.update_every, "update_every"),
            accept_within_ms=read.duration_or_none(request.accept_within, "accept_within"),
            priority=None
            if request.priority is None
            else read.priority(request.priority, "priority"),
            timeout_ms=read.duration_or_none(request.timeout, "timeout"),
        )
        if proposal == Proposal():
            read.wrong("deadline", "propose at least one of the terms")
        body = self._reason(request, read)
        return commands.Counter(attempt=request.attempt, proposal=proposal, body=body)

    def _block(self, request: requests.Block, read: "_Reader") -> commands.Block:
        read.text(request.question, "question")
        read.agent(request.to, "to")
        read.text(request.name, "name")
        if not request.question.strip():
            read.wrong("question", "must ask something")
        words = bodies.words(question=request.question, name=request.name)
        assert words is not None, "a question says something"
        return commands.Block(
            attempt=request.attempt,
            asked=request.to,
            park=request.park,
            checkpoint=self._checkpoint(request.checkpoint),
            body=words,
        )


def _leg_text(leg: requests.LegSpec) -> LegText:
    return LegText(
        title=leg.title,
        trigger=leg.trigger,
        expected_outcome=leg.expected_outcome,
        payload=leg.payload,
    )


class _Reader:
    """Collects what is wrong while it reads, so that a caller hears of everything at once."""

    def __init__(self, limits: Limits, now: int) -> None:
        self._limits = limits
        self._now = now
        self._problems: list[Problem] = []
        self._unsupported: list[Problem] = []

    def done(self) -> None:
        """Refuse the request if anything was wrong."""
        if not (self._problems or self._unsupported):
            return
        kind: type[NodropError] = InvalidRequestError
        if self._unsupported and not self._problems:
            kind = UnsupportedFieldError
        problems = (*self._problems, *self._unsupported)
        first = f"{problems[0].path}: {problems[0].message}"
        raise kind(first, errors=problems[:_PROBLEMS_TOLD_MAX])

    def wrong(self, path: str, message: str) -> None:
        self._problems.append(Problem(path=path, message=message))

    def unsupported(self, value: Any, path: str) -> None:
        if value is not None:
            self._unsupported.append(Problem(path=path, message="not supported by this relay yet"))

    def agent(self, value: str | None, path: str) -> None:
        if value is not None and not is_agent_id(value):
            self.wrong(path, "expected an agent id: letters, digits, _ . - (at most 64)")

    def name(self, value: str | None, path: str) -> None:
        chars_max = self._limits.key_chars_max
        if value is not None and not is_name(value, chars_max=chars_max):
            self.wrong(path, f"expected 1 to {chars_max} printable ASCII characters")

    def traceparent(self, value: str | None) -> None:
        if value is not None and not traces.is_traceparent(value):
            self.wrong("traceparent", "expected a W3C traceparent")

    def marks(self, said: requests.Offer | requests.ListHandoffs) -> tuple[str, ...]:
        marks: list[str] = []
        for name in requests.MARKS:
            value = getattr(said, name)
            if value is not None:
                self.name(value, name)
                marks.append(f"{name}={value}")
        return tuple(marks)

    def digest(self, value: str, path: str) -> None:
        if not _DIGEST.fullmatch(value):
            self.wrong(path, "expected sha256: and 64 hexadecimal digits")

    def text(self, value: str | None, path: str) -> None:
        if value is not None and len(value) > self._limits.text_chars_max:
            self.wrong(path, f"at most {self._limits.text_chars_max} characters")

    def priority(self, value: str, path: str) -> Priority:
        try:
            return Priority(value)
        except ValueError:
            self.wrong(path, f"expected one of {', '.join(reversed(HEAD_START_MS))}")
            return Priority.MEDIUM

    def position(self, value: int | None) -> int | None:
        if value is not None and not 1 <= value <= 1_000_000_000:  # noqa: PLR2004  # a queue's length
            self.wrong("position", "the first in the queue is 1")
        return value

    def backoff(self, spec: requests.BackoffSpec) -> Backoff:
        limits = self._limits
        return Backoff(
            first_ms=self.duration(spec.first, "backoff.first", limits.backoff_first_ms),
            factor_percent=round(100 * self.between(spec.factor, "backoff.factor", 1, 100)),
            max_ms=self.duration(spec.max, "backoff.max", limits.backoff_max_ms),
        )

    def attempts(self, value: int | None, path: str) -> int:
        value = self._limits.attempts_max if value is None else value
        most = self._limits.attempts_max_max
        return int(self.between(value, path, 1, most))

    def between(self, value: float, path: str, least: float, most: float) -> float:
        if not least <= value <= most:
            self.wrong(path, f"must be between {least:g} and {most:g}")
            return least
        return value

    def duration(
        self, value: Duration | None, path: str, default_ms: int, *, least: int = 1
    ) -> int:
        if value is None:
            return default_ms
        try:
            ms = parse_duration(value)
        except ValueError as error:
            self.wrong(path, str(error))
            return default_ms
        if not least <= ms <= self._limits.duration_ms_max:
            self.wrong(path, "too long" if ms > least else "must be more than 0")
            return default_ms
        return ms

    def duration_or_none(self, value: Duration | None, path: str) -> int | None:
        return None if value is None else self.duration(value, path, 0)

    def due(self, value: Duration | None, path: str, default_ms: int) -> int:
        if value is None:
            return self._now + default_ms
        try:
            at = parse_due(value, now=self._now)
        except (ValueError, OverflowError) as error:
            self.wrong(path, str(error))
            return self._now + default_ms
        if at <= self._now:
            self.wrong(path, "must be in the future")
        elif at - self._now > self._limits.duration_ms_max:
            self.wrong(path, "too far in the future")
        return at

    def due_or_none(self, value: Duration | None, path: str) -> int | None:
        return None if value is None else self.due(value, path, 0)

    def escalations(self, steps: tuple[requests.EscalationSpec, ...]) -> Iterator[Escalation]:
        if len(steps) > self._limits.escalation_steps_max:
            self.wrong("escalation", f"at most {self._limits.escalation_steps_max} steps")
            return
        for index, step in enumerate(steps):
            path = f"escalation[{index}]"
            self.agent(step.notify, f"{path}.notify")
            after = self.duration(step.after, f"{path}.after", 0, least=0)
            reassign = self.elsewhere(step.reassign, f"{path}.reassign")
            raised = step.raise_priority
            raise_to = None if raised is None else self.priority(raised, f"{path}.raise_priority")
            if step.when not in set(When):
                self.wrong(f"{path}.when", f"expected one of {', '.join(When)}")
            elif step.notify is None and reassign is None and raise_to is None:
                self.wrong(f"{path}.notify", "name whom to tell, or what to do about it")
            else:
                yield Escalation(
                    when=When(step.when),
                    after_ms=after,
                    notify=step.notify,
                    reassign=reassign,
                    raise_to=raise_to,
                )

    def elsewhere(self, spec: requests.ElsewhereSpec | None, path: str) -> Elsewhere | None:
        if spec is None:
            return None
        self.agent(spec.to, f"{path}.to")
        self.name(spec.capability, f"{path}.capability")
        if spec.to is None and spec.capability is None:
            self.wrong(f"{path}.to", "name a recipient, a capability, or both")
        return Elsewhere(to=spec.to, capability=spec.capability)

    def leg(self, leg: requests.LegSpec, path: str) -> Leg:
        if leg.on not in LEG_ON:
            self.wrong(f"{path}.on", f"expected one of {', '.join(LEG_ON)}")
        for where, message in template.problems(leg.payload, LEG_ROOTS, f"{path}.payload"):
            self.wrong(where, message)
        for name in ("title", "trigger", "expected_outcome"):
            self.text(getattr(leg, name), f"{path}.{name}")
        self.agent(leg.to, f"{path}.to")
        self.name(leg.capability, f"{path}.capability")
        if leg.to is None and leg.capability is None:
            self.wrong(f"{path}.to", "name a recipient, a capability, or both")
        priority = leg.priority and self.priority(leg.priority, f"{path}.priority")
        attempts = leg.attempts_max
        return Leg(
            to=leg.to,
            capability=leg.capability,
            priority=Priority(priority) if priority else None,
            accept_within_ms=self.duration_or_none(leg.accept_within, f"{path}.accept_within"),
            update_every_ms=self.duration_or_none(leg.update_every, f"{path}.update_every"),
            deadline_ms=self.duration_or_none(leg.deadline, f"{path}.deadline"),
            attempts_max=None
            if attempts is None
            else self.attempts(attempts, f"{path}.attempts_max"),
            fallback=leg.on == "failed",
            detached=leg.detached,
        )


_RARE: Final = {
    field.name: () if field.name == "watchers" else field.default
    for field in msgspec.structs.fields(requests.Offer)
    if field.name
    in {
        *("priority", "accept_within", "update_every", "deadline", "timeout"),
        *("attempts_max", "backoff", "escalation"),
        *("watchers", "contract_digest", "supersedes", "group"),
        *requests.MARKS,
    }
}
"""The fields of an offer that state its terms, and others that few offers have, with their defaults."""
_rare_of: Final = operator.attrgetter(*_RARE)
_USUAL: Final = tuple(_RARE.values())
_short_of: Final = operator.attrgetter(
    *("from_", "to", "trigger", "title", "expected_outcome", "capability"),
    *("correlation_id", "parent_id", "idempotency_key", "traceparent"),
)
_call: Final = cast("Callable[[Callable[[str], object], str], object]", operator.call)
_is_said: Final = partial(operator.is_not, None)
