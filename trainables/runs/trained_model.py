"""A trained model from the folder that a trial left behind, or an export of it. Nothing else is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedTokenizerBase

import trainables
from trainables.configuration import TrainingConfig
from trainables.data.tasks import Task, find_task
from trainables.encoders.layerwise import layerwise
from trainables.encoders.nystrom import with_attention
from trainables.models.early_exit import EarlyExitModel
from trainables.runs.exported_model import METHODS, is_exported, read_exported
from trainables.runs.failures import available
from trainables.runs.trial import TrialSpec
from trainables.runs.trial_files import DESCRIPTION, read_model
from trainables.schema import from_plain


@dataclass(frozen=True)
class TrainedModel:
    """The selected epoch of a trial."""

    spec: TrialSpec
    config: TrainingConfig
    task: Task
    model: EarlyExitModel  # in evaluation mode
    tokenizer: PreTrainedTokenizerBase


def load_trained(folder: str | Path, device: str = "cpu") -> TrainedModel:
    """The model in `folder` (`model` of an outcome, or exported), with its tokenizer and the trial it comes from.

    A method of one's own is made known before, by `trainables.include`.

    Raises:
        ValueError: the folder holds no trained model, or its method is not here.
    """
    folder = Path(folder)
    weights, description = read_exported(folder) if is_exported(folder) else read_model(folder)
    spec = from_plain(TrialSpec, description.get("spec"), where=f"{folder}/model.json")
    if trainables.base_method(spec.method) not in trainables.available():
        own = folder / METHODS
        place, where = (own, ", which came with the model") if own.is_dir() else ("FOLDER", "")
        said = f"include the folder with its two files{where}: --include {place}"
        said += f", in Python trainables.include({str(place)!r})"
        raise ValueError(f"{folder} is a model of method {spec.method!r}, which is not here; {said}")
    task, method = find_task(spec.task), trainables.load(spec.method)
    config = trainables.configure(spec.method, spec.config)
    with torch.random.fork_rng():  # weights drawn here are replaced below
        backbone = AutoModel.from_config(AutoConfig.for_model(**description["encoder"]), attn_implementation="sdpa")
        encoder = layerwise(with_attention(backbone, config), config.num_hidden_layers)
        model = method.build(config, encoder, task)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{folder}: the weights are not those of its {DESCRIPTION}: {reason}") from error
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return TrainedModel(spec, config, task, model.to(device).eval(), tokenizer)


def start_encoder(model: EarlyExitModel, folder: Path) -> None:
    """Give the model the encoder of a trained one.

    Raises:
        Unavailable: there is none in the folder.
        ValueError: it does not fit.
    """
    with available():
        weights, description = read_model(folder)
    prefix = "encoder."
    encoder = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    try:
        model.encoder.load_state_dict(encoder)
    except RuntimeError as error:
        source = description["spec"]
        raise ValueError(
            f"start {folder}: its encoder ({source['backbone']}, task {source['task']}) does not fit: {error}"
        ) from error
