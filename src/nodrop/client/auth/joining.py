"""Joining a team with a key of one's own, and replacing that key."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.auth.joined import Known
from nodrop.client.auth.keys import KeyFile
from nodrop.client.auth.tokens import FixedToken
from nodrop.client.durations import Duration, spelled_if
from nodrop.client.ids import new_id
from nodrop.client.settings import Address, Settings, load
from nodrop.client.transports.address import Embedded, Remote, parse
from nodrop.client.transports.calls import Calls
from nodrop.client.values import given
from nodrop.model.errors import CallerError, ConflictError, InvalidRequestError, Problem
from nodrop.protocol.canonical import sha256
from nodrop.protocol.identity import invitations, signatures


class Asks(Protocol):
    """A connection of the agent."""

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any] | None = None,
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Ask the relay for one operation."""
        ...


async def join(
    invitation: str,
    *,
    agent: str | None = None,
    address: Address | None = None,
    home: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Join the team that `invitation` is for; from then on this user's SDK signs as the agent.

    The private key is made here and stays here, in `NODROP_HOME/keys`. Asking again after a lost
    answer asks with the same key.

    Args:
        invitation: what `nodrop invite` printed.
        agent: the name to join under, where the invitation does not say.
        address: `http(s)://host:port` of the relay.
        home: where the key is kept, if not in `NODROP_HOME`.
        ca: a file with the certificates of the CAs to trust (PEM), if not the system's; it is
            remembered for this relay.

    Raises:
        InvitationUsedError: somebody else has joined with it.
        NodropError: the relay refused, or cannot be reached.
    """
    try:
        hint = invitations.read(invitation)
    except ValueError as error:
        raise _invalid("invitation", str(error)) from None
    settings = load(address, agent=agent, token=invitation, home=home, ca=ca)
    place = parse(settings.address)
    if not isinstance(place, Remote):
        raise _invalid("address", "expected the address of a relay")
    name = hint.agent or settings.agent
    if name is None:
        raise _invalid("agent", "say under which name to join")
    file = KeyFile(settings.home, hint.team, name)
    _check_free(file, place)
    key = file.upcoming()
    fields = {
        "agent": name,
        "public_key": key.public.text,
        "proof": signatures.prove(key, agent=name, nonce=sha256(invitation.encode())),
    }
    answer = await _ask_to_join(place, invitation, fields, file, settings.ca)
    relay_key = answer["relay_public_key"]
    file.keep(Known(url=place.base, team=hint.team, agent=name, relay_public_key=relay_key))
    _remember_relay(settings, place, hint.team)
    return answer


async def rotate(
    calls: Asks, settings: Settings, *, agent: str, overlap: Duration | None = None
) -> dict[str, Any]:
    """Replace the agent's key by a new one, or give it its first; older ones expire.

    Raises:
        NodropError: the relay refused, or cannot be reached.
    """
    team = (await calls.call("keys"))["team"]
    file = KeyFile(settings.home, team, agent)
    key = file.upcoming()
    command_id = new_id()
    fields = {
        "agent": agent,
        "public_key": key.public.text,
        "proof": signatures.prove(key, agent=agent, nonce=command_id),
        "command_id": command_id,
    }
    try:
        answer = await calls.call("add_key", fields | given(overlap=spelled_if(overlap)))
    except CallerError:
        file.discard()
        raise
    relay_key = answer["relay_public_key"]
    file.keep(Known(url=where(settings), team=team, agent=agent, relay_public_key=relay_key))
    return answer


def where(settings: Settings) -> str:
    """Return what a key remembers its relay by: an address, or the path of a database."""
    place = parse(settings.address)
    if isinstance(place, Embedded):
        return str(Path(place.path).expanduser().resolve())
    return place.base


async def _ask_to_join(
    place: Remote, invitation: str, fields: dict[str, Any], file: KeyFile, ca: Path | None
) -> dict[str, Any]:
    from nodrop.client.transports.http import HttpTransport  # noqa: PLC0415  # loaded by who needs a network

    transport = HttpTransport(place.http, FixedToken(invitation), ca=ca)
    try:
        return await Calls(transport, agent=None).call("join", fields)
    except CallerError:
        file.discard()
        raise
    finally:
        await transport.close()


def _check_free(file: KeyFile, place: Remote) -> None:
    """Refuse to replace a key that another relay knows."""
    known = file.known()
    if known is not None and not place.same_relay(known.url):
        raise ConflictError(
            f"{file.path} is a key for {known.url}",
            next_step="Join from another NODROP_HOME, or move that file away.",
        )


def _remember_relay(settings: Settings, place: Remote, team: str) -> None:
    """Have this user's commands go to the relay, where they go to none so far."""
    file = CredentialsFile(settings.home)
    credentials = file.read()
    if credentials.url is None:
        ca = None if settings.ca is None else str(settings.ca.resolve())
        file.write(credentials.at(place.base, team, ca))


def _invalid(path: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(message, errors=(Problem(path=path, message=message),))
