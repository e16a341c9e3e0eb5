"""The register of agents: what they can do, and who can be asked for what.

A handoff is held to the version of a manifest that it was offered under. The newest of each agent is here;
older ones, and schemas that are ready to check with, are kept up to a bound and made again when needed.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import jsonschema_rs
import msgspec

from nodrop.model.commands import Candidate
from nodrop.model.contract import Agent, Capability, Manifest, json_schema
from nodrop.model.errors import (
    CapabilityRequiredError,
    InvalidRequestError,
    NoMatchError,
    PayloadInvalidError,
    Problem,
)
from nodrop.model.limits import Limits
from nodrop.model.names import folded
from nodrop.protocol import canonical
from nodrop.relay.directory.manifests import compile_schema
from nodrop.relay.directory.schema_cost import SchemaCost
from nodrop.relay.directory.schema_graph import ExpensiveSchemaError
from nodrop.relay.identity.rules import SUSPECT, Rules

OLDER_BYTES_MAX: Final = 1_048_576
"""Older manifests that are kept, as long as they were when they were sent."""
CHECKS_WEIGHT_MAX: Final = 131_072
"""Schemas that are kept ready to check with, in units of about 100 bytes."""
_EMPTY_WEIGHT: Final = 8
_ERRORS_SHOWN_MAX: Final = 20
_SIMPLER: Final = "send less at once, or name each group of alternatives once under $defs"
_encode: Final = msgspec.json.Encoder().encode
_DOES_NOT_FIT: Final = "does not fit the schema; it is too large to say where"


class MissingManifestError(Exception):
    """An older manifest must be fetched from the store before a decision can be made."""

    def __init__(self, team: str, agent: str, version: int) -> None:
        super().__init__(team, agent, version)
        self.team, self.agent, self.version = team, agent, version


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, and under which capability."""

    candidate: Candidate
    capability: str | None
    routed: bool
    known: bool


class Offering(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One capability of one agent, ready to be found, compared and asked for."""

    agent: Agent
    capability: Capability
    candidate: Candidate
    named: Target
    """What an offer to this agent, for this capability, means."""
    tags: frozenset[str]
    """The agent's and the capability's."""
    manifest_sha256: str
    """Of the manifest as sent."""
    input_sha256: bytes | None
    output_sha256: bytes | None
    """Of the JSON Schemas that the manifest means; None where it says nothing."""


Order = Callable[[str, str, Mapping[str, Offering], Collection[str]], Iterable[Offering]]
"""(team, capability, who offers it, whom to leave out) → whom to ask, in this order."""


class Register:
    """The agents of every team, and their schemas ready to check with."""

    def __init__(
        self, limits: Limits, rules: Rules | None = None, *, order: Order | None = None
    ) -> None:
        """Put candidates in this `order`; None: by name."""
        self._limits = limits
        self.rules = rules or Rules()
        self._order = order or _by_name
        self._offerings: defaultdict[str, dict[str, dict[str, Offering]]] = defaultdict(dict)
        """By team, capability and agent."""
        self._agents: defaultdict[str, dict[str, tuple[Agent, bytes]]] = defaultdict(dict)
        self._folded: dict[tuple[str, str], str] = {}
        """The first name of a team among those that are much alike."""
        self._older: dict[tuple[str, str, int], tuple[Manifest, int]] = {}
        """Manifests that were replaced or recalled, and their lengths, the latest last."""
        self._older_bytes = 0
        self._checks: dict[tuple[str, str, int, str, str], _Check] = {}
        """Those lately used last. Also used on the thread that checks large payloads."""

    def put(self, agent: Agent, manifest: bytes) -> None:
        """Know `agent` by its newest manifest."""
        offered = self._offerings[agent.team]
        before = self._agents[agent.team].get(agent.id)
        for capability in before[0].manifest.capabilities if before else ():
            by_agent = offered.get(capability.name, {})
            by_agent.pop(agent.id, None)
            if not by_agent:
                offered.pop(capability.name, None)
        if agent.removed_at is None and agent.manifest.capabilities:
            sha256 = canonical.sha256(manifest)
            for capability in agent.manifest.capabilities:
                by_agent = offered.setdefault(capability.name, {})
                by_agent[agent.id] = _offering(agent, capability, sha256)
        self._agents[agent.team][agent.id] = (agent, manifest)
        self._folded.setdefault((agent.team, folded(agent.id)), agent.id)
        if before is not None and before[0].version != agent.version:
            key = (agent.team, agent.id, before[0].version)
            self._keep_older(key, before[0].manifest, len(before[1]))

    def recall(self, team: str, agent: str, version: int, manifest: bytes) -> None:
        """Know an older manifest again. It was checked when it came, by the rules of its day."""
        decoded = msgspec.json.decode(manifest, type=Manifest)
        self._keep_older((team, agent, version), decoded, len(manifest))

    def _keep_older(self, key: tuple[str, str, int], manifest: Manifest, size: int) -> None:
        _, replaced = self._older.pop(key, (None, 0))
        self._older[key] = (manifest, size)
        self._older_bytes += size - replaced
        while self._older_bytes > OLDER_BYTES_MAX and len(self._older) > 1:
            _, gone = self._older.pop(next(iter(self._older)))
            self._older_bytes -= gone

    def _manifest(self, team: str, agent: str, version: int) -> Manifest:
        newest = self._agents[team].get(agent)
        if newest is not None and newest[0].version == version:
            return newest[0].manifest
        older = self._older.get((team, agent, version))
        if older is None:
            raise MissingManifestError(team, agent, version)
        return older[0]

    def get(self, team: str, agent: str) -> tuple[Agent, bytes] | None:
        """Return an agent that has joined and not left."""
        known = self._agents[team].get(agent)
        return None if known is None or known[0].removed_at is not None else known

    def knows(self, team: str, agent: str) -> bool:
        """Whether anybody has joined by this name, or did once."""
        return agent in self._agents[team]

    def like(self, team: str, agent: str) -> str | None:
        """Return the name of an agent that differs from this one only in case or dots at its end."""
        return self._folded.get((team, folded(agent)))

    def last_version(self, team: str, agent: str) -> int:
        """Return the version of the agent's newest manifest, 0 if it never had one."""
        known = self._agents[team].get(agent)
        return known[0].version if known else 0

    def last_known(self, team: str, agent: str) -> Agent | None:
        """Return an agent as it was last known, though it may have left."""
        known = self._agents[team].get(agent)
        return known[0] if known else None

    def all(self, team: str) -> list[tuple[Agent, bytes]]:
        """Return the agents of a team in the order of their names."""
        known = self._agents[team].values()
        return sorted((a for a in known if a[0].removed_at is None), key=lambda a: a[0].id)

    def offering(self, team: str, capability: str, agent: str) -> Offering | None:
        """Return what an agent offers under a capability's name."""
        return self._offerings[team].get(capability, {}).get(agent)

    def offerings(self, team: str, capability: str | None = None) -> Iterator[Offering]:
        """Yield everything that is offered under a capability's name, or at all."""
        offered = self._offerings[team]
        if capability is not None:
            yield from offered.get(capability, {}).values()
            return
        for by_agent in offered.values():
            yield from by_agent.values()

    # --- routing ---

    def target(
        self,
        team: str,
        to: str | None,
        capability: str | None,
        *,
        sender: str,
        asked: Collection[str] = (),
        path: str = "",
    ) -> Target:
        """Return who is meant by `to` and `capability`, if `sender` may hand it to them.

        Whoever was `asked` is not found by capability again.
        """
        if to is not None:
            offered = self._offerings[team].get(capability or "")
            offering = offered.get(to) if offered else None
            named = self._named(team, to, capability, path) if offering is None else offering.named
            if team in self.rules.policies:
                self.rules.require(team, sender, to, named.capability)
            return named
        if capability is None:
            problem = Problem(path=f"{path}to", message="name a recipient, a capability, or both")
            raise InvalidRequestError("nobody is asked", errors=(problem,))
        candidates = self.candidates(team, capability, sender=sender, asked=asked)
        if not candidates:
            raise self._nobody(team, capability, sender, asked)
        first = candidates[0]
        return Target(candidate=first, capability=capability, routed=True, known=True)

    def target_taking(
        self,
        team: str,
        to: str | None,
        capability: str | None,
        payload: Any,
        *,
        sender: str,
        asked: Collection[str] = (),
    ) -> Target:
        """Return who is meant, and takes `payload`: of those found by capability, the first who does.

        Raises:
            PayloadInvalidError: none of them does.
        """
        target = self.target(team, to, capability, sender=sender, asked=asked)
        able = target.candidate
        if target.routed:
            others = self.candidates(team, target.capability, sender=sender, asked=asked)
            able = next(iter(self.who_take(team, others, target.capability, payload)), able)
        if problems := self.problems(team, able, target.capability, "input", payload):
            raise PayloadInvalidError(f"{able.agent} does not take it", errors=problems)
        return msgspec.structs.replace(target, candidate=able)

    def _nobody(
        self, team: str, capability: str, sender: str, asked: Collection[str]
    ) -> NoMatchError:
        if asked and self.candidates(team, capability, sender=sender):
            return NoMatchError(f"everybody who offers {capability!r} was asked already")
        if self._offerings[team].get(capability):
            barred = NoMatchError(f"no rule lets {sender} hand {capability!r} to who offers it")
            barred.suspect = SUSPECT
            return barred
        return NoMatchError(f"no agent of this team offers {capability!r}")

    def candidates(
        self,
        team: str,
        capability: str | None,
        *,
        sender: str,
        asked: Collection[str] = (),
    ) -> tuple[Candidate, ...]:
        """Return whom `sender` may ask for a capability and has not `asked`, the best first.

        Of very many, the best few: there are none only if there is nobody.
        """
        offered = self._offerings[team].get(capability or "")
        if not offered or capability is None:
            return ()
        offered = self.rules.admitted(team, sender, offered, capability)
        return tuple(o.candidate for o in self._order(team, capability, offered, asked))

    def only_capability(self, team: str, agent: str) -> str | None:
        """Return the one capability of an agent; None if it has none, or several."""
        known = self.get(team, agent)
        declared = known[0].manifest.capabilities if known else ()
        return declared[0].name if len(declared) == 1 else None

    def _named(self, team: str, to: str, capability: str | None, path: str) -> Target:
        known = self._agents[team].get(to)
        if known is None or known[0].removed_at is not None:
            candidate = Candidate(agent=to)
            return Target(candidate=candidate, capability=capability, routed=False, known=False)
        agent = known[0]
        declared = agent.manifest.capabilities
        if capability is None and len(declared) > 1:
            names = ", ".join(c.name for c in declared)
            problem = Problem(path=f"{path}capability", message=f"one of: {names}")
            raise CapabilityRequiredError(f"{to} has several capabilities", errors=(problem,))
        found = declared[0] if capability is None and declared else None
        if capability is not None and declared:
            found = agent.manifest.capability(capability)
            if found is None:
                names = ", ".join(c.name for c in declared)
                raise NoMatchError(f"{to} does not offer {capability!r}; it offers {names}")
        return Target(
            candidate=candidate_of(agent, found),
            capability=found.name if found else capability,
            routed=False,
            known=True,
        )

    # --- checking payloads and results ---

    def who_take(
        self, team: str, candidates: Iterable[Candidate], capability: str | None, payload: Any
    ) -> tuple[Candidate, ...]:
        """Return the candidates whose capability takes a payload."""
        return tuple(
            candidate
            for candidate in candidates
            if not self.problems(team, candidate, capability, "input", payload)
        )

    def problems(  # noqa: PLR0917  # called for every payload and result: names would take longer
        self,
        team: str,
        target: Candidate,
        capability: str | None,
        side: str,
        value: Any,
        bytes_max: int | None = None,
    ) -> tuple[Problem, ...]:
        """Return what is wrong with a payload (`input`) or result (`output`); nothing if it fits.

        As JSON it is no more than `bytes_max` long, if that is known.
        """
        version = target.manifest_version
        if version is None or capability is None:
            return ()
        key = (team, target.agent, version, capability, side)
        check = self._checks.pop(key, None)
        if check is None:
            found = self._manifest(team, target.agent, version).capability(capability)
            declared = found and (found.input_schema if side == "input" else found.output_schema)
            check = self._checks[key] = _Check(declared, self._limits)
            self._note_weight(check)
        else:
            self._checks[key] = check
        if check.takes_anything or (
            (len(_encode(value)) if bytes_max is None else bytes_max) <= check.bytes_at_a_glance
            and check.is_valid(value)
        ):
            return ()
        root = "payload" if side == "input" else "result"
        problems = () if check.fits(value) else tuple(check.problems(value, root))
        self._note_weight(check)
        return problems

    def _note_weight(self, check: "_Check") -> None:
        """Bound the checks where one of them has grown."""
        weight = check.weight
        grown, check.noted_weight = weight > check.noted_weight, weight
        if grown:
            self._bound_checks()

    def shed(self) -> None:
        """Forget the checks: each can be made ready again."""
        self._checks.clear()

    def _bound_checks(self) -> None:
        """Forget the checks that were used longest ago, where all weigh too much; never the last."""
        kept = list(self._checks.items())
        weight = sum(check.weight for _, check in kept)
        for key, check in kept[:-1]:
            if weight <= CHECKS_WEIGHT_MAX:
                break
            self._checks.pop(key, None)
            weight -= check.weight


class _Check:
    """A schema, compiled once, and its cost."""

    def __init__(self, declared: dict[str, Any] | None, limits: Limits) -> None:
        self._limits = limits
        self._validator: jsonschema_rs.Draft202012Validator | None = None
        self._cost: SchemaCost | None = None
        self.takes_anything = declared is None
        self.bytes_at_a_glance = -1
        """A value of no more JSON than this takes few enough steps to check, whatever it is."""
        self.is_valid: Callable[[Any], bool] = bool
        self._expensive: str | None = None
        self.noted_weight = 0
        """What it weighed when that was looked at last."""
        if declared is None:
            return
        try:
            self._cost = SchemaCost(json_schema(declared), limits)
            self._validator = compile_schema(declared, limits)
            self.bytes_at_a_glance = self._cost.bytes_at_a_glance
            self.is_valid = self._validator.is_valid
        except ExpensiveSchemaError as error:  # published before schemas were bounded
            self._expensive = f"the schema cannot be checked: {error}; it must be published anew"

    @property
    def weight(self) -> int:
        """How much memory it takes, in units of about 100 bytes."""
        return _EMPTY_WEIGHT if self._cost is None else _EMPTY_WEIGHT + self._cost.weight

    def fits(self, value: Any) -> bool:
        """Whether a value is known to fit."""
        if self._validator is None or self._cost is None:
            return self._expensive is None
        cheap = self._cost.steps(value, _encode(value)) is not None
        return cheap and self.is_valid(value)

    def problems(self, value: Any, root: str) -> Iterator[Problem]:
        """Yield what is wrong with a value that does not fit."""
        if self._expensive is not None:
            yield Problem(path=root, message=self._expensive)
        if self._validator is None or self._cost is None:
            return
        data = msgspec.json.encode(value)
        if self._cost.steps(value, data) is None:
            message = f"takes more than {self._limits.schema_steps_max} steps to check; {_SIMPLER}"
            yield Problem(path=root, message=message)
        else:
            yield from self._errors(value, data, root)

    def _errors(self, value: Any, data: bytes, root: str) -> Iterator[Problem]:
        """Yield what is wrong with a value that does not fit, as far as collecting it is bounded.

        The validator collects all errors, each with what it is about and those of every alternative.
        """
        assert self._validator is not None
        assert self._cost is not None
        if self._cost.bytes_of_errors(value, data) is not None:
            for error in islice(self._validator.iter_errors(value), _ERRORS_SHOWN_MAX):
                yield _problem(root, error)
        elif (
            not self._cost.has_alternatives and self._cost.steps_of_errors(value, data) is not None
        ):
            try:
                self._validator.validate(value)  # which ends at the first
            except jsonschema_rs.ValidationError as error:
                yield _problem(root, error)
        else:
            yield Problem(path=root, message=_DOES_NOT_FIT)


def _problem(root: str, error: jsonschema_rs.ValidationError) -> Problem:
    return Problem(path=dotted(root, error.instance_path), message=error.message[:200])


def dotted(root: str, parts: list[str | int]) -> str:
    """Return a path as the problem document writes it: `payload.steps[0].name`."""
    return root + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)


def _by_name(
    team: str, capability: str, offered: Mapping[str, Offering], asked: Collection[str]
) -> Iterable[Offering]:
    del team, capability
    return (offered[agent] for agent in sorted(offered) if agent not in asked)


def _offering(agent: Agent, capability: Capability, manifest_sha256: str) -> Offering:
    candidate = candidate_of(agent, capability)
    return Offering(
        agent=agent,
        capability=capability,
        candidate=candidate,
        named=Target(candidate=candidate, capability=capability.name, routed=False, known=True),
        tags=frozenset((*agent.manifest.tags, *capability.tags)),
        manifest_sha256=manifest_sha256,
        input_sha256=_schema_sha256(capability.input_schema),
        output_sha256=_schema_sha256(capability.output_schema),
    )


def _schema_sha256(declared: dict[str, Any] | None) -> bytes | None:
    if declared is None:
        return None
    return hashlib.sha256(canonical.dumps(json_schema(declared))).digest()


def candidate_of(agent: Agent, capability: Capability | None = None) -> Candidate:
    """Return an agent as one that may be asked, held to its current manifest."""
    return Candidate(
        agent=agent.id,
        manifest_version=agent.version,
        timeout_ms=capability.timeout_ms if capability else None,
    )
