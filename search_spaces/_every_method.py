"""Values for every method. They apply to fields that the method's own file does not mention.

The papers' ranges suit pretrained models of 12 layers. On a tiny random backbone (`mini-*`), `MINI_SPACE`, `MINI_GRID`
and `MINI_FIXED` replace them. docs/decisions.md#mini-ranges explains the values.
"""

from optuna.distributions import BaseDistribution, FloatDistribution

from trainables.configuration.schema import Configuration, Value

FIXED: Configuration = {  # values that have no effect
    "attention": "softmax",
    "num_landmarks": None,
    "conv_kernel_size": None,
    "num_hidden_layers": 0,
    "precision": "float32",
    "pooling": "pooler",
    "gradient_accumulation": 1,
}

MINI_SPACE: dict[str, BaseDistribution] = {"learning_rate": FloatDistribution(1e-3, 2e-3, log=True)}
MINI_GRID: dict[str, list[Value]] = {"learning_rate": [1e-3, 1.5e-3, 2e-3]}
MINI_FIXED: Configuration = {
    "batch_size": 32,
    "epochs": 6,
    "stop_after": 0,  # a random model may not improve for some epochs
    "warmup_ratio": 0.1,
    "gradient_clip": 1.0,
    "layer_decay": 1.0,
}
