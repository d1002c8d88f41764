"""ELECTRA-small search space: the learning rate, around the best values of Clark et al. (arXiv:2003.10555) and others.

All other fields have the fine-tuning defaults of the released code (google-research/electra at 8a46635,
configure_finetuning.py and model/optimization.py). The paper's appendix B differs in two values: weight decay is 0, and
`layer_decay_convention` is "paper".
"""

from optuna.distributions import BaseDistribution, FloatDistribution

from trainables.configuration.schema import Configuration, Value

# The paper searched "[1e-4, 2e-4, 3e-4, 5e-3]" for small models (appendix B); we read the last as 5e-4. The range
# starts at 2e-5, lmtuners' value for RTE.
SPACE: dict[str, BaseDistribution] = {"learning_rate": FloatDistribution(2e-5, 5e-4, log=True)}
PAPER_GRID: dict[str, list[Value]] = {"learning_rate": [1e-4, 2e-4, 3e-4, 5e-4]}

FIXED: dict[str, Value] = {
    "batch_size": 32,
    "epochs": 3,
    "stop_after": 0,
    "select": "last",  # run_finetuning.py evaluates once, after the last step
    "weight_decay": 0.01,
    "adam_epsilon": 1e-6,
    "schedule": "linear_from_start",
    "decay_power": None,
    "warmup_ratio": 0.1,
    "warmup_steps": 0,
    "gradient_clip": 1.0,
    "layer_decay": 0.8,
    "layer_decay_convention": "released",
    "head": "first_token",
    "max_length": 128,
    "classifier_dropout": 0.1,
    "hidden_dropout": 0.1,  # BertConfig's default, which util/training_utils.py does not change
}
FIXED_BY_TASK: dict[str, Configuration] = {"rte": {"epochs": 10}, "stsb": {"epochs": 10}}

# The README of lmtuners (cited below) loads lmtuners' ELECTRA-small (shoarora/electra-small-owt) as
# `BertForSequenceClassification`, hence `head`; its other values are "taken from the appendix in Clark 2020".
VARIANTS: dict[str, Configuration] = {
    "lmtuners": {
        "head": "pooled",
        "weight_decay": 0.0,
        "schedule": "linear",
        "layer_decay": 0.8,
        "layer_decay_convention": "paper",
    }
}

BACKBONE = {"mini": "mini-electra", "paper": "google/electra-small-discriminator"}
FAMILIES = ("electra", "bert")  # lmtuners' ELECTRA-small is a BERT

MINI_FIXED = {"layer_decay_convention": None}

_RELEASED = {"learning_rate": 1e-4}  # the released code's default
_RERUN = {"learning_rate": 3e-4}  # richarddwang/electra_pytorch

# lmtuners' README (shoarora/lmtuners at 86f31ba, experiments/disc_lm_small) gives one value, 2e-5 for RTE. There, RTE
# and STS-B start from an MNLI model; for the numbers in ELECTRA's README, they do not.
PUBLISHED: dict[str, list[Configuration]] = {
    "cola": [_RELEASED, _RERUN],
    "mnli": [_RELEASED, _RERUN],
    "mrpc": [_RELEASED, _RERUN],
    "qnli": [_RELEASED, _RERUN],
    "qqp": [_RELEASED, _RERUN],
    "rte": [_RELEASED, _RERUN, {"learning_rate": 2e-5}],
    "sst2": [_RELEASED, _RERUN],
    "stsb": [_RELEASED, _RERUN],
}
