"""The sizes of published backbones, which can be had by name with random weights. Imports no torch, no transformers.

A name is a configuration of `transformers`: what is not said is its family's default there. What the counts of
parameters are, and which model they count: tests/trainables/encoders/test_published_sizes.py.
"""

from collections.abc import Mapping
from typing import Any

_SMALL: Mapping[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}

PUBLISHED_SIZES: Mapping[str, Mapping[str, Any]] = {
    # arXiv:1909.11942, table 1; google-research/albert, albert_config.json of the two.
    "albert-base": {
        "model_type": "albert",
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
    },
    "albert-large": {
        "model_type": "albert",
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 512,
    },
    # arXiv:2003.10555, table 6 (google-research/electra, configure_pretraining.py): the discriminator.
    "electra-small": {"model_type": "electra", "embedding_size": 128, "max_position_embeddings": 512, **_SMALL},
    # shoarora/lmtuners, experiments/disc_lm_small: ALECTRA's discriminator, and BERT of ELECTRA-small's width.
    "alectra-small": {"model_type": "albert", "embedding_size": 128, "max_position_embeddings": 128, **_SMALL},
    "bert-small": {"model_type": "bert", "max_position_embeddings": 128, **_SMALL},
    # AAAI 2024, 29781 (jchenghu/sharebert, README): width 2048, 16 heads. The original trained 30528 embeddings, 6 of
    # them for no token.
    "sharebert-small": {"model_type": "sharebert", "factor_size": 128, "num_hidden_layers": 12},
    "sharebert-base": {"model_type": "sharebert", "factor_size": 384, "num_hidden_layers": 12},
    "sharebert-large": {"model_type": "sharebert", "factor_size": 768, "num_hidden_layers": 6},
}
