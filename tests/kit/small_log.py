"""Small logs that a test writes by hand."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from nodrop.analysis import record as records
from nodrop.analysis.record import Record

MINUTE = 60_000


class Log:
    """Fills a record, one minute per step."""

    def __init__(self) -> None:
        self.record = Record()
        self.seq = 0
        self.at = 0

    def tick(self, ms: int = MINUTE) -> dict[str, int]:
        """Let time pass; return when and where the next thing happens."""
        self.seq += 1
        self.at += ms
        self.record.event(self.at)
        return {"seq": self.seq, "at": self.at}

    def offer(
        self,
        sender: str,
        to: str,
        *,
        chain: str = "c",
        capability: str | None = None,
        digest: int = records.NONE,
        deadline: int = records.NONE,
        legs: Sequence[tuple[str | None, str | None]] = (),
        declared: bool = False,
        again: bool = False,
    ) -> str:
        handoff = f"h{len(self.record.handoffs)}"
        self.record.offer(
            handoff,
            **self.tick(),
            chain=chain,
            sender=sender,
            recipient=to,
            capability=capability,
            digest=digest,
            deadline=deadline,
            legs=tuple(legs),
            declared=declared,
            again=again,
        )
        return handoff

    def do(
        self,
        handoff: str,
        *,
        attempts: int = 1,
        outcome: int = records.COMPLETED,
        result: int = records.NONE,
        settle: bool = True,
    ) -> None:
        """Work on a handoff from its delivery to its end."""
        for attempt in range(1, attempts + 1):
            self.record.deliver(handoff, **self.tick(0), attempt=attempt)
            self.record.accept(handoff, **self.tick(0))
            if attempt < attempts:
                self.record.give_back(handoff, **self.tick(0))
        self.record.end(handoff, **self.tick(), outcome=outcome, result=result)
        if settle:
            self.record.settle(handoff, **self.tick(0))

    def path(self, agents: Iterable[str], *, chain: str = "c", digest: int | None = None) -> None:
        """Hand work along, each agent to the next."""
        line = list(agents)
        for n, (sender, to) in enumerate(pairwise(line)):
            self.do(self.offer(sender, to, chain=chain, digest=digest or n + 1))
