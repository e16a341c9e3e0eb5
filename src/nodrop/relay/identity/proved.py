"""What a signed request proves, on its way into a body."""

import msgspec

from nodrop.protocol.identity.signatures import Kept


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """Who said it, and what is kept so that anybody can check that later."""

    agent: str
    key_id: str
    kept: Kept
    digest: str
    """SHA-256 of the signature: what the relay's own statement refers to."""
