"""ELECTRA-small's pretraining (arXiv:2003.10555, appendix A; google-research/electra, configure_pretraining.py)."""

from typing import Any

from search_spaces.objectives import _every_objective as every_objective
from search_spaces.objectives import alectra_rtd as alectra
from trainables.configuration.schema import Value

FIXED: dict[str, Value] = every_objective.FIXED | {
    "learning_rate": 5e-4,
    "batch_size": 128,
    "steps": 1_000_000,
    "steps_per_epoch": 10_000,
    "optimizer": "adamw_uncorrected",
    "adam_beta2": 0.999,
    "schedule": "linear_from_start",
    "warmup_steps": 10_000,
    "gradient_clip": 1.0,
    "max_length": 128,
    "packing": "electra",
    "masking": "token",
    "mask_probability": 0.15,
    "max_predictions": 19,
    "mask_token_share": 0.85,
    "random_token_share": 0.0,
    "hidden_dropout": 0.1,
    "classifier_dropout": 0.1,
    "discriminator_weight": 50.0,
    "generator_hidden_size": 64,
    "generator_layers": 12,
    "generator_heads": 1,
    "generator_intermediate_size": 256,
}
MINI_FIXED: dict[str, Value] = every_objective.MINI_FIXED | every_objective.MINI_GENERATOR
BACKBONE = {"mini": "mini-electra", "paper": "electra-small"}
TOKENIZER = {"paper": "google/electra-small-discriminator"}
DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("corpus", "OpenWebText", "the text of --corpus"),
    ("masked places", "may be drawn twice", "drawn without replacement"),
    ("a line after the second segment", "may go back to the first", "stays in the second"),
    ("held out", "nothing", "5 % of the documents"),
    ("first weights", "normal, cut at two deviations", "normal"),
    ("samples", "by Gumbel noise, the same distribution", "by the inverse distribution function"),
    ("precision", "float32", "bfloat16"),
)
VARIANTS: dict[str, dict[str, Any]] = {
    # shoarora/lmtuners at 86f31ba, experiments/disc_lm_small/train_electra_small.py, and the card of its model on the
    # hub: generator and discriminator are both BERT, with embeddings as wide as the layers.
    "lmtuners": {
        "fixed": {field: alectra.FIXED[field] for field in FIXED}
        | {"generator_hidden_size": 256, "generator_intermediate_size": 256},
        "mini_fixed": MINI_FIXED | {"generator_hidden_size": 32},  # width of the shared embeddings
        "backbone": {"mini": "mini-bert", "paper": "bert-small"},
        "tokenizer": alectra.TOKENIZER,
        "departures": (
            (
                "tied embeddings and output",
                "cloned: 34,270,268 parameters",
                "tied: 18,609,724 parameters",
            ),
            ("corpus", "OpenWebText", "the text of --corpus"),
            ("two random lines", "of one file", "of one document"),
            ("held out", "20 % of the files", "5 % of the documents"),
            ("precision", "float32", "bfloat16"),
        ),
    },
}
