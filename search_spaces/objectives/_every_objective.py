"""Values that all objectives share. benchmarks/pretraining.py tests the values for tiny random backbones."""

from trainables.configuration.schema import Value

FIXED: dict[str, Value] = {
    "gradient_accumulation": 1,
    "adam_epsilon": 1e-6,
    "weight_decay": 0.01,
    "schedule": "linear",
    "decay_power": None,
    "attention": "softmax",
    "num_landmarks": None,
    "conv_kernel_size": None,
    "precision": "bfloat16",
}
MINI_FIXED: dict[str, Value] = {
    "learning_rate": 2e-3,
    "batch_size": 32,
    "gradient_accumulation": 1,
    "steps": 2_000,
    "steps_per_epoch": 250,
    "optimizer": "adamw",
    "adam_beta2": 0.999,
    "schedule": "linear",
    "warmup_steps": 100,
    "gradient_clip": 1.0,
    "max_length": 128,  # as for mini-GLUE's tasks; every text is shorter, and each batch is padded to its longest text
    "packing": "sentence_pairs",
    "hidden_dropout": 0.0,
    "classifier_dropout": 0.0,
    "precision": "float32",
}
MINI_GENERATOR: dict[str, Value] = {
    "generator_hidden_size": 16,
    "generator_layers": 3,
    "generator_heads": 1,
    "generator_intermediate_size": 32,
}
