"""Where a transport takes its token from, and what it does when the relay no longer knows it."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from nodrop.client.auth.credentials import CredentialsFile

OPERATOR = "me"
"""The person to whom the operator's token belongs."""

Mint = Callable[[str, str], Awaitable[str]]
"""Make a token: (operator's token, agent) to the agent's token."""


class Tokens(Protocol):
    """The token of one agent."""

    async def current(self) -> str | None:
        """Return the token to begin with; None where there is none."""
        ...

    async def renewed(self, refused: str | None) -> str | None:
        """Return another token than the one refused; None where there is no other."""
        ...


class FixedToken:
    """A token somebody handed in. If it is refused, that is that."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def current(self) -> str | None:
        """Return the token."""
        return self._token

    async def renewed(self, refused: str | None) -> str | None:  # noqa: ARG002  # of the protocol
        """Return none: there is no other."""
        return None


class MintedToken:
    """The token of an agent of this user: from the credentials, or minted and kept there."""

    def __init__(self, file: CredentialsFile, agent: str, mint: Mint) -> None:
        self._file = file
        self._agent = agent
        self._mint = mint
        self._token: str | None = None

    async def current(self) -> str | None:
        """Return the agent's token, minting it on first use."""
        self._token = self._token or self._saved() or await self._minted()
        return self._token

    async def renewed(self, refused: str | None) -> str | None:
        """Return the token another process renewed meanwhile, or a new one."""
        saved = self._saved()
        if saved is None or saved == refused:
            saved = await self._minted()
        self._token = saved
        return saved

    def _saved(self) -> str | None:
        credentials = self._file.read()
        if self._agent == OPERATOR and credentials.operator is not None:
            return credentials.operator
        return credentials.agents.get(self._agent)

    async def _minted(self) -> str | None:
        operator = self._file.read().operator
        if operator is None or self._agent == OPERATOR:
            return None
        token = await self._mint(operator, self._agent)
        self._file.save_agent(self._agent, token)
        return token
