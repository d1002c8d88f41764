"""Search ranges for training a tiny random backbone (`mini-*`); they replace the ranges of every method.

The papers' ranges suit pretrained models of 12 layers. docs/decisions.md#mini-ranges explains the ranges in this file.
"""

from optuna.distributions import BaseDistribution, FloatDistribution

from trainables.schema import Value

SPACE: dict[str, BaseDistribution] = {"learning_rate": FloatDistribution(1e-3, 2e-3, log=True)}

GRID: dict[str, list[Value]] = {"learning_rate": [1e-3, 1.5e-3, 2e-3]}

FIXED: dict[str, Value] = {
    "batch_size": 32,
    "epochs": 6,
    "stop_after": 0,  # a random model may not improve for some epochs
    "warmup_ratio": 0.1,
    "gradient_clip": 1.0,
    "layer_decay": 1.0,
}

PONDER_SPACE: dict[str, BaseDistribution] = {
    "beta": FloatDistribution(0.1, 0.5, log=True),
    "prior_lambda": FloatDistribution(0.2, 0.35, log=True),
}

PONDER_GRID: dict[str, list[Value]] = {"prior_lambda": [0.25]}
