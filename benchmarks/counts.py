"""Options of the benchmarks that count something."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A whole number above 0.

    Raises:
        argparse.ArgumentTypeError: the text is not a whole number above 0.
    """
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number
