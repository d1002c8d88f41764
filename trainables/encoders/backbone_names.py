"""The names of backbones: published sizes, tiny backbones, folders, and hub names.

Imports neither torch nor transformers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SMALL: Mapping[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


def _albert(hidden_size: int, num_layers: int, num_heads: int) -> Mapping[str, Any]:
    """Build a configuration of ALBERT (arXiv:1909.11942, table 1; albert_config.json in google-research/albert)."""
    return {
        "model_type": "albert",
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "intermediate_size": 4 * hidden_size,
        "max_position_embeddings": 512,
    }


# Published backbones by name, made here with random weights. Each value is a `transformers` configuration; missing
# fields have the family's defaults. Parameter counts: tests/trainables/encoders/test_published_sizes.py.
PUBLISHED_SIZES: Mapping[str, Mapping[str, Any]] = {
    # hidden size, layers, heads
    "albert-base": _albert(768, 12, 12),
    "albert-large": _albert(1024, 24, 16),
    "albert-xlarge": _albert(2048, 24, 16),
    "albert-xxlarge": _albert(4096, 12, 64),
    # arXiv:2003.10555, table 6 (google-research/electra, configure_pretraining.py): the discriminator.
    "electra-small": {"model_type": "electra", "embedding_size": 128, "max_position_embeddings": 512, **_SMALL},
    # shoarora/lmtuners, experiments/disc_lm_small: ALECTRA's discriminator, and a BERT as wide as ELECTRA-small.
    "alectra-small": {"model_type": "albert", "embedding_size": 128, "max_position_embeddings": 128, **_SMALL},
    "bert-small": {"model_type": "bert", "max_position_embeddings": 128, **_SMALL},
    # AAAI 2024, 29781 (jchenghu/sharebert, README): width 2048, 16 heads. The original trained 30528 embeddings, of
    # which 6 belong to no token.
    "sharebert-small": {"model_type": "sharebert", "factor_size": 128, "num_hidden_layers": 12},
    "sharebert-base": {"model_type": "sharebert", "factor_size": 384, "num_hidden_layers": 12},
    "sharebert-large": {"model_type": "sharebert", "factor_size": 768, "num_hidden_layers": 6},
}


MINI_BACKBONES = ("mini-albert", "mini-bert", "mini-electra", "mini-roberta", "mini-sharebert")
MINI_LAYERS = 6
MINI_BYTES = 500_000  # roughly, of the weights: the vocabulary depends on the data
# Backbones that are made here with random weights (neither folders nor hub names), and the version of each. Trial keys
# contain the version: change it (to any new text) only if the backbone's weights, tokens or outputs change. The first
# versions are hashes of former source files.
UNTRAINED: Mapping[str, str] = {
    "mini-albert": "19aa5b248e942a92",
    "mini-bert": "19aa5b248e942a92",
    "mini-electra": "19aa5b248e942a92",
    "mini-roberta": "19aa5b248e942a92",
    "mini-sharebert": "a36a8ecdaa3eac84",
    "albert-base": "f4a1ed7ad8c37f66",
    "albert-large": "fa88fc3a963fc2c1",
    "albert-xlarge": "ca942ebe3eaec9b6",
    "albert-xxlarge": "cf6de12df7a3a6dc",
    "electra-small": "863daaec01c68f41",
    "alectra-small": "4bc1edd0339fb2e3",
    "bert-small": "8cc6ff86219a5dc0",
    "sharebert-small": "d84df775bf92509a",
    "sharebert-base": "7541d8eae8ef642c",
    "sharebert-large": "142c988b7685e306",
}

# Old hub names of these families have no owner; the hub redirects each of them to OWNER/NAME.
_BARE_HUB_NAMES: Mapping[str, tuple[str, ...]] = {  # owner -> names
    "albert": tuple(f"albert-{size}-v{n}" for size in ("base", "large", "xlarge", "xxlarge") for n in (1, 2)),
    "google-bert": (
        *("bert-base-chinese", "bert-base-cased-finetuned-mrpc"),
        *(f"bert-base-german-{name}" for name in ("cased", "dbmdz-cased", "dbmdz-uncased")),
        *(f"bert-{size}-{case}" for size in ("base", "large", "base-multilingual") for case in ("uncased", "cased")),
        *(f"bert-large-{case}-whole-word-masking" for case in ("uncased", "cased")),
        *(f"bert-large-{case}-whole-word-masking-finetuned-squad" for case in ("uncased", "cased")),
    ),
    "FacebookAI": ("roberta-base", "roberta-large", "roberta-large-mnli"),
    "distilbert": ("distilroberta-base",),
    "openai-community": ("roberta-base-openai-detector", "roberta-large-openai-detector"),
}
OWNERS = {name: owner for owner, names in _BARE_HUB_NAMES.items() for name in names}

_LICENCES = {  # start of a hub name -> licence on its page, read on 2026-11-25
    "albert/": "apache-2.0",
    "google-bert/": "apache-2.0",  # not verified
    "google/electra": "apache-2.0",
    "FacebookAI/roberta": "mit",
    "sentence-transformers/all-MiniLM": "apache-2.0",
}
_LIKE_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".index", ".index.json")
PRETRAINING_FILE = "pretraining.json"  # record of the pretraining; not in fingerprints, because it contains times


def pinned(backbone: str, fingerprint: str) -> str:
    """Pin a hub name to the commit in its fingerprint; return any other name unchanged."""
    return fingerprint if is_hub_name(backbone) and "@" in fingerprint else backbone


def make_absolute(backbone: str) -> str:
    """Make the path of a folder that is there absolute; return other names unchanged."""
    return str(Path(backbone).resolve()) if is_folder(backbone) and Path(backbone).is_dir() else backbone


def hub_revision(backbone: str) -> tuple[str, str]:
    """Split `NAME@REVISION` into name and revision. The default revision is `main`."""
    name, _, revision = backbone.partition("@") if is_hub_name(backbone) else (backbone, "", "")
    return name, revision or "main"


def whole_name(backbone: str) -> str:
    """Add the missing owner to a hub name and drop its revision; return any other name unchanged."""
    name = hub_revision(backbone)[0]
    return f"{OWNERS[name]}/{name}" if name in OWNERS and is_hub_name(backbone) else name


def find_licence(name: str) -> str | None:
    """Look up a backbone's licence by the hub name OWNER/NAME; return None if the licence is unknown."""
    return next((licence for start, licence in _LICENCES.items() if name.startswith(start)), None)


def is_untrained(backbone: str) -> bool:
    """Check whether a backbone is in `UNTRAINED`, or a folder with a configuration but no weights."""
    if not is_folder(backbone):
        return backbone in UNTRAINED
    folder = Path(backbone)
    has_weights = any(path.name.endswith(_LIKE_WEIGHTS) for path in folder.glob("*"))
    return (folder / "config.json").is_file() and not has_weights and not (folder / PRETRAINING_FILE).is_file()


def is_hub_name(backbone: str) -> bool:
    """Check whether a name is a hub name: NAME or OWNER/NAME, with or without @REVISION."""
    return backbone not in UNTRAINED and not is_folder(backbone)


def is_folder(name: str) -> bool:
    """Check whether a name is an existing folder or looks like a path."""
    looks_like_path = name.startswith((".", "~", os.sep)) or name.count("/") > 1
    return name not in UNTRAINED and (looks_like_path or Path(name).is_dir())
