"""What became of a command."""

import msgspec

from nodrop.log.port import Place
from nodrop.model.handoff import Handoff


class Done(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A command that was carried out: the handoff as it is now."""

    handoff: Handoff
    replayed: bool = False
    """The same offer was made before: this is the handoff it made."""


class DoneBefore(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was carried out earlier, under the same id."""

    places: tuple[Place, ...]


class Existing(msgspec.Struct, frozen=True, kw_only=True):
    """An offer whose key is in use for the same request: that handoff is the answer."""

    handoff_id: str
