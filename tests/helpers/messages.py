"""What a message must say, whatever its words."""

from __future__ import annotations


def says(message: str, *parts: str) -> bool:
    """Whether the message has these parts in this order: the value that is wrong, what is allowed, the remedy."""
    place = 0
    for part in parts:
        found = message.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True
