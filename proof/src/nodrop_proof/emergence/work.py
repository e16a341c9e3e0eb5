"""Work that is handed along: what is usual, what only looks like trouble, and what is trouble.

Five roles, chains that are declared and chains that are not, rework, votes, maps, polling,
retries, questions, failures, and chains that are cut off where the log ends.
"""

from collections.abc import Sequence
from typing import Any, Final

from nodrop_proof.emergence.script import Act, Label, Script, chain_id
from nodrop_proof.simulate.chance import Chance

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
SPAN: Final = 60 * HOUR
DEADLINE: Final = 4 * HOUR
ROLES: Final = ("intake", "research", "draft", "review", "publish")
SLA: Final = 0.9
ESCALATE: Final = 20 * MINUTE
RETRIES_MAX: Final = 4
_CHAINS_PER_AGENT: Final = {60: 30, 200: 12, 500: 6}


class Work:
    """Writes the work of a team of agents into a script."""

    def __init__(self, script: Script, chance: Chance, agents: int) -> None:
        self.script = script
        self.chance = chance
        self.clients = [f"client_{n}" for n in range(max(agents // 10, 2))]
        each = max((agents - len(self.clients)) // len(ROLES), 3)
        self.staff = {role: [f"{role}_{n}" for n in range(each)] for role in ROLES}
        self._agents = agents
        self._retry_storms: list[Label] = []
        self._escalation_storms: list[Label] = []

    # --- everything ---

    def usual(self, chains: int | None = None) -> None:
        """Add what a day brings, and what looks like trouble and is none.

        Args:
            chains: how many; as many as suit the agents by default.
        """
        for role in ROLES:
            for agent in self.staff[role]:
                self.script.add(0, Act.REGISTER, agent, capabilities={role: SLA})
        near = min(_CHAINS_PER_AGENT, key=lambda size: abs(size - self._agents))
        count = self._agents * _CHAINS_PER_AGENT[near] if chains is None else chains
        for _ in range(count):
            self._any(self.chance.uniform(MINUTE, SPAN))
        self._surge(count // 12)
        self._declared_ring()
        self._busy_pair()

    def _any(self, at: float) -> None:
        kind = self.chance.pick(
            {
                self._declared: 0.6,
                self._by_hand: 0.3,
                self._map: 0.04,
                self._vote: 0.03,
                self._poll: 0.03,
            }
        )
        kind(at)

    def plant_loops(self, count: int) -> None:
        """Add work that goes round, each time with something new."""
        for n in range(count):
            at = self.chance.uniform(HOUR, SPAN - 8 * HOUR)
            ring = self._ring(2 if n % 2 else self.chance.randint(3, 4))
            hops = self.chance.randint(5, 9) if len(ring) == 2 else len(ring) * 4 + 1  # noqa: PLR2004
            chain = self._round(at, ring, hops)
            kind = "ping-pong" if len(ring) == 2 else "loop"  # noqa: PLR2004
            self._label("loops", kind, chain_id(chain))

    def plant_livelocks(self, count: int) -> None:
        """Add work that goes round without any change."""
        for n in range(count):
            at = self.chance.uniform(HOUR, SPAN - 8 * HOUR)
            if n % 2:
                ring = self._ring(2)
                chain = self._round(at, ring, 2 * self.chance.randint(3, 5), same=True)
            else:
                chain = self._again_and_again(at, self.chance.randint(3, 6), changing=False)
            self._label("livelock", "same payload", chain_id(chain))

    def plant_orphans(self, count: int) -> None:
        """Add chains that nobody carries on."""
        for n in range(count):
            at = self.chance.uniform(HOUR, 12 * HOUR)
            chain, handoff, client = self._begin(at)
            role = ROLES[0]
            whom = self.chance.choice(self.staff[role])
            self._offer(at, client, whom, chain, handoff)
            took = at + self._wait()
            self.script.add(took, Act.ACK, whom, handoff=handoff)
            if n % 3 == 0:  # never collected
                done = took + self._takes()
                self.script.add(done, Act.COMPLETE, whom, handoff=handoff, payload={"n": handoff})
            elif n % 3 == 1:  # silent
                self.script.add(at + DEADLINE, Act.EXPIRE, "relay", handoff=handoff)
            else:  # never answered
                asks = took + MINUTE
                self.script.add(asks, Act.ASK, whom, handoff=handoff, text="Which one is meant?")
                self.script.add(at + DEADLINE, Act.EXPIRE, "relay", handoff=handoff)
            self._label("orphans", ("uncollected", "silent", "unanswered")[n % 3], chain_id(chain))

    def plan_storms(self, retries: int, escalations: int) -> None:
        """Choose when storms will be. Before `usual`."""
        hours = self.chance.sample(range(2, 54, 4), retries + escalations)
        for n, hour in enumerate(hours):
            role = self.chance.choice(ROLES)
            since = hour * HOUR
            until = since + self.chance.randint(50, 100) * MINUTE
            kind = "retry" if n < retries else "escalation"
            label = Label(family="storms", kind=kind, subject=role, since=since, until=until)
            (self._retry_storms if n < retries else self._escalation_storms).append(label)
            self.script.labels.append(label)

    def plant_cliques(self, count: int) -> None:
        """Add groups that hand work to each other beside their other work."""
        pool = [agent for role in ROLES[1:] for agent in self.staff[role]]
        self.chance.shuffle(pool)
        for n in range(min(count, len(pool) // 5)):
            members = pool[n * 5 : n * 5 + self.chance.randint(3, 5)]
            for one in members:
                for other in members:
                    for _ in range(14 if one != other else 0):
                        at = self.chance.uniform(HOUR, SPAN - 3 * HOUR)
                        chain, handoff = self.script.new_chain(), self.script.new_handoff()
                        self._one(at, one, other, chain, handoff)
            self._label("cliques", "clique", ", ".join(sorted(members)))

    # --- what is usual ---

    def _declared(self, at: float) -> None:
        chain, handoff, client = self._begin(at)
        legs = [(self.chance.choice(self.staff[role]), role) for role in ROLES]
        whom = legs[0][0]
        self._offer(at, client, whom, chain, handoff, then=tuple(legs[1:]), total=5)
        for n, (agent, _) in enumerate(legs):
            ends = self._work(at, agent, handoff, client)
            if ends is None:
                return
            last = n + 1 == len(legs)
            if not last and self.chance.strikes(0.002):
                self._fail(ends, agent, handoff, client)
                return
            opens = -1 if last else self.script.new_handoff()
            self.script.add(
                *(ends, Act.COMPLETE, agent),
                handoff=handoff,
                opens=opens,
                payload=self._made(handoff),
            )
            if last:
                self._settle(ends, client, handoff)
            at, handoff = ends, opens

    def _by_hand(self, at: float) -> None:
        """Each agent hands the work on by itself; a review may send it back once."""
        chain, handoff, sender = self._begin(at)
        roles = list(ROLES)
        people = {role: self.chance.choice(self.staff[role]) for role in ROLES}
        if self.chance.strikes(0.2):
            roles[4:4] = ["draft", "review"]
        for role in roles:
            whom = people[role]
            ends = self._one(at, sender, whom, chain, handoff)
            if ends is None:
                return
            at, sender, handoff = ends + self.chance.about(MINUTE), whom, self.script.new_handoff()

    def _map(self, at: float) -> None:
        chain, _, client = self._begin(at)
        role = self.chance.choice(ROLES)
        whom = self.chance.choice(self.staff[role])
        for _ in range(self.chance.randint(4, 10)):
            self._one(at + self.chance.about(MINUTE), client, whom, chain)

    def _vote(self, at: float) -> None:
        chain, _, client = self._begin(at)
        role, payload = self.chance.choice(ROLES), self._made(chain)
        for whom in self.chance.sample(self.staff[role], 3):
            self._one(at, client, whom, chain, payload=payload)

    def _poll(self, at: float) -> None:
        self._again_and_again(at, self.chance.randint(3, 6), changing=True)

    def _surge(self, chains: int) -> None:
        begin = self.chance.uniform(20 * HOUR, 40 * HOUR)
        for _ in range(chains):
            self._any(begin + self.chance.uniform(0, HOUR))
        self._control("storms", "surge", "all", begin, begin + HOUR)

    def _declared_ring(self) -> None:
        """Three agents that pass work round, as was declared."""
        ring = [self.chance.choice(self.staff[role]) for role in ROLES[1:4]]
        for _ in range(36):
            self.chance.shuffle(ring)
            at = self.chance.uniform(HOUR, SPAN - 6 * HOUR)
            chain, handoff, client = self._begin(at)
            roles = [_role(agent) for agent in ring]
            legs = tuple(zip(ring, roles, strict=True))
            self._offer(at, client, ring[0], chain, handoff, then=legs[1:], total=3)
            for n, (agent, _) in enumerate(legs):
                ends = self._work(at, agent, handoff, client)
                if ends is None:
                    break
                opens = -1 if n == 2 else self.script.new_handoff()  # noqa: PLR2004
                self.script.add(
                    ends, Act.COMPLETE, agent, handoff=handoff, opens=opens, payload={"n": handoff}
                )
                if opens < 0:
                    self._settle(ends, client, handoff)
                at, handoff = ends, opens
        self._control("cliques", "declared ring", ", ".join(sorted(ring)))

    def _busy_pair(self) -> None:
        pair = [self.chance.choice(self.staff[role]) for role in ROLES[2:4]]
        for n in range(60):
            at = self.chance.uniform(HOUR, SPAN - 3 * HOUR)
            one, other = pair if n % 2 else pair[::-1]
            self._one(at, one, other, self.script.new_chain())
        self._control("cliques", "busy pair", ", ".join(sorted(pair)))

    # --- parts ---

    def _begin(self, at: float) -> tuple[int, int, str]:
        del at
        return (
            self.script.new_chain(),
            self.script.new_handoff(),
            self.chance.choice(self.clients),
        )

    def _ring(self, size: int) -> list[str]:
        roles = self.chance.sample(ROLES[1:], size)
        return [self.chance.choice(self.staff[role]) for role in roles]

    def _round(self, at: float, ring: Sequence[str], hops: int, *, same: bool = False) -> int:
        chain, handoff, sender = self._begin(at)
        for n in range(hops + 1):
            whom = ring[n % len(ring)]
            payload = {"about": chain} if same else self._made(handoff)
            ends = self._one(
                *(at, sender, whom, chain, handoff),
                payload=payload,
                sure=True,
            )
            assert ends is not None, "it is sure to go well"
            at, sender, handoff = ends + self.chance.about(MINUTE), whom, self.script.new_handoff()
        return chain

    def _again_and_again(self, at: float, times: int, *, changing: bool) -> int:
        chain, _, client = self._begin(at)
        role = self.chance.choice(ROLES)
        whom = self.chance.choice(self.staff[role])
        payload = {"question": f"is {chain} ready?"}
        for n in range(times):
            result = {"ready": n if changing else 0}
            ends = self._one(at, client, whom, chain, payload=payload, result=result, sure=True)
            assert ends is not None, "it is sure to go well"
            at = ends + self.chance.uniform(5, 15) * MINUTE
        return chain

    def _one(
        self,
        at: float,
        sender: str,
        whom: str,
        chain: int,
        handoff: int | None = None,
        *,
        payload: Any = None,
        result: Any = None,
        sure: bool = False,
    ) -> float | None:
        """Add one handoff from its offer to its settlement; return when it ended well."""
        if handoff is None:
            handoff = self.script.new_handoff()
        self._offer(at, sender, whom, chain, handoff, payload=payload)
        ends = self._work(at, whom, handoff, sender, sure=sure)
        if ends is None:
            return None
        if not sure and self.chance.strikes(0.01):
            self._fail(ends, whom, handoff, sender)
            return None
        made = self._made(handoff) if result is None else result
        self.script.add(ends, Act.COMPLETE, whom, handoff=handoff, payload=made)
        self._settle(ends, sender, handoff)
        return ends

    def _offer(
        self,
        at: float,
        sender: str,
        whom: str,
        chain: int,
        handoff: int,
        *,
        payload: Any = None,
        then: tuple[tuple[str, str], ...] = (),
        total: int = 1,
    ) -> None:
        self.script.add(
            *(at, Act.OFFER, sender),
            handoff=handoff,
            chain=chain,
            to=whom,
            capability=_role(whom),
            then=then,
            payload=self._made(handoff) if payload is None else payload,
            deadline_ms=DEADLINE * total,
            escalate_ms=ESCALATE,
        )

    def _work(
        self, at: float, whom: str, handoff: int, sender: str, *, sure: bool = False
    ) -> float | None:
        """Add attempts and questions; return when the last attempt is about to end."""
        role = _role(whom)
        late = not sure and self.chance.strikes(
            0.01 if not self._stormy(at, role, retry=False) else 0.8
        )
        took = at + (self.chance.uniform(25, 40) * MINUTE if late else self._wait())
        if late:
            self.script.add(at + ESCALATE, Act.ESCALATE, "relay", handoff=handoff)
        self.script.add(took, Act.ACK, whom, handoff=handoff)
        for _ in range(RETRIES_MAX):
            if sure or not self.chance.strikes(
                0.7 if self._stormy(took, role, retry=True) else 0.03
            ):
                break
            fails = took + self.chance.uniform(0.5, 2) * MINUTE
            self.script.add(fails, Act.RETRY, whom, handoff=handoff)
            took = fails + self.chance.uniform(0.2, 1) * MINUTE
            self.script.add(took, Act.ACK, whom, handoff=handoff)
        if not sure and self.chance.strikes(0.05):
            asks = took + MINUTE
            act = Act.ASK if self.chance.strikes(0.7) else Act.COUNTER
            self.script.add(asks, act, whom, handoff=handoff, text="Which one is meant?")
            took = asks + self.chance.uniform(1, 10) * MINUTE
            self.script.add(took, Act.ANSWER, sender, handoff=handoff, text="The first one.")
        return took + self._takes()

    def _stormy(self, at: float, role: str, *, retry: bool) -> bool:
        storms = self._retry_storms if retry else self._escalation_storms
        return any(s.subject == role and s.since <= at < s.until for s in storms)

    def _fail(self, at: float, whom: str, handoff: int, client: str) -> None:
        self.script.add(at, Act.FAIL, whom, handoff=handoff, text="no access")
        self._settle(at, client, handoff)

    def _settle(self, at: float, client: str, handoff: int) -> None:
        self.script.add(at + self.chance.about(2 * MINUTE), Act.SETTLE, client, handoff=handoff)

    def _wait(self) -> float:
        return self.chance.about(4 * MINUTE) % (15 * MINUTE)

    def _takes(self) -> float:
        return self.chance.lognormvariate(1.5, 0.6) * MINUTE

    def _made(self, of: int) -> dict[str, Any]:
        return {"item": of, "size": self.chance.randint(1, 10**9)}

    def _label(self, family: str, kind: str, subject: str) -> None:
        self.script.labels.append(Label(family=family, kind=kind, subject=subject))

    def _control(
        self, family: str, kind: str, subject: str, since: float = 0, until: float = 0
    ) -> None:
        self.script.controls.append(
            Label(family=family, kind=kind, subject=subject, since=round(since), until=round(until))
        )


def _role(agent: str) -> str:
    return agent.rpartition("_")[0]


def cut(script: Script) -> None:
    """End the log where it ends: whatever is in flight stays open."""
    script.steps = [step for step in script.steps if step.at <= SPAN]
