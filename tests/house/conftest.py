"""Small inputs of the real results."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.glue_folders import write_glue
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "good"]


@pytest.fixture(scope="session")
def backbone(tmp_path_factory) -> Path:
    """A BERT of six layers, untrained."""
    folder = tmp_path_factory.mktemp("backbone") / "tiny"
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 6, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def glue(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "glue"
    for task in ("rte", "mrpc", "cola", "sst2"):
        write_glue(folder, task=task, rows=16)
    return folder
