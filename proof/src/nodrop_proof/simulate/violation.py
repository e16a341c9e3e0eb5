"""A promise that was not kept."""


class Violation(Exception):  # noqa: N818  # what it is called
    """Something that must never happen, and did."""
