"""Summary statistics of scores, for tables and MLflow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def summarise(scores: Sequence[float]) -> dict[str, float]:
    """Compute mean, standard deviation (if there are two scores or more), median, quartiles and range."""
    low, first, middle, third, high = np.percentile(scores, [0, 25, 50, 75, 100]).tolist()
    deviation = {"standard_deviation": float(np.std(scores, ddof=1))} if len(scores) > 1 else {}
    ranks = {"median": middle, "first_quartile": first, "third_quartile": third, "lowest": low, "highest": high}
    return {"mean": float(np.mean(scores)), **deviation, **ranks}
