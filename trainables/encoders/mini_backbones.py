"""The tiny untrained backbones and their tokenizer. After a change here, see `UNTRAINED` in backbone_names.py."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerFast

from trainables.configuration import EncoderConfig
from trainables.encoders.backbone_names import MINI_LAYERS
from trainables.encoders.family_options import dropout_options, family_options, reserved_positions

MINI_VOCABULARY = 8_000  # words
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def mini_model(family: str, vocab_size: int, config: EncoderConfig) -> PreTrainedModel:
    """Build an encoder with 6 layers of width 32, which trains in seconds on a CPU.

    An encoder of twice the width takes twice the time and learns mini-GLUE no better within nine epochs.
    """
    model_config = AutoConfig.for_model(
        family,
        hidden_size=32,
        num_hidden_layers=MINI_LAYERS,
        num_attention_heads=2,
        max_position_embeddings=config.max_length + reserved_positions(family, pad_token_id=0),
        type_vocab_size=1 if family == "roberta" else 2,
        pad_token_id=0,
        **_choose_sizes(family, vocab_size),
        **dropout_options(config, family),
    )
    return AutoModel.from_config(model_config, **family_options(family))


def _choose_sizes(family: str, vocab_size: int) -> dict[str, Any]:
    """Choose the sizes that differ between families.

    ShareBERT computes its weight matrices from the word embeddings, so it needs at least 256 of them. These matrices
    are products. With weights drawn at the usual standard deviation of 0.02, the products are almost zero at this
    width, and the model learns nothing on mini-GLUE; with 0.15 it does (tests/trainables/test_learnability.py).
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
    """Build a tokenizer whose vocabulary is the most frequent lower-case words and punctuation marks of the texts.

    The same texts give the same tokenizer.
    """
    splitter = pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts: Counter[str] = Counter()
    for part, count in Counter(part for text in texts for part in text.split(" ")).items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(part)):
            counts[word] += count
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    vocabulary = list(dict.fromkeys([*SPECIAL_TOKENS, *ranked[:MINI_VOCABULARY]]))
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
