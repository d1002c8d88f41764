"""ALBERT's pretraining, base size (arXiv:1909.11942, section 4.1; google-research/albert at b772393)."""

from typing import Any

from search_spaces.objectives import _mini as mini
from trainables.schema import Value

FIXED: dict[str, Value] = {
    "learning_rate": 1.76e-3,
    "batch_size": 4096,
    "gradient_accumulation": 32,
    "steps": 125_000,
    "steps_per_epoch": 1_000,
    "optimizer": "lamb",
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-6,
    "weight_decay": 0.01,
    "schedule": "linear",
    "decay_power": None,
    "warmup_steps": 3_125,
    "gradient_clip": 1.0,
    "max_length": 512,
    "packing": "sentence_pairs",
    "masking": "n_gram",
    "mask_probability": 0.15,
    "max_predictions": 77,  # 15 % of 512
    "mask_token_share": 0.8,
    "random_token_share": 0.1,
    "hidden_dropout": 0.0,  # version 2 of base
    "classifier_dropout": 0.0,
    "attention": "softmax",
    "num_landmarks": None,
    "conv_kernel_size": None,
    "precision": "bfloat16",
}
MINI_FIXED: dict[str, Value] = mini.FIXED
BACKBONE = {"mini": "mini-albert", "paper": "albert-base"}
TOKENIZER = {"paper": "albert/albert-base-v2"}
DEPARTURES = (
    "the corpus is the one that is asked for; the original's is Wikipedia with books",
    "15 % of the tokens are predicted, 77 at most; the commands of its README have 20 at most, 4 % of 512",
    "no dropout, as version 2 of its README, whose base ran for 10 million steps; these are version 1's steps",
    "no pair crosses documents; the original gives a chunk of one sentence a second segment of another document",
    "masks and orders are drawn anew at every step; the original's are drawn once, in 40 copies",
    "a word is what the tokenizer's splitting makes one; the original begins a word at pieces with a leading space",
    "an n-gram does not cross the border of segments and none is part of another; the original's may",
    "after the warm-up the learning rate falls from its peak; the original's from 97.5 % of it",
    "5 % of the documents are held out; the original trains on all",
    "weights start from a normal distribution; the original cuts it at two deviations",
    "bfloat16; the original in float32",
)
VARIANTS: dict[str, dict[str, Any]] = {}
