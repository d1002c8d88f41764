"""ALECTRA-small's pretraining (shoarora/lmtuners at 86f31ba, train_alectra_small.py, and the model card on the hub).

The README describes three architectures. The reported architecture has two ALBERTs, as generator and discriminator. A
BERT generator "didn't perform", and tying the encoders of the two ALBERTs was "found to hurt performance".
"""

from typing import Any

from search_spaces.objectives import _every_objective as every_objective
from trainables.configuration.schema import Value

FIXED: dict[str, Value] = every_objective.FIXED | {
    "learning_rate": 2e-3,
    "batch_size": 512,
    "steps": 500_000,
    "steps_per_epoch": 5_000,
    "optimizer": "lamb_clamped",
    "adam_beta2": 0.999,
    "warmup_steps": 40_000,
    "gradient_clip": 0.0,
    "max_length": 128,
    "packing": "random_lines",
    "masking": "bernoulli",
    "mask_probability": 0.15,
    "max_predictions": 0,
    "mask_token_share": 1.0,
    "random_token_share": 0.0,
    "hidden_dropout": 0.1,
    "classifier_dropout": 0.1,
    "discriminator_weight": 50.0,
    "generator_family": "albert",
    "tie_encoder": False,
    "generator_hidden_size": 256,
    "generator_layers": 3,
    "generator_heads": 1,
    "generator_intermediate_size": 1024,
}
MINI_FIXED: dict[str, Value] = every_objective.MINI_FIXED | every_objective.MINI_GENERATOR
BACKBONE = {"mini": "mini-albert", "paper": "alectra-small"}
TOKENIZER = {"paper": "google-bert/bert-base-uncased"}
_SHARED_DEPARTURES = (
    ("corpus", "OpenWebText", "the text of --corpus"),
    ("two random lines", "of one file", "of one document"),
    ("full_layer_layer_norm.weight", "weight decay: its exceptions miss the name", "no weight decay"),
    ("held out", "20 % of the files", "5 % of the documents"),
    ("precision", "float32", "bfloat16"),
)
DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("tied embeddings", "cloned: 9,557,180 parameters", "tied: 5,633,724 parameters"),
    *_SHARED_DEPARTURES,
)
_OF_VARIANTS = ("batch_size, steps, learning_rate", "not in the README", "those of the reported model")
VARIANTS: dict[str, dict[str, Any]] = {
    "bert-generator": {
        "fixed": FIXED | {"generator_family": "bert", "generator_hidden_size": 128, "generator_intermediate_size": 256},
        "mini_fixed": MINI_FIXED | {"generator_hidden_size": 32},  # width of the shared embeddings
        "departures": (
            ("generator of the reported model", "an ALBERT", "a BERT"),
            _OF_VARIANTS,
            ("tied embeddings", "cloned: 13,022,268 parameters", "tied: 5,191,996 parameters"),
            *_SHARED_DEPARTURES,
        ),
    },
    "tied-encoders": {
        "fixed": FIXED | {"tie_encoder": True},
        "mini_fixed": MINI_FIXED | {"generator_hidden_size": 32, "generator_intermediate_size": 64},
        "departures": (
            ("encoders of the reported model", "separate (tied by its script's default)", "tied"),
            ("updates of the shared layers", "two per step: its optimiser lists them twice", "one per step"),
            _OF_VARIANTS,
            ("heads of the discriminator", "the generator's 1; 4 in its configuration", "4"),
            ("tied embeddings", "cloned: 8,767,420 parameters", "tied: 4,843,964 parameters"),
            *_SHARED_DEPARTURES,
        ),
    },
}
