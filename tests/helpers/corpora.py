"""Small corpora for tests, and configurations of objectives on them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from helpers.configurations import SIZES
from safetensors.numpy import load_file, save, save_file

import search_spaces.objectives
from study.plans.pretrained_backbone import PretrainingFile, write_pretraining
from study.plans.resolved_plan import Pretraining
from trainables import base_method
from trainables.encoders.mini_backbones import word_tokenizer
from trainables.encoders.needed_weights import list_weights
from trainables.pretraining import objectives
from trainables.pretraining.configuration import PretrainingConfig, PretrainingSpec

WORDS = ("the", "a", "dog", "cat", "bird", "sees", "hears", "likes", "red", "old", "tree", "house", "and", "near", "it")


def write_corpus(folder: Path, documents: Iterable[Sequence[str]], name: str = "text.txt") -> str:
    """A folder with one file of these documents, a sentence a line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return str(folder)


def random_documents(number: int = 60, *, seed: int = 0) -> list[list[str]]:
    """Documents of 2 to 6 sentences of 3 to 9 words."""
    draw = random.Random(seed)
    lengths = [[draw.randint(3, 9) for _ in range(draw.randint(2, 6))] for _ in range(number)]
    return [[" ".join(draw.choices(WORDS, k=length)) for length in document] for document in lengths]


def pretraining_values(recipe: str, **changes: Any) -> dict[str, Any]:
    """The configuration of a recipe for a tiny backbone, with short epochs and changes."""
    own = search_spaces.objectives.load_recipe(recipe)
    short = {"steps": 4, "steps_per_epoch": 2, "batch_size": 8, "warmup_steps": 1, "max_length": 32}
    return {**own.fixed, **own.mini_fixed, **short, **changes}


def pretraining_config(recipe: str = "mlm", **changes: Any) -> PretrainingConfig:
    """The same, checked."""
    return objectives.configure(base_method(recipe), pretraining_values(recipe, **changes))


def pretraining_spec(recipe: str, corpus: str, *, seed: int = 1, **changes: Any) -> PretrainingSpec:
    """A run of two epochs of two steps."""
    backbone = search_spaces.objectives.load_recipe(recipe).backbone["mini"]
    values = pretraining_values(recipe, **changes)
    return PretrainingSpec(objective=base_method(recipe), corpus=corpus, config=values, seed=seed, backbone=backbone)


def pretrained_folder(
    folder: Path,
    *,
    is_tiny: bool = True,
    finished: bool = True,
    positions: int = 128,
    conv_kernel_size: int | None = None,
) -> Path:
    """A folder as `study.pretrain` leaves it, of an ALBERT whose weights are all 0."""
    folder.mkdir(parents=True)
    own = {} if conv_kernel_size is None else {"conv_kernel_size": conv_kernel_size}
    config = {"model_type": "albert", **SIZES, "max_position_embeddings": positions, **own}
    (folder / "config.json").write_text(json.dumps(config))
    weights = {name: np.zeros(shape, np.float32) for name, shape in list_weights(config).items()}
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    word_tokenizer(["ships wait ."]).backend_tokenizer.save(str(folder / "tokenizer.json"))
    made = Pretraining(
        objective="mlm",
        corpus="mini",
        corpus_fingerprint="ff465da93c4a2466",
        backbone="mini-albert",
        is_tiny=is_tiny,
        settings={"steps": 40},
        batch_size=32,
        steps=40,
        departures=("of no publication",),
    )
    file = PretrainingFile(
        made=made,
        config=pretraining_values("mlm", steps=40),
        seed=42,
        backbone_fingerprint="mini-albert@0",
        tokenizer=None,
        tokenizer_fingerprint=None,
        created="2026-11-25T00:00:00+00:00",
        finished=finished,
    )
    write_pretraining(folder, file)
    return folder


def renamed(folder: Path, rename: Callable[[str], str]) -> Path:
    """Rename the weights in a folder. `rename` returns "" for a weight to leave out."""
    file = folder / "model.safetensors"
    weights = {rename(name): weight for name, weight in load_file(file).items()}
    save_file({name: weight for name, weight in weights.items() if name}, file, metadata={"format": "pt"})
    return folder


def without_pooler(folder: Path) -> Path:
    """Leave out the pooler's weights in a folder."""
    return renamed(folder, lambda name: "" if name.startswith("pooler") else name)
