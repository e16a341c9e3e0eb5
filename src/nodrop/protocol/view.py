"""What every answer of a relay is made of."""

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of every answer."""
