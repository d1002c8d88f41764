"""BERxiT search space: the values of castorini/berxit at 1fb2162 (scripts/train_highway.sh, run_highway_glue.py).

The scripts use one configuration for all tasks. The learning rates are searched in the range of the PALBERT paper's
baselines. The batch sizes are searched from 8 (the scripts' value) to 32.
"""

from optuna.distributions import BaseDistribution, CategoricalDistribution

from search_spaces import _palbert_paper as paper
from trainables.configuration.schema import Configuration, Value
from trainables.encoders import architectures

SPACE: dict[str, BaseDistribution] = paper.SPACE | {"batch_size": CategoricalDistribution([8, 16, 32])}

# --lte_th: the scripts set no value, because the paper draws a curve. The model's default is 0.005; the option's help
# gives 0.2 as an example.
POST_HOC = {"threshold": [0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5]}
PAPER_GRID: dict[str, list[Value]] = {"learning_rate": [2e-5], "batch_size": [8], "threshold": [0.2]}

FIXED: dict[str, Value] = paper.FIXED | {
    "epochs": 3,
    "stop_after": 0,
    "select": "last",
    "schedule": "linear",
    "gradient_clip": 1.0,
}
# The script takes the dropout of the backbone's configuration, which is 0 for ALBERT-base.
FIXED_BY_FAMILY: dict[str, Configuration] = {
    "bert": {"hidden_dropout": 0.1},
    "distilbert": {"hidden_dropout": 0.1},
    "roberta": {"hidden_dropout": 0.1, "epochs": 10},
}
BACKBONE = paper.BACKBONE
FAMILIES = tuple(family for family in architectures.FAMILIES if family != "sharebert")  # its pooler cannot be copied
