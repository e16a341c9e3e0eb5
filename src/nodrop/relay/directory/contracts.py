"""Contracts: what an offer and a manifest have in common, and the digest that both sides can make.

Nothing is stored. The same request under the same manifest gives the same contract, so an offer
that names the digest is held to it by making the contract again.
"""

from nodrop.model.errors import ContractMismatchError, NoMatchError, Problem
from nodrop.model.limits import Limits
from nodrop.protocol import canonical, directory, requests
from nodrop.protocol.directory import ContractView
from nodrop.protocol.times import format_duration
from nodrop.relay.directory.discovery import Discovery, Match, Query
from nodrop.relay.directory.register import Offering, Register
from nodrop.relay.directory.standings import Standings
from nodrop.relay.intake import Intake


class Contracts:
    """Makes contracts, and holds offers to them."""

    def __init__(
        self,
        register: Register,
        standings: Standings,
        discovery: Discovery,
        *,
        intake: Intake,
        limits: Limits,
    ) -> None:
        self._register = register
        self._standings = standings
        self._discovery = discovery
        self._intake = intake
        self._limits = limits

    def negotiate(
        self, team: str, sender: str, request: requests.Contract, *, now: int
    ) -> directory.ContractAnswer:
        """Return the contract with whoever `sender` would ask first.

        Raises:
            NoMatchError: nobody can be; `errors` has a reason for each candidate.
        """
        self._intake.contract(request, now=now)
        query = Query(
            capability=request.capability,
            input=self._discovery.shape(request.input, "input", sent=True),
            output=self._discovery.shape(request.output, "output", sent=False),
            reliability=request.reliability,
        )
        match = self._choose(team, sender, request, query, now)
        contract = self._contract(match.offering, request)
        return directory.ContractAnswer(
            contract=contract,
            digest=digest(contract),
            offering=self._discovery.offering(match),
            presence=match.presence.value,
        )

    def check(self, team: str, offer: requests.Offer, capability: str | None) -> None:
        """Refuse an offer whose contract is not the one it names.

        Raises:
            ContractMismatchError: the terms or the manifest are others by now.
        """
        offering = self._register.offering(team, capability or "", offer.to or "")
        if offering is None:
            raise ContractMismatchError(f"{offer.to} offers no {capability or 'capability'}")
        contract = self._contract(offering, offer)
        made = digest(contract)
        if made != offer.contract_digest:
            raise ContractMismatchError(
                f"with {contract.agent} at version {contract.manifest_version} of its manifest, "
                f"these terms make {made}"
            )

    def _choose(
        self, team: str, sender: str, request: requests.Contract, query: Query, now: int
    ) -> Match:
        offered = {o.agent.id: o for o in self._register.offerings(team, request.capability)}
        if request.to is not None:
            offered = {agent: o for agent, o in offered.items() if agent == request.to}
        allowed = self._register.rules.admitted(team, sender, offered, request.capability)
        reasons: list[Problem] = []
        unclear: Match | None = None
        for offering in sorted(offered.values(), key=lambda o: self._standings.place(o, now)):
            found = (
                self._discovery.judge(offering, query, now)
                if offering.agent.id in allowed
                else f"no rule lets {sender} hand it {request.capability}"
            )
            if isinstance(found, Match) and not found.unclear:
                return found
            if isinstance(found, Match):
                unclear = unclear or found
            elif len(reasons) < self._limits.reasons_max:
                reasons.append(Problem(path=offering.agent.id, message=found))
        if unclear is not None:
            return unclear
        if request.to is not None and not offered:
            reasons = [Problem(path=request.to, message=f"does not offer {request.capability}")]
        raise NoMatchError(
            f"nobody offers {request.capability!r} on such terms", errors=tuple(reasons)
        )

    def _contract(
        self, offering: Offering, terms: requests.Contract | requests.Offer
    ) -> ContractView:
        agent, limits = offering.agent, self._limits
        read = self._intake.length_or
        said = [ms for ms in (offering.capability.timeout_ms,) if ms is not None]
        said += [] if terms.timeout is None else [read(terms.timeout, 0)]
        return ContractView(
            team=agent.team,
            agent=agent.id,
            capability=offering.capability.name,
            manifest_version=agent.version,
            manifest_digest=f"sha256:{offering.manifest_sha256}",
            timeout=format_duration(min(said)) if said else None,
            accept_within=format_duration(read(terms.accept_within, limits.accept_within_ms)),
            update_every=format_duration(read(terms.update_every, limits.update_every_ms)),
            deadline=self._intake.deadline(terms.deadline),
            attempts_max=terms.attempts_max or limits.attempts_max,
        )


def digest(contract: ContractView) -> str:
    """Return the digest of a contract: SHA-256 over its canonical JSON."""
    return f"sha256:{canonical.sha256(canonical.dumps(contract))}"
