"""What is seen in a picture, in words with numbers: for alt texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from study.facts.plain_words import joined

NOTEWORTHY = 0.5  # points: a turn or a distance that is smaller is not told


def trend(label: str, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, *, at: str = "{:.1f}") -> str:
    """How a line goes, x rising: "palbert rises from 74.0 at 5.2 layers to 78.3 at 9.1 layers, then falls to ...".

    `at` says how a place on the x axis is written.
    """
    turns = _turns(y)
    first, *others = [f"{y[i]:.1f} at {at.format(x[i])}" for i in turns]
    if not others:
        return f"{label} has {first}"
    if len(turns) == 2 and abs(y[turns[1]] - y[turns[0]]) < NOTEWORTHY:
        low, high = f"{min(y):.1f}", f"{max(y):.1f}"
        level = f"at {low}" if low == high else f"between {low} and {high}"
        return f"{label} stays {level} from {at.format(x[0])} to {at.format(x[-1])}"
    verbs = ["rises" if y[after] > y[before] else "falls" for before, after in zip(turns, turns[1:], strict=False)]
    rest = "".join(f", then {verb} to {place}" for verb, place in zip(verbs[1:], others[1:], strict=True))
    return f"{label} {verbs[0]} from {first} to {others[0]}{rest}"


def _turns(y: Sequence[float] | np.ndarray) -> list[int]:
    """Places of the ends and of the highest or lowest point between, where it stands out from both of them."""
    last = len(y) - 1
    if last == 0:
        return [0]
    top, bottom = int(np.argmax(y)), int(np.argmin(y))
    if y[top] - max(y[0], y[last]) >= NOTEWORTHY:
        return [0, top, last]
    if min(y[0], y[last]) - y[bottom] >= NOTEWORTHY:
        return [0, bottom, last]
    return [0, last]


Line = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]


def beside(label: str, line: Line, other_label: str, other: Line, *, at: str = "{:.1f}") -> str:
    """Where a line lies above or below another: "pabee lies below palbert from 6.0 to 9.0". Empty where they share
    no stretch of the x axis. Both have x rising."""
    low, high = max(line[0][0], other[0][0]), min(line[0][-1], other[0][-1])
    if low >= high:
        return ""
    grid = np.linspace(low, high, 101)
    difference = np.interp(grid, *line) - np.interp(grid, *other)
    signs = np.where(np.abs(difference) < NOTEWORTHY, 0, np.sign(difference)).astype(int)
    stretches = _stretches(signs)
    if all(sign == 0 for sign, _, _ in stretches):
        return f"{label} lies within {NOTEWORTHY} of {other_label} from {at.format(low)} to {at.format(high)}"
    words = {1: "above", -1: "below"}
    parts = [
        f"{words[sign]} {other_label if i == 0 else 'it'} from {at.format(grid[start])} to {at.format(grid[end])}"
        for i, (sign, start, end) in enumerate(stretch for stretch in stretches if stretch[0])
    ]
    return f"{label} lies {joined(parts)}"


def _stretches(signs: np.ndarray) -> list[tuple[int, int, int]]:
    """Sign, first and last place of every stretch of one sign."""
    starts = [0, *(np.flatnonzero(np.diff(signs)) + 1).tolist()]
    ends = [*(start - 1 for start in starts[1:]), len(signs) - 1]
    return [(int(signs[start]), start, end) for start, end in zip(starts, ends, strict=True)]


def by_task(texts: dict[str, str]) -> str:
    """One sentence per task, by title."""
    return " ".join(f"{title}: {text}." for title, text in texts.items() if text)
