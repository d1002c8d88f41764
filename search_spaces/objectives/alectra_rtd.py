"""ALECTRA-small's pretraining (shoarora/lmtuners, train_alectra_small.py, and the card of its model on the hub)."""

from search_spaces.objectives import _mini as mini
from trainables.schema import Value

FIXED: dict[str, Value] = {
    "learning_rate": 2e-3,
    "batch_size": 512,
    "gradient_accumulation": 1,
    "steps": 500_000,
    "steps_per_epoch": 5_000,
    "optimizer": "lamb_clamped",
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-6,
    "weight_decay": 0.01,
    "schedule": "linear",
    "decay_power": None,
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
    "attention": "softmax",
    "num_landmarks": None,
    "conv_kernel_size": None,
    "precision": "bfloat16",
    "discriminator_weight": 50.0,
    "generator_hidden_size": 256,
    "generator_layers": 3,
    "generator_heads": 1,
    "generator_intermediate_size": 1024,
}
MINI_FIXED: dict[str, Value] = mini.FIXED | mini.GENERATOR
BACKBONE = {"mini": "mini-albert", "paper": "alectra-small"}
TOKENIZER = {"paper": "google-bert/bert-base-uncased"}
