"""`nodrop` whose relay takes an agent for gone after two seconds and a half instead of a minute."""

from typing import Final

import msgspec

from nodrop.model import limits

HEARTBEAT_SECONDS: Final = 0.4
"""Six of these without a word, and queued acknowledgements are void."""


def bounds() -> limits.Limits:
    """Return the bounds of such a relay."""
    return msgspec.structs.replace(limits.DEFAULT, heartbeat_seconds=HEARTBEAT_SECONDS)


def _main() -> None:
    limits.DEFAULT = bounds()

    from nodrop.cli import main  # noqa: PLC0415  # reads the bounds

    main()


if __name__ == "__main__":
    _main()
