"""Matches names as people write them (`SST-2` for sst2), and suggests the nearest name for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def resolve_name(name: str, menu: Iterable[str], *, what: str, known: Iterable[str] = ()) -> str:
    """Find a name in a list of allowed names, ignoring case, `-`, `_` and spaces.

    Args:
        menu: the allowed names.
        what: what the names stand for, e.g. "method" or "task"; error messages mention it.
        known: names that exist but are not allowed here. The error suggests no other name for them.

    Raises:
        ValueError: if the name is not allowed; the message lists the allowed names.
    """
    names = list(menu)
    if name in names:
        return name
    match = next((same for same in names if is_same_name(same, name)), None)
    if match is None:
        raise unknown_name_error(what, name, names, known=known)
    return match


def unknown_name_error(what: str, name: str, menu: Iterable[str], *, known: Iterable[str] = ()) -> ValueError:
    """Build the error for a name that is not in `menu`. Suggest the nearest name, except for a name in `known`."""
    names = list(menu)
    menu_in_words = ", ".join(names) or "none"
    if any(is_same_name(other, name) for other in known) and not any(is_same_name(other, name) for other in names):
        article = "an" if what[0] in "aeiou" else "a"
        return ValueError(f"{name!r} is not {article} {what}; available: {menu_in_words}")
    return ValueError(f"no {what} named {name!r}; available: {menu_in_words}{suggest_nearest(name, names)}")


def suggest_nearest(name: str, menu: Iterable[str]) -> str:
    """Suggest the nearest name, as in `; did you mean palbert?`. Return an empty text if no name is near.

    If `name` is a half of several names, as palbert is of palbert/rte and palbert/cola, suggest all of these names.
    """
    letters = {_normalise(known): known for known in menu}
    halves = [known for known in letters.values() if any(is_same_name(name, half) for half in known.split("/"))]
    near = halves or [letters[match] for match in get_close_matches(_normalise(name), letters, n=1)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def is_same_name(name: str, other: str) -> bool:
    """Check whether two names are equal, ignoring case, `-`, `_` and spaces."""
    return _normalise(name) == _normalise(other)


def _normalise(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ")
