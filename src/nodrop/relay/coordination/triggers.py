"""Triggers: rules that hand something off when an event comes. At hand; kept as records of the team.

This knows rules and events. Writing events down and making handoffs of them is `events`.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from nodrop.log.port import Record, Store
from nodrop.model import template
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol import requests
from nodrop.protocol.coordination import trigger_requests, trigger_views
from nodrop.protocol.times import format_time
from nodrop.relay.coordination.conditions import ROOT, Condition, UnmetError
from nodrop.relay.intake import Intake

KIND: Final = "trigger"
_TEMPLATES: Final = ("title", "trigger", "expected_outcome", "payload", "correlation_id")
"""Fields of an offer in which `${event.data.x}` stands for a value."""
_NOT_IN_RULES: Final = ("idempotency_key", "command_id", "signature", "group", "turn_based")
"""What makes no sense in an offer that is made again for each event."""
_UNSAID: Final = requests.Offer()
ALWAYS: Final = "true"
"""The condition of a rule that says none. It needs no CEL."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger, as it is kept."""

    name: str
    on: str
    when: str
    offer: requests.Offer
    from_file: bool = False
    set_at: int


class Trigger:
    """A rule, ready to be used."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._condition: Condition | None = None

    def hears_of(self, kind: str) -> bool:
        """Whether events of this type concern it."""
        on = self.rule.on
        return kind.startswith(on[:-1]) if on.endswith("*") else kind == on

    def met(self, event: dict[str, Any]) -> bool:
        """Whether an event meets its condition; raises `UnmetError` where that cannot be said."""
        if self.rule.when == ALWAYS:
            return True
        if self._condition is None:
            try:
                self._condition = Condition(self.rule.when)
            except (
                InvalidRequestError
            ) as error:  # kept before it was refused: not the event's fault
                raise UnmetError(error.detail) from error
        return self._condition.met(event)

    def offer(self, event: dict[str, Any]) -> requests.Offer:
        """Return what is handed off for an event.

        Raises:
            UnfilledError: the event lacks what a template asks for.
        """
        values = {ROOT: event}
        written = self.rule.offer
        filled = {
            name: template.filled(value, values)
            for name in _TEMPLATES
            if (value := getattr(written, name)) is not None
        }
        filled.setdefault("trigger", f"{event['type']} ({self.rule.name})")
        return replace(written, **filled)


class Triggers:
    """The rules of every team."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._rules: defaultdict[str, dict[str, Trigger]] = defaultdict(dict)

    async def load(self, store: Store, team: str | None = None) -> None:
        """Read what the store knows, of one team or of all, and nothing else."""
        records = await store.records(KIND, of=None if team is None else (team, ""))
        for of in list(self._rules) if team is None else [team]:
            self._rules.pop(of, None)
        for record in records:
            self.put(record.team, msgspec.json.decode(record.json, type=Rule))

    def put(self, team: str, rule: Rule) -> None:
        """Know a rule as it is now."""
        self._rules[team][rule.name] = Trigger(rule)

    def drop(self, team: str, name: str) -> None:
        """Forget a rule."""
        self._rules[team].pop(name, None)

    def get(self, team: str, name: str) -> Trigger | None:
        """Return a rule by its name."""
        return self._rules[team].get(name)

    def all(self, team: str) -> list[Trigger]:
        """Return the rules of a team in the order of their names."""
        return [trigger for _, trigger in sorted(self._rules[team].items())]

    def read(self, request: trigger_requests.PutTrigger, name: str, *, now: int) -> Rule:
        """Return the rule that a request means.

        Raises:
            InvalidRequestError: with the place in it that is wrong.
        """
        self._intake.name(name, "name")
        problems = [Problem(path=path, message=why) for path, why in _problems(request)]
        if problems:
            first = f"{problems[0].path}: {problems[0].message}"
            raise InvalidRequestError(first, errors=tuple(problems))
        if request.when != ALWAYS:
            Condition(request.when)
        try:
            self._intake.terms(request.offer, now=now)
            self._intake.legs(request.offer)
        except InvalidRequestError as error:
            error.errors = tuple(
                Problem(path=f"offer.{p.path}", message=p.message) for p in error.errors
            )
            raise
        return Rule(
            name=name,
            on=request.on,
            when=request.when,
            offer=request.offer,
            from_file=request.from_file,
            set_at=now,
        )


def record(team: str, rule: Rule) -> Record:
    """Return a rule as a store keeps it."""
    return Record(team=team, kind=KIND, id=rule.name, json=msgspec.json.encode(rule))


def shown(rule: Rule) -> trigger_views.TriggerView:
    """Return a rule as its team sees it."""
    standard = msgspec.to_builtins(requests.Offer())
    offer = {k: v for k, v in msgspec.to_builtins(rule.offer).items() if standard[k] != v}
    return trigger_views.TriggerView(
        name=rule.name,
        on=rule.on,
        when=rule.when,
        offer=offer,
        from_file=rule.from_file,
        set_at=format_time(rule.set_at),
    )


def _problems(request: trigger_requests.PutTrigger) -> Iterator[tuple[str, str]]:
    on = request.on.removesuffix("*")
    if not on.isprintable() or not request.on.strip() or "*" in on:
        yield "on", "expected an event type, or the beginning of one followed by *"
    for name in _NOT_IN_RULES:
        if getattr(request.offer, name) is not getattr(_UNSAID, name):
            yield f"offer.{name}", "it would be the same for every event"
    for name in _TEMPLATES:
        written = getattr(request.offer, name)
        yield from template.problems(written, (ROOT,), f"offer.{name}")
