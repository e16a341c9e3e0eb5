"""What an address means: a relay on the network, or a database opened in this process."""

import ipaddress
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

MEMORY: Final = ":memory:"
_SCHEMES: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A relay on the network."""

    base: str
    """`http(s)://host:port`, and the path in front of `/v1` if there is one."""
    team: str | None = None
    """None: the token's own team."""

    @property
    def http(self) -> str:
        """What the paths of operations are below."""
        team = "" if self.team is None else f"/teams/{quote(self.team, safe='')}"
        return f"{self.base}{team}/v1"

    @property
    def channel(self) -> str:
        """The address of the WebSocket channel."""
        return f"ws{self.http.removeprefix('http')}/channel"

    @property
    def loopback(self) -> bool:
        """Whether it is on this machine."""
        host = urlsplit(self.base).hostname or ""
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def same_relay(self, url: str) -> bool:
        """Whether `url` is this relay too, whatever its host on this machine is called."""
        other = parse(url)
        if not isinstance(other, Remote):
            return False
        if self.base == other.base:
            return True
        return self.loopback and other.loopback and self.port == other.port

    @property
    def port(self) -> int:
        """The port it listens on."""
        parts = urlsplit(self.base)
        return parts.port or {"http": 80, "https": 443}[parts.scheme]


class Embedded(msgspec.Struct, frozen=True, kw_only=True):
    """A database opened in this process: its path, or `:memory:`."""

    path: str


def parse(address: str, *, team: str | None = None) -> Remote | Embedded:
    """Return what `address` means.

    Raises:
        ValueError: it is neither a web address nor a path.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return Embedded(path=address)
    web = _SCHEMES.get(scheme.lower())
    if web is None or not rest.strip("/"):
        raise ValueError(f"{address} is no address of a relay: expected http://host:port or a path")
    return Remote(base=f"{web}://{rest.rstrip('/')}", team=team)
