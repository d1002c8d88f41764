"""Folders of tiny backbones with random weights and a short vocabulary."""

import json

from helpers.configurations import SIZES
from transformers import AutoConfig, AutoModel


def saved(folder, family="bert", tokenizer="vocab.txt", model_type=None):
    more = {"vocab_size": 256, "intermediate_size": 32} if family == "sharebert" else {}  # its matrices must fit
    more |= {"pad_token_id": 0} if family == "modernbert" else {}
    config = AutoConfig.for_model(family, **(SIZES | more))
    AutoModel.from_config(config).save_pretrained(folder)
    if tokenizer:
        (folder / tokenizer).write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"]))
    if model_type:
        content = json.loads((folder / "config.json").read_text()) | {"model_type": model_type}
        (folder / "config.json").write_text(json.dumps(content))
    return str(folder)
