"""Masked language modelling as ShareBERT's (README of jchenghu/sharebert at 6530e06): one segment of 128 tokens."""

from typing import Any

from search_spaces.objectives import _mini as mini
from search_spaces.objectives import alectra_rtd as alectra
from trainables.schema import Value

FIXED: dict[str, Value] = {
    "learning_rate": 1e-3,
    "batch_size": 4000,
    "gradient_accumulation": 16,  # 250 examples each
    "steps": 23_000,
    "steps_per_epoch": 500,
    "optimizer": "adamw",
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-6,
    "weight_decay": 0.01,
    "schedule": "linear",
    "decay_power": None,
    "warmup_steps": 1_380,  # 6 %
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
    "attention": "softmax",
    "num_landmarks": None,
    "conv_kernel_size": None,
    "precision": "bfloat16",
}
MINI_FIXED: dict[str, Value] = mini.FIXED
BACKBONE = {"mini": "mini-albert", "paper": "sharebert-small"}
TOKENIZER = {"paper": "google-bert/bert-base-uncased"}
DEPARTURES = (
    "the corpus is the one that is asked for; the original's is Wikipedia with books",
    "an example is running text, cut every 126 tokens; the original's is whole sentences, cut to 126 tokens",
    "every example is as long as it can be; in one document of ten the original's have a random length",
    "masks are drawn anew at every step; the original's are drawn once, in 5 copies",
    "5 % of the documents are held out; the original's 10 % of them",
    "no norm has weight decay; in the original the two between embeddings and layers have it",
    "30,522 embeddings; the original's 30,528, of which 6 are no token's",
    "bfloat16; the original in float16",
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
            "the corpus is the one that is asked for; the original's is OpenWebText",
            "two random lines of one document; the original's are of one file of its data",
            "5 % of the documents are held out; the original's split holds out 20 % of the files",
            "bfloat16; the original in float32",
        ),
    },
}
