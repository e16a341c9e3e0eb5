"""The credentials of this user: a JSON file that only its owner can read.

`nodrop up` writes it; agents of the same user take their own tokens from it, or have one minted
with the operator's. Processes of one user are one trust domain.
"""

from pathlib import Path

import msgspec

from nodrop.client.auth import private_file


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Where the relay of this user is, and who may talk to it."""

    url: str | None = None
    ca: str | None = None
    """Certificates of the CAs that the relay's may be signed by, where `nodrop join` was told."""
    team: str = "default"
    operator: str | None = None
    """The token of the person `me`, an operator."""
    agents: dict[str, str] = {}
    """The tokens of agents, by their ids."""

    def at(self, url: str, team: str, ca: str | None) -> "Credentials":
        """Return these for another relay."""
        return msgspec.structs.replace(self, url=url, team=team, ca=ca)


class CredentialsFile:
    """`credentials` in the home directory of Nodrop."""

    def __init__(self, home: Path) -> None:
        self.path = home / "credentials"

    def read(self) -> Credentials:
        """Return what the file says; nothing, if there is none.

        Raises:
            ValueError: the file is not what `nodrop up` writes.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Credentials()
        try:
            return msgspec.json.decode(data, type=Credentials)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{self.path} is damaged: {error}") from error

    def write(self, credentials: Credentials) -> None:
        """Put `credentials` in the place of what was there, in one move.

        Raises:
            StoreFullError: there is no room for them; what was there still is.
        """
        data = msgspec.json.format(msgspec.json.encode(credentials), indent=2) + b"\n"
        private_file.write(self.path, data)

    def save_agent(self, agent: str, token: str) -> None:
        """Remember an agent's token beside whatever else is there by now."""
        with private_file.alone(self.path.parent):  # two agents of one user may join at once
            now = self.read()
            self.write(msgspec.structs.replace(now, agents={**now.agents, agent: token}))
