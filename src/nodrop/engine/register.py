"""The register of agents: what they can do, and who can be asked for what.

A manifest is kept in every version, because a handoff is held to the one it was offered under.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import msgspec

from nodrop.core.commands import Candidate
from nodrop.core.contract import Agent, Capability, Manifest, json_schema
from nodrop.core.errors import (
    CapabilityRequiredError,
    InvalidRequestError,
    NoMatchError,
    Problem,
)
from nodrop.core.limits import SECOND, Limits
from nodrop.engine.intake import NAME
from nodrop.engine.rules import SUSPECT, Rules
from nodrop.wire.decoding import decode_strict

_ERRORS_SHOWN_MAX: Final = 20


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


class Register:
    """The agents of every team, and their schemas ready to check with."""

    def __init__(self, limits: Limits, rules: Rules | None = None) -> None:
        self._limits = limits
        self.rules = rules or Rules()
        self._agents: defaultdict[str, dict[str, tuple[Agent, bytes]]] = defaultdict(dict)
        self._manifests: dict[tuple[str, str, int], Manifest] = {}
        self._checks: dict[tuple[str, str, int, str, str], _Check] = {}

    def put(self, agent: Agent, manifest: bytes) -> None:
        """Know `agent` by its newest manifest."""
        self._agents[agent.team][agent.id] = (agent, manifest)
        self._manifests[agent.team, agent.id, agent.version] = agent.manifest

    def recall(self, team: str, agent: str, version: int, manifest: bytes) -> None:
        """Know an older manifest again."""
        self._manifests[team, agent, version] = read_manifest(manifest, agent, self._limits)

    def get(self, team: str, agent: str) -> tuple[Agent, bytes] | None:
        """Return an agent that has joined and not left."""
        known = self._agents[team].get(agent)
        return None if known is None or known[0].removed_at is not None else known

    def knows(self, team: str, agent: str) -> bool:
        """Whether anybody has joined by this name, or did once."""
        return agent in self._agents[team]

    def last_version(self, team: str, agent: str) -> int:
        """Return the version of the agent's newest manifest, 0 if it never had one."""
        known = self._agents[team].get(agent)
        return known[0].version if known else 0

    def all(self, team: str) -> list[tuple[Agent, bytes]]:
        """Return the agents of a team in the order of their names."""
        known = self._agents[team].values()
        return sorted((a for a in known if a[0].removed_at is None), key=lambda a: a[0].id)

    # --- routing ---

    def target(
        self, team: str, to: str | None, capability: str | None, *, sender: str, path: str = ""
    ) -> Target:
        """Return who is meant by `to` and `capability`, if `sender` may hand it to them."""
        if to is not None:
            named = self._named(team, to, capability, path)
            self.rules.require(team, sender, to, named.capability)
            return named
        if capability is None:
            problem = Problem(path=f"{path}to", message="name a recipient, a capability, or both")
            raise InvalidRequestError("nobody is asked", errors=(problem,))
        candidates = self.candidates(team, capability, sender=sender)
        if not candidates:
            if self.offering(team, capability):
                barred = NoMatchError(f"no rule lets {sender} hand {capability!r} to who offers it")
                barred.suspect = SUSPECT
                raise barred
            raise NoMatchError(f"no agent of this team offers {capability!r}")
        first = candidates[0]
        return Target(candidate=first, capability=capability, routed=True, known=True)

    def candidates(
        self, team: str, capability: str | None, *, sender: str
    ) -> tuple[Candidate, ...]:
        """Return whom `sender` may ask for a capability, in the order in which they would be asked."""
        return self.rules.admitted(team, sender, self.offering(team, capability), capability)

    def only_capability(self, team: str, agent: str) -> str | None:
        """Return the one capability of an agent; None if it has none, or several."""
        known = self.get(team, agent)
        declared = known[0].manifest.capabilities if known else ()
        return declared[0].name if len(declared) == 1 else None

    def offering(self, team: str, capability: str | None) -> tuple[Candidate, ...]:
        """Return who offers a capability, in the order of their names."""
        if capability is None:
            return ()
        return tuple(
            _candidate(agent, found)
            for agent, _ in self.all(team)
            if (found := agent.manifest.capability(capability)) is not None
        )

    def _named(self, team: str, to: str, capability: str | None, path: str) -> Target:
        known = self.get(team, to)
        if known is None:
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
            candidate=_candidate(agent, found),
            capability=found.name if found else capability,
            routed=False,
            known=True,
        )

    # --- checking payloads and results ---

    def problems(
        self, team: str, target: Candidate, capability: str | None, side: str, value: Any
    ) -> tuple[Problem, ...]:
        """Return what is wrong with a payload (`input`) or result (`output`); nothing if it fits."""
        if target.manifest_version is None or capability is None:
            return ()
        key = (team, target.agent, target.manifest_version, capability, side)
        check = self._checks.get(key)
        if check is None:
            manifest = self._manifests.get(key[:3])
            if manifest is None:
                raise MissingManifestError(*key[:3])
            found = manifest.capability(capability)
            declared = found and (found.input_schema if side == "input" else found.output_schema)
            check = self._checks[key] = _Check(declared)
        root = "payload" if side == "input" else "result"
        return tuple(check.problems(value, root))


class _Check:
    """A schema, compiled once."""

    def __init__(self, declared: dict[str, Any] | None) -> None:
        self._validator = None if declared is None else compile_schema(declared)

    def problems(self, value: Any, root: str) -> Iterator[Problem]:
        if self._validator is None or self._validator.is_valid(value):
            return
        for shown, error in enumerate(self._validator.iter_errors(value)):
            if shown >= _ERRORS_SHOWN_MAX:
                return
            yield Problem(path=dotted(root, error.instance_path), message=error.message[:200])


def compile_schema(declared: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Return a checker for what a manifest declares. Nothing is fetched; regexes run in linear time."""
    return jsonschema_rs.Draft202012Validator(
        json_schema(declared),
        offline=True,
        pattern_options=jsonschema_rs.RegexOptions(),
    )


def dotted(root: str, parts: list[str | int]) -> str:
    """Return a path as the problem document writes it: `payload.steps[0].name`."""
    return root + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)


def read_manifest(data: bytes, agent: str, limits: Limits) -> Manifest:
    """Return the relay's reading of a manifest as sent."""
    manifest = decode_strict(data, Manifest, limits)
    problems = list(_manifest_problems(manifest, agent, limits))
    if problems:
        error = InvalidRequestError("the manifest is not valid", errors=tuple(problems))
        if any("_schema" in problem.path for problem in problems):
            error.suspect = "schema"  # what reaches out, or would take for ever, does not compile
        raise error
    return manifest


def _manifest_problems(manifest: Manifest, agent: str, limits: Limits) -> Iterator[Problem]:
    if manifest.agent_id != agent:
        yield Problem(path="agent_id", message=f"expected {agent!r}, the agent it is published for")
    if len(manifest.capabilities) > limits.capabilities_max:
        yield Problem(path="capabilities", message=f"at most {limits.capabilities_max}")
        return
    seen: set[str] = set()
    for index, capability in enumerate(manifest.capabilities):
        where = f"capabilities[{index}]"
        if not NAME.fullmatch(capability.name) or len(capability.name) > limits.name_chars_max:
            message = f"1 to {limits.name_chars_max} printable ASCII characters"
            yield Problem(path=f"{where}.name", message=message)
        if capability.name in seen:
            yield Problem(path=f"{where}.name", message=f"{capability.name!r} is declared twice")
        seen.add(capability.name)
        if capability.timeout_seconds is not None and not 0 < capability.timeout_seconds < 1e9:  # noqa: PLR2004  # about 30 years
            yield Problem(path=f"{where}.timeout_seconds", message="must be more than 0")
        if capability.reliability_sla is not None and not 0 <= capability.reliability_sla <= 1:
            yield Problem(path=f"{where}.reliability_sla", message="must be between 0 and 1")
        yield from _schema_problems(capability, where, limits)


def _schema_problems(capability: Capability, where: str, limits: Limits) -> Iterator[Problem]:
    for field in ("input_schema", "output_schema"):
        declared: dict[str, Any] | None = getattr(capability, field)
        if declared is None:
            continue
        if len(msgspec.json.encode(declared)) > limits.schema_bytes_max:
            message = f"larger than {limits.schema_bytes_max} bytes"
            yield Problem(path=f"{where}.{field}", message=message)
            continue
        try:
            compile_schema(declared)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            message = str(error).split("\n", 1)[0][:200]
            yield Problem(path=f"{where}.{field}", message=message)


def _candidate(agent: Agent, capability: Capability | None) -> Candidate:
    timeout = capability.timeout_seconds if capability else None
    return Candidate(
        agent=agent.id,
        manifest_version=agent.version,
        timeout_ms=None if timeout is None else round(timeout * SECOND),
    )
