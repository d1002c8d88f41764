"""The tiny untrained backbones and their tokenizer. This file, with `families.py` and `word_vocabulary.py`, is their
content: its hash is their fingerprint (`backbone_fingerprint`), so a change here makes other backbones."""

from collections.abc import Iterable
from typing import Any

from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from trainables.configuration import EncoderConfig
from trainables.encoders.backbones import MINI_LAYERS
from trainables.encoders.families import dropouts, family_options, reserved_positions
from trainables.encoders.word_vocabulary import word_model


def mini_model(family: str, vocab_size: int, config: EncoderConfig) -> PreTrainedModel:
    """Few layers of width 32: seconds on a CPU, and deep enough for exits to mean something.

    Twice the width takes twice the time and learns mini-GLUE no better within nine epochs.
    """
    model_config = AutoConfig.for_model(
        family,
        hidden_size=32,
        num_hidden_layers=MINI_LAYERS,
        num_attention_heads=2,
        max_position_embeddings=config.max_length + reserved_positions(family, pad_token_id=0),
        type_vocab_size=1 if family == "roberta" else 2,
        pad_token_id=0,
        **_widths(family, vocab_size),
        **dropouts(config),
    )
    return AutoModel.from_config(model_config, attn_implementation="sdpa", **family_options(family))


def _widths(family: str, vocab_size: int) -> dict[str, Any]:
    """ShareBERT's matrices are cut out of the embeddings and made of their products.

    So it has embeddings to spare where there are few tokens. At this width products of normal numbers of 0.02 are next
    to nothing, and it learns nothing in the mini budget; with 0.15 it does (tests/trainables/test_learnability.py).
    """
    if family == "sharebert":
        return {
            "vocab_size": max(vocab_size, 256),
            "factor_size": 32,
            "intermediate_size": 32,
            "initializer_range": 0.15,
        }
    return {"vocab_size": vocab_size, "embedding_size": 32, "intermediate_size": 64}


def word_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """The tokenizer of a tiny backbone; the same texts give the same one."""
    return PreTrainedTokenizerFast(
        tokenizer_object=word_model(texts),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
