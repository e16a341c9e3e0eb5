"""Finding agents by what they can do: who fits, in which order, and why.

What an agent claims is shown beside what was measured; only the measured counts in the order.
"""

from collections.abc import Iterable
from heapq import merge
from typing import Any, Final

import msgspec

from nodrop.model.contract import Agent, json_schema
from nodrop.model.errors import InvalidRequestError, NotFoundError, Problem
from nodrop.model.handoff import Handoff, State, Value
from nodrop.model.limits import SECOND, Limits
from nodrop.model.shapes import FITS, Fit, Verdict, fits
from nodrop.model.standing import NOT_ENOUGH, Presence, TrackRecord, seconds
from nodrop.protocol import canonical, directory, requests, views
from nodrop.protocol.decoding import decode_strict
from nodrop.protocol.directory import ClaimView, ObservedView, OfferingView
from nodrop.protocol.times import format_duration, format_time, parse_duration
from nodrop.relay.directory.manifests import schema_problems
from nodrop.relay.directory.register import Offering, Register
from nodrop.relay.directory.standings import Standings
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock

COMPARED_MAX: Final = 65_536
"""Comparisons of shapes that are remembered; the next one pushes the oldest out."""
_A_THOUSAND: Final = 1_000
_OFFERED: Final = State.OFFERED
_AWAKE: Final = frozenset({Presence.WORKING, Presence.IDLE})
_NO_OUTPUT: Final = Fit(verdict=Verdict.UNCLEAR, reason="it does not say what it returns")


class Shape(Value, frozen=True, kw_only=True):
    """A shape that somebody asks about, and what it is remembered by."""

    schema: dict[str, Any]
    sha256: str


class Query(Value, frozen=True, kw_only=True):
    """What is asked of an agent."""

    capability: str | None = None
    tags: frozenset[str] = frozenset()
    input: Shape | None = None
    output: Shape | None = None
    timeout_ms: int | None = None
    reliability: float | None = None
    available: bool = False


_ANYTHING: Final = Query()


class Match(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An offering that will do, as far as anybody can tell."""

    offering: Offering
    record: TrackRecord
    presence: Presence
    queued: int
    input: Fit | None
    output: Fit | None

    @property
    def unclear(self) -> bool:
        """Whether a shape was asked about and nobody can tell."""
        given, got = self.input, self.output
        return (given is not None and given.verdict is not Verdict.FITS) or (
            got is not None and got.verdict is not Verdict.FITS
        )


Name = tuple[str, str]
"""Of an offering: its agent's, its capability's."""
Place = tuple[int, float, float, int, str, str]
"""The smallest first: who is there, who delivers, how fast, how much waits, the names."""


class Discovery:
    """Looks agents up, by name or by what they can do."""

    def __init__(
        self,
        register: Register,
        standings: Standings,
        *,
        intake: Intake,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._register = register
        self._intake = intake
        self._standings = standings
        self._clock = clock
        self._limits = limits
        self._compared: dict[tuple[bytes, str, bool], Fit] = {}
        self._orders: dict[tuple[str, str | None], tuple[int, dict[Name, Place]]] = {}
        """By team and capability: when what is offered was put in order, and the order."""

    # --- by name ---

    def show(self, team: str, agent: str) -> directory.AgentView:
        """Return an agent with everything it offers."""
        known = self._register.get(team, agent)
        if known is None:
            raise NotFoundError("no such agent")
        offered = (
            self._register.offering(team, capability.name, agent)
            for capability in known[0].manifest.capabilities
        )
        presence = self._standings.attendance.state(known[0], self._clock.now())
        matches = [
            self._match(offering, self._standings.record(offering), presence)
            for offering in offered
            if offering
        ]
        return self._agent(*known, tuple(map(self.offering, matches)))

    def page(self, team: str, *, after: str | None, limit: int) -> directory.AgentsAnswer:
        """Return a page of a team's agents, by name."""
        known = [a for a in self._register.all(team) if after is None or a[0].id > after]
        shown = tuple(self._agent(*agent, ()) for agent in known[:limit])
        more = shown[-1].agent_id if len(known) > limit else None
        return directory.AgentsAnswer(agents=shown, after=more)

    def warnings(self, handoff: Handoff) -> tuple[views.WarningView, ...]:
        """Tell a sender what it should know about the recipient; the mail is kept all the same."""
        to = handoff.recipient
        if handoff.state is not _OFFERED or to == "me":
            return ()
        known = self._register.get(handoff.team, to)
        if known is None:
            detail = f"no agent called {to} has joined yet; the handoff waits in its inbox"
            return (views.WarningView(code="recipient_unknown", detail=detail),)
        attendance = self._standings.attendance
        if attendance.connected(known[0]):
            return ()
        present = attendance.present(known[0], self._clock.now())
        if present.state in _AWAKE:
            return ()
        if present.state is Presence.GHOST:
            detail = f"{to} should have been heard of and was not; the handoff waits in its inbox"
            return (views.WarningView(code="recipient_ghost", detail=detail),)
        back = "" if present.until is None else f" and expected at {format_time(present.until)}"
        detail = f"{to} is not connected now{back}; the handoff waits in its inbox"
        return (views.WarningView(code="recipient_asleep", detail=detail),)

    # --- by what they can do ---

    def shape(self, said: requests.Shape | None, path: str, *, sent: bool) -> Shape | None:
        """Return the shape that a caller means; `sent` is one that the caller would send itself.

        Raises:
            InvalidRequestError: it is none.
        """
        if said is None:
            return None
        text = said.encode() if isinstance(said, str) else canonical.dumps(said)
        if len(text) > self._limits.shape_bytes_max:
            raise _wrong(path, f"larger than {self._limits.shape_bytes_max} bytes")
        try:
            declared = decode_strict(text, dict[str, Any], self._limits)
        except InvalidRequestError as error:
            raise _wrong(path, error.detail) from None
        for problem in schema_problems(declared, path, self._limits):
            refused = _wrong(path, problem.message)
            refused.suspect = "schema"  # as in a manifest
            raise refused
        schema = json_schema(declared)
        if sent and schema is not declared:  # shorthand for what is sent: that, and nothing else
            schema = {**schema, "additionalProperties": False}
        return Shape(schema=schema, sha256=canonical.sha256(canonical.dumps(schema)))

    def answer(self, team: str, request: requests.ListAgents) -> directory.AgentsAnswer:
        """Return who can do what is asked for; everybody, by name, where nothing is."""
        query = self.query(request)
        if query is None:
            most = self._limits.page_items_max if request.limit is None else request.limit
            return self.page(team, after=request.after, limit=self._intake.limit(most))
        return self.find(team, query, limit=self._intake.limit(request.limit))

    def query(self, request: requests.ListAgents) -> Query | None:
        """Return what a request asks of an agent; None if nothing in particular.

        Raises:
            InvalidRequestError: it asks for what cannot be.
        """
        timeout_ms: int | None = None
        if request.timeout is not None:
            try:
                timeout_ms = parse_duration(request.timeout)
            except ValueError as error:
                raise _wrong("timeout", str(error)) from None
        if request.reliability is not None and not 0 <= request.reliability <= 1:
            raise _wrong("reliability", "must be between 0 and 1")
        tags = (tag.strip() for tag in (request.tags or "").split(","))
        query = Query(
            capability=request.capability,
            tags=frozenset(tag for tag in tags if tag),
            input=self.shape(request.input, "input", sent=True),
            output=self.shape(request.output, "output", sent=False),
            timeout_ms=timeout_ms,
            reliability=request.reliability,
            available=request.available,
        )
        return None if query == _ANYTHING else query

    def find(self, team: str, query: Query, *, limit: int) -> directory.AgentsAnswer:
        """Return who can do what is asked, the best first."""
        now = self._clock.now()
        clear: dict[str, None] = {}
        unclear: dict[str, None] = {}
        for offering in self._in_order(team, query.capability, now):
            found = self.judge(offering, query, now)
            if isinstance(found, Match):
                (unclear if found.unclear else clear)[offering.agent.id] = None
                if len(clear) == limit:
                    break  # whoever comes later ranks behind these
        best = list(dict.fromkeys((*clear, *unclear)))[:limit]
        shown = (self._found(team, agent, query, now) for agent in best)
        return directory.AgentsAnswer(agents=tuple(shown))

    def _found(self, team: str, agent: str, query: Query, now: int) -> directory.AgentView:
        known = self._register.get(team, agent)
        assert known is not None, "what is offered is offered by somebody"
        names = [query.capability] if query.capability else _names(known[0])
        offered = (self._register.offering(team, name, agent) for name in names)
        judged = [self.judge(offering, query, now) for offering in offered if offering]
        matches = sorted((m for m in judged if isinstance(m, Match)), key=self._rank)
        return self._agent(*known, tuple(map(self.offering, matches)))

    def _in_order(self, team: str, capability: str | None, now: int) -> Iterable[Offering]:
        """Return what is offered by rank, the shapes aside.

        Of very much, by the rank that each had lately; what has come since is put in its place.
        """
        offered = {
            (o.agent.id, o.capability.name): o for o in self._register.offerings(team, capability)
        }
        key = (team, capability)
        made_at, order = self._orders.get(key, (now, {}))
        few = len(offered) <= self._limits.candidates_fresh_max
        # The more there are, the longer it takes to put them in order, and the less it matters.
        kept_ms = self._limits.candidates_kept_ms * (1 + len(offered) // _A_THOUSAND)
        if few or now - made_at >= kept_ms:
            made_at, order = now, {}
        new = sorted(
            (self._place(offered[name], now), name) for name in offered.keys() - order.keys()
        )
        if few:
            self._orders.pop(key, None)
            return (offered[name] for _, name in new)
        if not order:
            self._orders[key] = (now, {name: place for place, name in new})
        lately = ((place, name) for name, place in order.items() if name in offered)
        return (offered[name] for _, name in merge(new, lately))

    def judge(self, offering: Offering, query: Query, now: int) -> Match | str:
        """Return how an offering meets a query, or why it does not."""
        if not query.tags <= offering.tags:
            return f"it is not tagged {', '.join(sorted(query.tags - offering.tags))}"
        record = self._standings.record(offering)
        refused = self._refused_terms(offering, record, query)
        if refused is not None:
            return refused
        presence = self._standings.attendance.state(offering.agent, now)
        if query.available and presence not in _AWAKE:
            return f"it is {presence}"
        given, got = self._input(offering, query.input), self._output(offering, query.output)
        if given is not None and given.verdict is Verdict.MISFIT:
            return f"input: {given.reason}"
        if got is not None and got.verdict is Verdict.MISFIT:
            return f"output: {got.reason}"
        return self._match(offering, record, presence, given, got)

    def _refused_terms(self, offering: Offering, record: TrackRecord, query: Query) -> str | None:
        if query.timeout_ms is not None:
            claimed = offering.capability.timeout_ms
            if claimed is None or claimed > query.timeout_ms:
                said = "nothing" if claimed is None else format_duration(claimed)
                return f"timeout: it says {said}"
        if query.reliability is not None:
            success = record.success(self._limits)
            if success is None or success < query.reliability:
                return f"reliability: {_observed(record, self._limits)}"
        return None

    def _match(
        self,
        offering: Offering,
        record: TrackRecord,
        presence: Presence,
        given: Fit | None = None,
        got: Fit | None = None,
    ) -> Match:
        agent = offering.agent
        return Match(
            offering=offering,
            record=record,
            presence=presence,
            queued=self._standings.queued(agent.team, agent.id),
            input=given,
            output=got,
        )

    def _rank(self, match: Match) -> tuple[bool, Place]:
        return match.unclear, self._place(match.offering, self._clock.now())

    def _place(self, offering: Offering, now: int) -> Place:
        agent, record = offering.agent, self._standings.record(offering)
        return (
            self._standings.attendance.state(agent, now).place,
            -round(record.score(self._limits), 2),
            seconds(record.duration_ms),
            self._standings.queued(agent.team, agent.id),
            agent.id,
            offering.capability.name,
        )

    def _input(self, offering: Offering, sent: Shape | None) -> Fit | None:
        if sent is None:
            return None
        declared, sha256 = offering.capability.input_schema, offering.input_sha256
        if declared is None or sha256 is None:
            return FITS  # it takes anything
        key = (sha256, sent.sha256, True)
        fit = self._compared.get(key)
        return fit or self._remember(key, fits(sent.schema, json_schema(declared)))

    def _output(self, offering: Offering, needed: Shape | None) -> Fit | None:
        if needed is None:
            return None
        declared, sha256 = offering.capability.output_schema, offering.output_sha256
        if declared is None or sha256 is None:
            return _NO_OUTPUT
        key = (sha256, needed.sha256, False)
        fit = self._compared.get(key)
        return fit or self._remember(key, fits(json_schema(declared), needed.schema))

    def _remember(self, key: tuple[bytes, str, bool], fit: Fit) -> Fit:
        self._compared[key] = fit
        if len(self._compared) > COMPARED_MAX:
            del self._compared[next(iter(self._compared))]
        return fit

    # --- views ---

    def _agent(
        self, agent: Agent, manifest: bytes, offers: tuple[OfferingView, ...]
    ) -> directory.AgentView:
        present = self._standings.attendance.present(agent, self._clock.now())
        return directory.AgentView(
            agent_id=agent.id,
            version=agent.version,
            manifest=msgspec.Raw(manifest),
            connected=self._standings.attendance.connected(agent),
            presence=present.state.value,
            until=None if present.until is None else format_time(present.until),
            seen_at=None if present.seen_at is None else format_time(present.seen_at),
            queued=self._standings.queued(agent.team, agent.id),
            registered_at=format_time(agent.registered_at),
            offers=offers,
        )

    def offering(self, match: Match) -> OfferingView:
        """Return a match as it is shown."""
        capability, record = match.offering.capability, match.record
        success = record.success(self._limits)
        took = record.duration_ms
        said = [match.presence.value, _observed(record, self._limits)]
        said += [] if took is None else [f"usually in {format_duration(took)}"]
        said.append(f"{match.queued} waiting")
        unclear = ["cannot tell whether it fits"] if match.unclear else []
        return OfferingView(
            capability=capability.name,
            claimed=ClaimView(
                timeout_seconds=capability.timeout_seconds,
                reliability_sla=capability.reliability_sla,
            ),
            observed=ObservedView(
                n=record.n,
                completed=record.completed,
                success=None if success is None else round(success, 4),
                duration_seconds=None if took is None else took / SECOND,
                says=_observed(record, self._limits),
            ),
            input=None if match.input is None else str(match.input),
            output=None if match.output is None else str(match.output),
            why="; ".join((*unclear, *said)),
        )


def _names(agent: Agent) -> list[str]:
    return [capability.name for capability in agent.manifest.capabilities]


def _observed(record: TrackRecord, limits: Limits) -> str:
    if not record.proven(limits):
        return f"{NOT_ENOUGH} (n = {record.n})"
    return f"{record.completed} of {record.n} completed"


def _wrong(path: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {message}", errors=(Problem(path=path, message=message),))
