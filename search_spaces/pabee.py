"""PABEE search space: the PALBERT paper's grid (arXiv:2204.03276, table 4) and the patiences of PABEE's scripts."""

from search_spaces import _palbert_paper as paper
from trainables.configuration.schema import Configuration, Value

SPACE = paper.SPACE
# Patience: PABEE's inference script tries 3 to 8; the PALBERT paper takes 6.
POST_HOC = {"patience": range(3, 9)}
PAPER_GRID = paper.GRID | {"patience": [6]}

# Threshold of agreement on STS-B: hard-coded in the released PALBERT code (at PABEE's default, 0, layers never agree).
FIXED: dict[str, Value] = paper.FIXED | {"regression_threshold": None}
FIXED_BY_TASK: dict[str, Configuration] = {"stsb": {"regression_threshold": 0.2}}
# The original (finetune_bert.sh) takes the dropout of the backbone's configuration, which is 0 for ALBERT-base.
FIXED_BY_FAMILY: dict[str, Configuration] = {"bert": {"hidden_dropout": 0.1}}
BACKBONE = paper.BACKBONE

MINI_GRID = {"patience": [3]}  # the tiny backbones have six layers

# The command in the PALBERT repository's README, then PABEE's training script (its epochs and schedule differ).
PUBLISHED: dict[str, list[Configuration]] = {
    "rte": [
        {"learning_rate": 1e-5, "batch_size": 32, "patience": 6},
        {"learning_rate": 2e-5, "batch_size": 32, "patience": 6},
    ],
}
