"""Extras: the error for a part that is not installed, which says where it is missing and what installs it."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from nodrop.model.errors import NotInstalledError

RELAY: Final = "relay"
"""The extra with everything that a served relay needs."""
_SERVED: Final = {
    "mcp": "MCP",
    "a2a": "A2A",
    "cel": "conditions of triggers",
    "apprise": "notifications",
    "standardwebhooks": "webhooks",
}
"""Features of a relay by the optional module that each needs."""


def not_served() -> Sequence[str]:
    """Return the features that a relay in this environment cannot serve, and the command that changes that."""
    lacking = [what for module, what in _SERVED.items() if find_spec(module) is None]
    if not lacking:
        return ()
    command = f"{sys.executable} -m pip install 'nodrop[{RELAY}]'"
    return (f"Not installed here, and therefore not served: {', '.join(lacking)}. Run: {command}",)


def missing_here(what: str, extra: str) -> NotInstalledError:
    """Return the error for what the environment of this program lacks."""
    return NotInstalledError(
        f"{what} is not installed in {sys.prefix}, where this command runs",
        next_step=f"Run: {sys.executable} -m pip install 'nodrop[{extra}]'",
    )


def missing_at_relay(what: str) -> NotInstalledError:
    """Return the error for what the environment of the relay lacks, which may be another machine's."""
    return NotInstalledError(
        f"{what} is not installed in the environment of the relay",
        next_step=f"Where the relay runs: pip install 'nodrop[{RELAY}]', then start it again.",
    )
