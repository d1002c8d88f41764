"""The random choices of mini-GLUE, the same in every process and every version of Python."""

import random
from collections.abc import Sequence
from typing import TypeVar

Example = tuple[tuple[str, ...], int | float]  # texts, label
T = TypeVar("T")


class Draw:
    """Random choices by `random()` alone, whose sequence Python promises to keep for a given seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def one(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def other(self, options: Sequence[T], than: T) -> T:
        return self.one([option for option in options if option != than])

    def two(self, options: Sequence[T]) -> tuple[T, T]:
        first = self.one(options)
        return first, self.other(options, first)
