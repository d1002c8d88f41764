"""The README.md of an exported model: what it is, what it scored, what it was made of, how it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from study.facts.record import SIZES, Record, held_out_scores
from study.plans.identity import is_pretraining
from study.plans.resolved_plan import Arm
from trainables.corpora.corpus import kind_of
from trainables.encoders.backbones import is_folder

REGISTERS = {"ShareBert": "trainables.encoders.sharebert"}  # beginning of a class's name -> the module that has it


@dataclass(frozen=True)
class Pretraining:
    """The pretraining that made a model's encoder, or the backbone that it was fine-tuned from."""

    arm: Arm
    record: Record  # of its completed trial


def model_card(
    record: Record, loaded_as: str, pretraining: Pretraining | None = None, *, methods: str | None = None
) -> str:
    """Markdown, without host, user or path of a machine.

    Args:
        loaded_as: the class of `transformers` that the folder's `config.json` names.
        pretraining: where the study has one.
        methods: the folder in the model's with the files of its method, where that is none of the package's.
    """
    parts = [_FRONT, f"# {record.method} on {record.task}", *_loading(record, loaded_as, methods)]
    parts += [
        "## What it scored",
        "\n".join(_scores(record)),
        "## Where it comes from",
        "\n".join(_origin(record, pretraining)),
    ]
    return "\n\n".join(parts) + "\n"


_FRONT = "---\nlibrary_name: transformers\n---"


def _loading(record: Record, loaded_as: str, methods: str | None) -> Iterator[str]:
    """How to load it, and what that leaves out."""
    is_classifier = loaded_as.endswith("ForSequenceClassification")
    auto = "AutoModelForSequenceClassification" if is_classifier else "AutoModel"
    own = [f"import {module}  # registers it" for name, module in REGISTERS.items() if loaded_as.startswith(name)]
    lines = ["```python", f"from transformers import {auto}, AutoTokenizer", *own, ""]
    lines += [f'model = {auto}.from_pretrained("FOLDER")', 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")', "```"]
    yield f"For `transformers` it is `{loaded_as}`; FOLDER is where this README.md lies."
    yield "\n".join(lines)
    if loaded_as.startswith("Roberta"):
        yield "Loaded by `AutoModel` its pooler has random weights: the trained model has none there."
    if is_pretraining(record.task):
        return
    if not is_classifier:
        yield (
            "That is the encoder. `heads.safetensors` has what `transformers` has no class for: classifiers, exits, or "
            "a pooler. With these it answers, in this folder, by"
        )
    else:
        yield "It gives the logits of the trained model. In the project that trained it it answers, in this folder, by"
    include = f" --include {methods}" if methods else ""
    yield f"```\npython -m study.predict . input.tsv{include} --to answers.tsv\n```"
    if methods:
        yield (
            f"`--include` runs the method's files, which `{methods}` holds: read them first. Nothing runs them without "
            f'it. In Python `trainables.include("FOLDER/{methods}")` does the same.'
        )


def _scores(record: Record) -> Iterator[str]:
    """Of this trial alone; a study's tables have the median over its seeds."""
    where = "held-out text" if is_pretraining(record.task) else f"dev, at epoch {record.epoch} of {record.epochs}"
    chosen = "" if is_pretraining(record.task) else ", which may be the best of several on these examples"
    yield f"On {where}; one seed ({record.seed}){chosen}.\n"
    values = held_out_scores(record) if is_pretraining(record.task) else {"score": record.score, **record.metrics}
    yield from _table({name: f"{value:.4f}" for name, value in values.items() if value is not None})


def _origin(record: Record, pretraining: Pretraining | None) -> Iterator[str]:
    layers = "" if record.mean_layers is None else f"{record.mean_layers:.2f} of {record.num_layers} on average"
    facts = {
        "study": record.study,
        "trial": f"{record.key}, {record.phase}",
        "parameters": f"{record.num_parameters:,}",
        "layers run": "" if is_pretraining(record.task) else layers,
        **(_pretraining_facts(pretraining) if pretraining else {}),
        "backbone": record.backbone_fingerprint,
        "tokenizer": record.tokenizer_fingerprint,
        "data": record.data_fingerprint,
        "started from trial": record.start,
        "code, digest of the sources": record.code_digest,
        "commit": record.git_commit,
        "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
        "configuration": ", ".join(f"{name} {value}" for name, value in record.config.items() if value is not None),
        "ended": record.ended,
    }
    yield from _table({name: value for name, value in facts.items() if value})


def _pretraining_facts(own: Pretraining) -> dict[str, str]:
    """Folders by their last name alone."""
    corpus, backbone = own.arm.pinned_corpus, own.arm.pinned_backbone
    return {
        "pretraining": f"{own.arm.name}, trial {own.record.key}",
        "pretraining began with": f"the folder {Path(backbone).name}" if is_folder(backbone) else backbone,
        "pretraining objective": own.arm.method,
        "pretraining corpus": f"the folder {Path(corpus).name}" if kind_of(corpus) == "folder" else corpus,
        **{f"pretraining {name}": f"{own.record.metrics[name]:,.0f}" for name in SIZES},
    }


def _table(rows: dict[str, str]) -> Iterator[str]:
    yield from ("| what | value |", "| --- | --- |")
    yield from (f"| {name} | {value} |" for name, value in rows.items())
