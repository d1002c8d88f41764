"""ShareBERT search space: empty, because jchenghu/sharebert's README (at e54fe72) has one command for all eight tasks.

Values that the command does not set are the defaults of the `transformers` trainer (Adam's epsilon, a decay power of 1)
and of pretraining/modeling.py (dropout).
"""

from optuna.distributions import BaseDistribution

from trainables.configuration.schema import Value

SPACE: dict[str, BaseDistribution] = {}
PAPER_GRID: dict[str, list[Value]] = {}

FIXED: dict[str, Value] = {
    "learning_rate": 5e-5,
    "batch_size": 64,
    "epochs": 5,
    "stop_after": 0,
    "select": "last",  # the script keeps only this epoch
    "weight_decay": 0.01,
    "adam_epsilon": 1e-8,
    "schedule": "polynomial",
    "decay_power": 1.0,
    "warmup_ratio": 0.0,
    "warmup_steps": 50,
    "gradient_clip": 1.0,
    "layer_decay": 1.0,
    "max_length": 128,
    "classifier_dropout": 0.1,
    "hidden_dropout": 0.1,
}

# sharebert-small is a set of sizes without weights; `study.pretrain mlm` pretrains it. The tokenizer is BERT's.
BACKBONE = {"mini": "mini-sharebert", "paper": "sharebert-small"}
TOKENIZER = {"mini": None, "paper": "google-bert/bert-base-uncased"}
FAMILIES = ("sharebert",)

MINI_FIXED: dict[str, Value] = {"learning_rate": 1e-3, "warmup_steps": 0}
