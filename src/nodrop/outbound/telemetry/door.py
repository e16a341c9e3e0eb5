"""Decides whether a relay has anything to tell a collector, and whether it can."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from nodrop.outbound.telemetry import settings
from nodrop.relay.ports import Clock
from nodrop.relay.relay import Relay

_MISSING: Final = (
    "The variables of OpenTelemetry are set, and nothing is exported. In the environment of this relay: "
    "pip install 'nodrop[relay]'"
)


@asynccontextmanager
async def telling(
    relay: Relay, *, team: str, clock: Clock, environment: Mapping[str, str]
) -> AsyncGenerator[Sequence[str]]:
    """Export what the variables of OpenTelemetry ask for; yields what a person should know.

    A relay that cannot export serves all the same: the variables may have been meant for others.
    """
    wanted = settings.wanted(environment)
    if not wanted.anything:
        yield ()
        return
    if not wanted.spoken:
        yield (f"Nothing is exported: the relay speaks OTLP over HTTP, not {wanted.protocol}.",)
        return
    try:
        from nodrop.outbound.telemetry.exporting import exporting  # noqa: PLC0415  # an extra
    except ModuleNotFoundError:
        yield (_MISSING,)
        return
    async with exporting(relay, wanted, team=team, clock=clock):
        yield ()
