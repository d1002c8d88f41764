"""Counts texts that occur in train and dev, or with contradictory labels. Such data can make scores meaningless.

Two rows have the same texts if their texts are equal after case and white space are ignored. A pair of texts must be
equal in both texts, in the same order.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from trainables.configuration import Count
from trainables.configuration.schema import Typed

NOTABLE_SHARE = 0.01  # above this share of dev rows whose texts occur in train, scores get a note


class RepeatedTexts(Typed, frozen=True, kw_only=True):
    """Numbers of rows of a task. Rows contradict each other if their texts are the same and their labels differ."""

    dev_rows: Count
    dev_in_train: Count  # dev rows whose texts occur in train
    contradictory_in_train: Count  # train rows that contradict another train row
    contradictory_in_dev: Count  # dev rows that contradict a train row

    @property
    def share(self) -> float:
        """Share of the dev rows whose texts occur in train."""
        return self.dev_in_train / self.dev_rows

    @property
    def is_notable(self) -> bool:
        """True if the share is so large that scores need a note."""
        return self.share > NOTABLE_SHARE

    def format_share(self) -> str:
        """Format the number and share of dev rows whose texts occur in train: `7 of 277 (2.5 %)`."""
        return f"{self.dev_in_train:,} of {self.dev_rows:,} ({100 * self.share:.1f} %)"

    def describe_effect(self, title: str) -> str:
        """Describe the effect of repeated texts on the scores of the task with this title."""
        others = f" ({self.contradictory_in_dev:,} of them with another label)" * bool(self.contradictory_in_dev)
        return (
            f"{self.format_share()} dev rows of {title} have texts that occur in train{others}; on these rows, a score "
            "shows memory, not generalisation"
        )


def describe_repeats(repeats: Mapping[str, RepeatedTexts]) -> str:
    """Describe the repeated texts of tasks in one line; the keys of `repeats` are titles."""
    shares = ", ".join(f"{title} {task.format_share()}" for title, task in repeats.items())
    contradictory = ", ".join(
        f"{title} {task.contradictory_in_train:,} in train, {task.contradictory_in_dev:,} in dev"
        for title, task in repeats.items()
        if task.contradictory_in_train or task.contradictory_in_dev
    )
    return f"dev rows whose texts occur in train: {shares}; rows with contradictory labels: {contradictory or 'none'}"


def hash_texts(texts: Sequence[str]) -> int:
    """Hash the texts of a row, ignoring case and white space. Other processes give other hashes."""
    text = "\0".join(map(str.strip, texts)).lower()
    is_spaced = "  " in text or "\n" in text or "\t" in text  # splitting every text would take most of the time
    return hash(" ".join(text.split()) if is_spaced else text)


def count_repeats(train: tuple[np.ndarray, np.ndarray], dev: tuple[np.ndarray, np.ndarray]) -> RepeatedTexts:
    """Count the repeated texts; `train` and `dev` are hashes of texts (int64) and labels, each of shape (rows,)."""
    (texts, labels), (dev_texts, dev_labels) = train, dev
    if not len(texts):
        return RepeatedTexts(dev_rows=len(dev_texts), dev_in_train=0, contradictory_in_train=0, contradictory_in_dev=0)
    known, groups = np.unique(texts, return_inverse=True)
    lowest, highest = np.full(len(known), np.inf), np.full(len(known), -np.inf)
    np.minimum.at(lowest, groups, labels)
    np.maximum.at(highest, groups, labels)
    places = np.searchsorted(known, dev_texts).clip(max=len(known) - 1)
    is_known = known[places] == dev_texts
    differs = (lowest[places] != dev_labels) | (highest[places] != dev_labels)
    return RepeatedTexts(
        dev_rows=len(dev_texts),
        dev_in_train=int(is_known.sum()),
        contradictory_in_train=int((lowest != highest)[groups].sum()),
        contradictory_in_dev=int((is_known & differs).sum()),
    )
