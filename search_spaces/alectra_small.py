"""ALECTRA-small search space: learning rates and batch sizes that shoarora/lmtuners found best on GLUE tasks.

The README in lmtuners (experiments/disc_lm_small, at 86f31ba) gives learning rate, batch size and epochs for each task.
There, RTE and STS-B start from an MNLI model. The other values in the README are from ELECTRA's appendix B: no weight
decay, and a learning rate that decays after the warm-up. All layers share their weights, so there is no layer-wise
decay.
"""

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from search_spaces import electra_small as electra
from trainables.configuration.schema import Configuration, Value

SPACE: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(2e-5, 1e-4, log=True),
    "batch_size": CategoricalDistribution([16, 32, 128]),
}
PAPER_GRID: dict[str, list[Value]] = {"learning_rate": [2e-5, 5e-5, 1e-4], "batch_size": [16, 32, 128]}

FIXED: dict[str, Value] = {field: value for field, value in electra.FIXED.items() if field not in SPACE} | {
    "weight_decay": 0.0,
    "schedule": "linear",
    "layer_decay": 1.0,
    "layer_decay_convention": None,
    "head": "pooled",  # the model card's AlbertForSequenceClassification
}
FIXED_BY_TASK: dict[str, Configuration] = {
    "cola": {"epochs": 10},
    "mrpc": {"epochs": 10},
    "qqp": {"epochs": 10},
    "rte": {"epochs": 5},
}

# The checkpoint has no tokenizer; its model card names BERT's.
BACKBONE = {"mini": "mini-albert", "paper": "shoarora/alectra-small-owt"}
TOKENIZER = {"mini": None, "paper": "google-bert/bert-base-uncased"}
FAMILIES = ("albert",)

PUBLISHED: dict[str, list[Configuration]] = {
    "cola": [{"learning_rate": 2e-5, "batch_size": 32}],
    "mnli": [{"learning_rate": 1e-4, "batch_size": 32}],
    "mrpc": [{"learning_rate": 1e-4, "batch_size": 128}],
    "qnli": [{"learning_rate": 5e-5, "batch_size": 32}],
    "qqp": [{"learning_rate": 5e-5, "batch_size": 32}],
    "rte": [{"learning_rate": 1e-4, "batch_size": 32}],
    "sst2": [{"learning_rate": 5e-5, "batch_size": 16}],
    "stsb": [{"learning_rate": 1e-4, "batch_size": 16}],
}
