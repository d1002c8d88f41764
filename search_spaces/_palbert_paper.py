"""Values that all methods of the PALBERT paper (arXiv:2204.03276, section 4.1 and table 4) share.

The paper lists values that were "used in all of our experiments": learning rates {1, 2, 3, 5}e-5, batch sizes
{16, 32, 128}, Adam with a fixed learning rate, a classifier dropout of 0.1, and training until five epochs pass without
improvement. The other values are from the released code (tinkoff-ai/palbert at 52a79af): at most 25 epochs, no
clipping, no weight decay, no dropout in the encoder, and 128 tokens.
"""

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from trainables.configuration.schema import Value

SPACE: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(1e-5, 5e-5, log=True),
    "batch_size": CategoricalDistribution([16, 32, 128]),
}

GRID: dict[str, list[Value]] = {"learning_rate": [1e-5, 2e-5, 3e-5, 5e-5], "batch_size": [16, 32, 128]}

FIXED: dict[str, Value] = {
    "epochs": 25,
    "stop_after": 5,
    "select": "best",  # the epoch with the best dev score, as in the paper's tables
    "weight_decay": 0.0,
    "adam_epsilon": 1e-8,
    "schedule": "constant",
    "decay_power": None,
    "warmup_ratio": 0.0,
    "warmup_steps": 0,
    "gradient_clip": 0.0,
    "layer_decay": 1.0,
    "max_length": 128,
    "classifier_dropout": 0.1,
    "hidden_dropout": 0.0,
}

BACKBONE = {"mini": "mini-albert", "paper": "albert/albert-base-v2"}

# β ranges from PonderNet's 0.01 (arXiv:2107.05407) to above PALBERT's 0.5. The prior's λ ranges over the values in
# PALBERT's figure 5 and its text, 0.08 to 0.5.
PONDER_SPACE: dict[str, BaseDistribution] = {
    "beta": FloatDistribution(0.01, 1.0, log=True),
    "prior_lambda": FloatDistribution(0.08, 0.5, log=True),
}

# PALBERT, section 4.1: β 0.5 (table 4), prior λ 0.1, posterior cut at 1 - 0.05.
PONDER_GRID: dict[str, list[Value]] = {"beta": [0.5], "prior_lambda": [0.1]}

# The KL direction, tail and initialisation are those of the released code; the papers' text has others.
PONDER_FIXED: dict[str, Value] = {
    "lambda_bias_init": "default",
    "epsilon": 0.05,
    "kl_direction": "prior_posterior",
    "posterior_tail": "constant",
}
