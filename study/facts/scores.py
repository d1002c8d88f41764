"""A summary of the scores of an arm's confirm trials, for tables and MLflow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def summarise(scores: Sequence[float]) -> dict[str, float]:
    """Compute mean, standard deviation (of two or more scores), median, quartiles (linear interpolation) and range."""
    low, first, middle, third, high = np.percentile(scores, [0, 25, 50, 75, 100]).tolist()
    deviation = {"standard_deviation": float(np.std(scores, ddof=1))} if len(scores) > 1 else {}
    ranks = {"median": middle, "first_quartile": first, "third_quartile": third, "lowest": low, "highest": high}
    return {"mean": float(np.mean(scores)), **deviation, **ranks}
