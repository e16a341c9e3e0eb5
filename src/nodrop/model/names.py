"""Names: what an agent may be called, and what keys, capabilities and the like may be."""

import functools
import re
from typing import Final

AGENT_ID: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
"""As a pattern; it may stand in a path, and in a line that people write."""

ANONYMOUS: Final = "anonymous"
"""Whom the log names where an agent that was opened was called without a token."""
RESERVED: Final = frozenset(
    {"relay", ANONYMOUS, "operator", "observer", "system", "team", "all", "everyone", "nodrop"}
)
"""Names that no agent gets: the relay's own, and those that a reader takes for a role or for all."""

_AGENT_ID: Final = re.compile(AGENT_ID)


def is_agent_id(value: str) -> bool:
    """Whether an agent may be called that."""
    return _AGENT_ID.fullmatch(value) is not None


def folded(agent_id: str) -> str:
    """Return what names have in common that people and file systems may take for the same."""
    return agent_id.casefold().rstrip(".")


def is_name(value: str, *, chars_max: int) -> bool:
    """Whether `value` is printable ASCII, with no blank at either end, and no longer than that."""
    return name_pattern(chars_max).fullmatch(value) is not None


@functools.cache
def name_pattern(chars_max: int) -> re.Pattern[str]:
    """Return the pattern that all of such a name fits."""
    return re.compile(rf"(?! )[ -~]{{1,{chars_max}}}(?<! )")
