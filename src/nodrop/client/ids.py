"""Where the SDK takes its ids from."""

import uuid_utils


def new_id() -> str:
    """Return a fresh id. Ids made later sort later (UUIDv7)."""
    return str(uuid_utils.uuid7())
