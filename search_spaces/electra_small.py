"""ELECTRA-small search space: learning rates around Clark et al. (arXiv:2003.10555, appendix B) and its re-runs.

The rest is the released code's fine-tuning defaults (google-research/electra, configure_finetuning.py). These differ
from the paper in weight decay (0.01, the paper has 0) and in the layer-wise decay (see trainables/electra_small.py).
"""

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from search_spaces import _random_start as random_start
from trainables.schema import Configuration, Value

# Learning rate: the paper searched 1e-4 to 5e-4 (as quoted); lmtuners' README goes down to 2e-5. Batch size: lmtuners'.
SPACE: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(2e-5, 5e-4, log=True),
    "batch_size": CategoricalDistribution([16, 32, 128]),
}
PAPER_GRID: dict[str, list[Value]] = {"learning_rate": [1e-4, 2e-4, 3e-4, 5e-4], "batch_size": [32]}

FIXED: dict[str, Value] = {
    "epochs": 3,
    "stop_after": 0,
    "select": "last",  # run_finetuning.py evaluates once, after the last step
    "weight_decay": 0.01,
    "adam_epsilon": 1e-6,
    "schedule": "linear_from_start",
    "warmup_ratio": 0.1,
    "gradient_clip": 1.0,
    "layer_decay": 0.8,
    "layer_decay_convention": "released",
    "head": "first_token",
    "max_length": 128,
    "classifier_dropout": 0.1,
    "hidden_dropout": 0.1,
    "num_hidden_layers": 0,
    "precision": "float32",
}
FIXED_BY_TASK: dict[str, Configuration] = {"rte": {"epochs": 10}, "stsb": {"epochs": 10}}

BACKBONE = {"mini": "mini-electra", "paper": "google/electra-small-discriminator"}

MINI_SPACE = random_start.SPACE
MINI_GRID = random_start.GRID
MINI_FIXED = random_start.FIXED | {"layer_decay_convention": None}

_RELEASED = {"learning_rate": 1e-4, "batch_size": 32}  # the released code's default
_RERUN = {"learning_rate": 3e-4, "batch_size": 32}  # richarddwang/electra_pytorch

# After those two, where they differ, lmtuners' README: its values for ALECTRA-small, and RTE's for ELECTRA-small.
PUBLISHED: dict[str, list[Configuration]] = {
    "cola": [_RELEASED, _RERUN, {"learning_rate": 2e-5, "batch_size": 32}],
    "mnli": [_RELEASED, _RERUN],
    "mrpc": [_RELEASED, _RERUN, {"learning_rate": 1e-4, "batch_size": 128}],
    "qnli": [_RELEASED, _RERUN, {"learning_rate": 5e-5, "batch_size": 32}],
    "qqp": [_RELEASED, _RERUN, {"learning_rate": 5e-5, "batch_size": 32}],
    "rte": [_RELEASED, _RERUN, {"learning_rate": 2e-5, "batch_size": 32}],
    "sst2": [_RELEASED, _RERUN, {"learning_rate": 5e-5, "batch_size": 16}],
    "stsb": [_RELEASED, _RERUN, {"learning_rate": 1e-4, "batch_size": 16}],
}
