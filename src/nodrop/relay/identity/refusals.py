"""The security log: who was refused what for reasons of identity or authorization.

Not the team's log: nobody who is refused may make that grow. Refusals of one kind are one line
with a count, kinds are bounded, and what leaves for a file is told at the first, second, fourth,
eighth … refusal of a kind. No secrets, no payloads, no words of the caller's but its own name.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from nodrop.model.errors import NodropError
from nodrop.model.limits import Limits

_TEXT_CHARS_MAX = 200


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of refusal, and how often it happened."""

    first_at: int
    last_at: int
    count: int
    team: str | None = None
    """None: nobody knows on whose behalf."""
    actor: str | None = None
    operation: str
    """An operation, or the door that refused before there was one."""
    code: str
    """What the caller was told."""
    reason: str
    """`unauthenticated`, `forbidden`, `foreign_handoff`, `foreign_team` …: what it was about."""
    detail: str
    address: str | None = None


Kind = tuple[str | None, str | None, str, str, str, str | None]


class Refusals:
    """The kinds of refusals lately seen."""

    def __init__(
        self,
        limits: Limits,
        *,
        now: Callable[[], int],
        tell: Callable[[Refusal], None] = lambda _: None,
    ) -> None:
        self._limits = limits
        self._now = now
        self._tell = tell
        self._kinds: OrderedDict[Kind, Refusal] = OrderedDict()

    def note(
        self,
        error: NodropError,
        *,
        operation: str,
        team: str | None = None,
        actor: str | None = None,
        address: str | None = None,
    ) -> None:
        """Count a refusal, if it is about who asks. Any other costs one comparison."""
        reason = error.suspect
        if reason is None:
            return
        now = self._now()
        kind = (team, actor, operation, error.code, reason, address)
        before = self._kinds.get(kind)
        refusal = Refusal(
            first_at=before.first_at if before else now,
            last_at=now,
            count=before.count + 1 if before else 1,
            team=team,
            actor=actor,
            operation=operation,
            code=error.code,
            reason=reason,
            detail=error.detail[:_TEXT_CHARS_MAX],
            address=address,
        )
        self._kinds[kind] = refusal
        self._kinds.move_to_end(kind)
        while len(self._kinds) > self._limits.refusals_max:
            self._kinds.popitem(last=False)
        if refusal.count.bit_count() == 1:  # a power of two
            self._tell(refusal)

    def of(self, team: str, *, limit: int) -> tuple[Refusal, ...]:
        """Return what concerns a team, or nobody knows whom, latest first."""
        mine = (r for r in reversed(self._kinds.values()) if r.team in {None, team})
        return tuple(refusal for refusal, _ in zip(mine, range(limit), strict=False))
