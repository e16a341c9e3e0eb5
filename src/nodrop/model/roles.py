"""Roles: what the holder of a token is to its team."""

from enum import StrEnum


class Role(StrEnum):
    """What a token lets its holder be."""

    AGENT = "agent"
    """Hands off, does the work, sees what it is a party to."""

    OBSERVER = "observer"
    """Sees where everything in the team stands, but no words and no data, and changes nothing."""

    OPERATOR = "operator"
    """Sees everything of the team, and may do what a requester may, and look after the team."""
