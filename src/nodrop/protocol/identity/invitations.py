"""Invitations as text: `ndi_`, whom and where to, and a secret.

What is readable in one is a hint for whoever joins; a relay goes by the hash of the whole.
"""

from typing import Final

import msgspec

from nodrop.protocol.identity import keys

PREFIX: Final = "ndi_"


class Hint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an invitation says about itself."""

    team: str
    agent: str | None = None


def write(hint: Hint, secret: str) -> str:
    """Return an invitation."""
    return f"{PREFIX}{keys.encode(msgspec.json.encode(hint))}.{secret}"


def read(invitation: str) -> Hint:
    """Return what an invitation says about itself.

    Raises:
        ValueError: it is none.
    """
    hint, dot, secret = invitation.removeprefix(PREFIX).partition(".")
    if not invitation.startswith(PREFIX) or not dot or not secret:
        raise ValueError(
            "expected an invitation, all that `nodrop invite` printed: it begins with ndi_"
        )
    try:
        return msgspec.json.decode(keys.decode(hint), type=Hint)
    except (ValueError, msgspec.MsgspecError):
        raise ValueError("the invitation is damaged") from None
