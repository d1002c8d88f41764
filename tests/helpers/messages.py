"""What a message must say, whatever its words."""

from __future__ import annotations

import re
from pathlib import Path

from study.terminal.text import python


def says(message: str, *parts: str) -> bool:
    """Whether the message has these parts in this order: the value that is wrong, what is allowed, the remedy."""
    place = 0
    for part in parts:
        found = message.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True


def one_line(error: BaseException | str, here: Path | None = None) -> str:
    """The message of an error, which must be one line, to compare with a snapshot: the folder `here` is HERE in it."""
    message = str(error)
    assert message and "\n" not in message, message
    return message if here is None else message.replace(str(here), "HERE")


def shown(printed: str, here: Path) -> str:
    """What a command printed, to compare with a snapshot: `here`, keys, digests and Python's path have stand-ins."""
    printed = printed.replace(str(here), "HERE").replace(f"{python()} ", "PYTHON ")
    return re.sub(r"\b[0-9a-f]{12,64}\b", "KEY", printed).strip()
