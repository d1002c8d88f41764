"""Masked language modelling as in ShareBERT (README of jchenghu/sharebert at e54fe72), with segments of 128 tokens."""

from typing import Any

from search_spaces.objectives import _every_objective as every_objective
from search_spaces.objectives import alectra_rtd as alectra
from trainables.configuration.schema import Value

FIXED: dict[str, Value] = every_objective.FIXED | {
    "learning_rate": 1e-3,
    "batch_size": 4000,
    "gradient_accumulation": 16,  # parts of 250 examples
    "steps": 23_000,
    "steps_per_epoch": 500,
    "optimizer": "adamw",
    "adam_beta2": 0.98,
    "warmup_steps": 1_380,  # 6 % of the steps
    "gradient_clip": 0.5,
    "max_length": 128,
    "packing": "full",
    "masking": "token",
    "mask_probability": 0.15,
    "max_predictions": 20,
    "mask_token_share": 0.8,
    "random_token_share": 0.1,
    "hidden_dropout": 0.1,
    "classifier_dropout": 0.0,
}
MINI_FIXED: dict[str, Value] = every_objective.MINI_FIXED
BACKBONE = {"mini": "mini-albert", "paper": "sharebert-small"}
TOKENIZER = {"paper": "google-bert/bert-base-uncased"}
DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("corpus", "Wikipedia and books", "the text of --corpus"),
    ("example", "whole sentences, cut to 126 tokens", "running text, cut every 126 tokens"),
    ("length of examples", "random in one document of ten", "as long as possible"),
    ("masks", "drawn once, in 5 copies", "drawn at every step"),
    ("held out", "10 % of the documents", "5 % of the documents"),
    ("weight decay of norms", "on the two between embeddings and layers", "on none"),
    ("embeddings", "30,528, of which 6 belong to no token", "30,522"),
    ("precision", "float16", "bfloat16"),
)
VARIANTS: dict[str, dict[str, Any]] = {
    # shoarora/lmtuners at 86f31ba, experiments/disc_lm_small/train_bert_small.py
    "bert-small": {
        "fixed": {field: alectra.FIXED[field] for field in FIXED}
        | {
            "learning_rate": 5e-4,
            "batch_size": 128,
            "steps": 1_500_000,
            "steps_per_epoch": 15_000,
            "warmup_steps": 10_000,
            "mask_token_share": 0.8,
            "random_token_share": 0.1,
        },
        "backbone": {"mini": "mini-bert", "paper": "bert-small"},
        "departures": (
            ("corpus", "OpenWebText", "the one asked for"),
            ("two random lines", "of one file", "of one document"),
            ("held out", "20 % of the files", "5 % of the documents"),
            ("precision", "float32", "bfloat16"),
        ),
    },
}
