"""Masked language modelling as ShareBERT's (README of jchenghu/sharebert at 6530e06): one segment of 128 tokens."""

from search_spaces.objectives import _mini as mini
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
    "precision": "bfloat16",  # float16 there
}
MINI_FIXED: dict[str, Value] = mini.FIXED
BACKBONE = {"mini": "mini-albert", "paper": "sharebert-small"}
TOKENIZER = {"paper": "google-bert/bert-base-uncased"}
