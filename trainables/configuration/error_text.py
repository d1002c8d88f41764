"""Shortens the messages of other programs' errors to one line."""

from __future__ import annotations


def take_first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
