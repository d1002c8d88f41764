"""ALBERT-base's pretraining (arXiv:1909.11942, section 4.1; google-research/albert at b772393)."""

from typing import Any

from search_spaces.objectives import _every_objective as every_objective
from trainables.configuration.schema import Value

FIXED: dict[str, Value] = every_objective.FIXED | {
    "learning_rate": 1.76e-3,
    "batch_size": 4096,
    "gradient_accumulation": 32,
    "steps": 125_000,
    "steps_per_epoch": 1_000,
    "optimizer": "lamb",
    "adam_beta2": 0.999,
    "warmup_steps": 3_125,
    "gradient_clip": 1.0,
    "max_length": 512,
    "packing": "sentence_pairs",
    "masking": "n_gram",
    "mask_probability": 0.15,
    "max_predictions": 77,  # 15 % of 512
    "mask_token_share": 0.8,
    "random_token_share": 0.1,
    "hidden_dropout": 0.0,  # as in version 2 of base
    "classifier_dropout": 0.0,
}
MINI_FIXED: dict[str, Value] = every_objective.MINI_FIXED
BACKBONE = {"mini": "mini-albert", "paper": "albert-base"}
TOKENIZER = {"paper": "albert/albert-base-v2"}
DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("corpus", "Wikipedia and books", "the text of --corpus"),
    ("max_predictions", "20 in its README, 4 % of 512", "77, 15 %"),
    ("hidden_dropout", "0 in version 2, with 10 million steps", "0, with version 1's steps"),
    ("chunk of one sentence", "gets text of another document", "gets the next sentence; the last one is dropped"),
    ("masks and orders", "drawn once, in 40 copies", "drawn at every step"),
    ("word", "begins at a piece with a leading space", "as the tokenizer splits the text"),
    ("masking", "n-grams may cross segments and overlap", "within a segment, without overlaps"),
    ("schedule", "falls from 97.5 % of its peak", "falls from its peak"),
    ("held out", "nothing", "5 % of the documents"),
    ("first weights", "normal, cut at two deviations", "normal"),
    ("precision", "float32", "bfloat16"),
)
VARIANTS: dict[str, dict[str, Any]] = {}
