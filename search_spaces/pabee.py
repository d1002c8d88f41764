"""PABEE search space: the PALBERT paper's grid (arXiv:2204.03276, table 4) and the patience of PABEE's own scripts."""

from typing import Any

from optuna.distributions import IntDistribution

from search_spaces import _palbert_paper as paper

# Patience: PABEE's inference script sweeps 3 to 8; the PALBERT paper takes 6.
SPACE = paper.SPACE | {"patience": IntDistribution(3, 8)}
PAPER_GRID = paper.GRID | {"patience": [6]}

# Threshold of agreement on STS-B: hard-coded in the released PALBERT code (PABEE's own default, 0, never agrees).
FIXED: dict[str, Any] = paper.FIXED | {"regression_threshold": None}
FIXED_BY_TASK: dict[str, dict[str, Any]] = {"stsb": {"regression_threshold": 0.2}}
BACKBONE = paper.BACKBONE

# The command in the PALBERT repository's README, then PABEE's training script (which has other epochs and a schedule).
PUBLISHED: dict[str, list[dict[str, Any]]] = {
    "rte": [
        {"learning_rate": 1e-5, "batch_size": 32, "patience": 6},
        {"learning_rate": 2e-5, "batch_size": 32, "patience": 6},
    ],
}
