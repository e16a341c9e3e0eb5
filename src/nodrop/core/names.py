"""Names: what an agent may be called, and what keys, capabilities and the like may be."""

import re
from typing import Final

AGENT_ID: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
"""As a pattern; it may stand in a path, and in a line that people write."""

ANONYMOUS: Final = "anonymous"
"""Whom the log names where an agent that was opened was called without a token."""

_AGENT_ID: Final = re.compile(AGENT_ID)
_NAME: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def is_agent_id(value: str) -> bool:
    """Whether an agent may be called that."""
    return _AGENT_ID.fullmatch(value) is not None


def is_name(value: str, *, chars_max: int) -> bool:
    """Whether `value` is printable ASCII, with no blank at either end, and no longer than that."""
    return len(value) <= chars_max and _NAME.fullmatch(value) is not None
