"""Small pure functions that say how sure a number is. Scores in, numbers out; each says what it means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def summary(scores: Sequence[float]) -> dict[str, float]:
    """Median, quartiles (linear interpolation) and range of the scores."""
    low, first, middle, third, high = np.percentile(scores, [0, 25, 50, 75, 100]).tolist()
    return {"median": middle, "first_quartile": first, "third_quartile": third, "lowest": low, "highest": high}
