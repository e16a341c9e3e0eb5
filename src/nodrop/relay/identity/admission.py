"""Admission: whether a caller may ask for an operation now, before anything is decided.

Asked for every command, so what holds for a turn of the event loop is looked at once in it.
"""

import asyncio
from typing import Final

from nodrop.model.limits import Limits
from nodrop.model.names import NAME
from nodrop.model.roles import Role
from nodrop.protocol.requests import Request
from nodrop.relay.directory.attendance import Attendance
from nodrop.relay.identity.access import Access
from nodrop.relay.identity.roles import MAY, require_role
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock
from nodrop.relay.room import COUNTED, Meter, Rates
from nodrop.relay.shows import Caller

_BY_WORKERS: Final = frozenset(
    name for name, roles in MAY.items() if {Role.AGENT, Role.OPERATOR} <= roles
)
"""Operations that agents and operators may ask for."""
_COMMANDS: Final = (_BY_WORKERS & COUNTED) - {"offer", "redeem_link"}
"""Those that are counted as commands, and as nothing else."""
_spells_name: Final = NAME.fullmatch
_NONE_LEFT: Final = Meter(0, 0)


class _Looked:
    """A caller that was looked at, and what is left to it to be taken without another look."""

    __slots__ = ("caller", "meter")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.meter = _NONE_LEFT


class Admission:
    """Lets callers in, or says why not."""

    def __init__(
        self,
        access: Access,
        attendance: Attendance,
        *,
        intake: Intake,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._access = access
        self._attendance = attendance
        self._intake = intake
        self._clock = clock
        self._name_chars_max: Final = limits.key_chars_max
        self.rates = Rates(limits, now=clock.now)
        self._let_in: dict[int, _Looked] = {}
        """Callers that were looked at in this turn of the event loop, by identity."""

    def admit(self, caller: Caller, operation: str, request: Request) -> None:
        """Refuse one who may not ask for this, or not so soon."""
        command_id = getattr(request, "command_id", None)
        if command_id is not None and (
            len(command_id) > self._name_chars_max or _spells_name(command_id) is None
        ):
            self._intake.name(command_id, "command_id")
        looked = self._let_in.get(id(caller)) or self._look_at(caller, operation)
        meter = looked.meter
        if operation in _COMMANDS and meter.left >= 1:
            meter.left -= 1
            return
        works = not (caller.observer or caller.viewer)
        if operation not in _BY_WORKERS or not works:
            require_role(caller, operation)
        if operation == "redeem_link":
            self.rates.spend_attempt(caller.address or "")
        elif operation in COUNTED:
            meter = self.rates.spend((caller.team, caller.agent), offer=operation == "offer")
            if works:
                looked.meter = meter

    def _look_at(self, caller: Caller, operation: str) -> _Looked:
        """Refuse a caller whose credential is no longer good, and note a sign of life.

        Once in a turn of the loop: what a commit of the same turn ends is told to nobody before the next.
        """
        self._access.require(caller, operation)
        looked = _Looked(caller)
        if not caller.agent or caller.viewer:
            return looked
        self._attendance.see(caller.team, caller.agent, self._clock.now())
        if caller.invitation_id is None and caller.link_id is None:
            if not self._let_in:
                asyncio.get_running_loop().call_soon(self._let_in.clear)
            self._let_in[id(caller)] = looked
        return looked
