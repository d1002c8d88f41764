"""Loads trained models from trials or exports, and exports trained models.

An export can be read by `from_pretrained` of `transformers` and by `load_trained`. The folder contains:

    config.json, model.safetensors, tokenizer    the encoder as a `transformers` model, with the classifier if
                                                 `transformers` has a class that computes the same logits
    heads.safetensors                            all other weights, under this project's names
    model.json                                   the spec of the trial, without the paths of this machine
    methods/                                     the files of the method, if it comes from an included folder

Files in `methods` are read and run only if the user includes that folder (`trainables.include`, `--include`).

`export_at_layer` instead exports the first layers as a plain sequence classifier, which only `transformers` reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import trainables
from trainables.configuration import TrainingConfig
from trainables.configuration.error_text import take_first_line
from trainables.configuration.schema import from_plain, to_plain
from trainables.data.glue import classify_data
from trainables.data.tasks import Task
from trainables.encoders.architectures import check_architecture, list_computation_fields, read_architecture
from trainables.encoders.backbone_names import is_folder
from trainables.encoders.family_options import choose_attention, family_options
from trainables.encoders.layerwise import layerwise
from trainables.encoders.loading import quiet_transformers
from trainables.encoders.needed_weights import find_fault
from trainables.encoders.nystrom import with_attention
from trainables.encoders.weights import check_fit, read_header
from trainables.files import method_files
from trainables.models.classifiers import LastLayerModel
from trainables.models.early_exit import EarlyExitModel
from trainables.runs.trial import TrialSpec, reading_inputs
from trainables.runs.trial_files import DESCRIPTION, WEIGHTS, read_model

HEADS = "heads.safetensors"
METHODS = "methods"
_CLASSIFIER = "ForSequenceClassification"  # suffix of the sequence classifiers' names in transformers
_CLASSIFIERS = "the sequence classifiers of transformers"
_PROBE = ["a dog sleeps", "the old cat near the tree sees a red bird"], ["an animal rests", "it is not here"]
_SAME_LOGITS = 1e-3  # largest difference of logits that rounding explains


@dataclass(frozen=True)
class TrainedModel:
    """The model of a trial's selected epoch, and the configuration, task and tokenizer of the trial."""

    spec: TrialSpec
    config: TrainingConfig
    task: Task
    model: EarlyExitModel  # in evaluation mode
    tokenizer: PreTrainedTokenizerBase


def load_trained(folder: str | Path, device: str = "cpu") -> TrainedModel:
    """Load a trained model with its tokenizer and the spec of its trial.

    If the method comes from a user's folder, call `trainables.include` first.

    Args:
        folder: the folder `Outcome.model` of a trial, or the folder of an export.

    Raises:
        ValueError: the folder has no trained model, or this process does not know the model's method.
    """
    folder = Path(folder)
    weights, description = _read_exported(folder) if (folder / HEADS).is_file() else read_model(folder)
    spec = from_plain(TrialSpec, description.get("spec"), where=f"{folder}/model.json")
    if trainables.base_method(spec.method) not in trainables.list_methods():
        methods = folder / METHODS
        place, where = (methods, ", which came with the model") if methods.is_dir() else ("FOLDER", "")
        advice = f"include the folder with the method's two files{where}: --include {place}"
        advice += f", or in Python trainables.include({str(place)!r})"
        raise ValueError(f"{folder} is a model of method {spec.method!r}, which is unknown here; {advice}")
    task, method = spec.find_task(), trainables.load_method(spec.method)
    config = trainables.configure(spec.method, spec.config)
    with torch.random.fork_rng([]):  # the random weights drawn here, on the CPU, are replaced below
        encoder_config = AutoConfig.for_model(**description["encoder"])
        backbone = AutoModel.from_config(encoder_config, **family_options(encoder_config.model_type))
        encoder = layerwise(with_attention(backbone, config), config.num_hidden_layers, config.pooling)
        model = method.build(config, encoder, task)
    try:
        check_fit(model, weights, has="the folder")
    except ValueError as error:
        raise ValueError(f"{folder}: the weights do not match {DESCRIPTION}: {error}") from error
    model.load_state_dict(weights)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return TrainedModel(spec, config, task, model.to(device).eval(), tokenizer)


def start_from(model: EarlyExitModel, folder: Path) -> None:
    """Copy the weights of `model.started_parts` from the trained model in `folder`.

    Raises:
        Unavailable: the folder has no trained model.
        ValueError: the trained model lacks some of these weights, their shapes differ, the encoders differ, or the
            heads read the encoder in another way.
    """
    with reading_inputs():
        weights, description = read_model(folder)
    _check_same_encoder(model.encoder.configuration, description, folder)
    parts = model.started_parts()
    if parts.keys() - {"encoder"}:
        _check_same_reading(model, description, folder)
    for part, module in parts.items():
        of_part = {name.removeprefix(f"{part}."): held for name, held in weights.items() if name.startswith(f"{part}.")}
        try:
            check_fit(module, of_part, has=f"the {part} in {WEIGHTS}")
        except ValueError as error:
            of = description["spec"]
            source = f"{of['method']}, {of['backbone']}, task {of['task']}"
            raise ValueError(f"start {folder}: the model's {part} ({source}) does not fit: {error}") from error
        module.load_state_dict(of_part)


def _check_same_encoder(config: PreTrainedConfig, description: dict[str, Any], folder: Path) -> None:
    """Check that a trained model's encoder computes its outputs as an encoder of `config` does.

    Raises:
        ValueError: a field that the shapes of the weights do not show differs.
    """
    theirs, ours = description["encoder"], config.to_dict()
    if differing := [name for name in list_computation_fields(config.model_type) if theirs.get(name) != ours.get(name)]:
        name = differing[0]
        raise ValueError(
            f"start {folder}: the encoder's {name} is {theirs.get(name)!r}, but that of the backbone is "
            f"{ours.get(name)!r}; allowed: a start from a model with a backbone of the same architecture"
        )


def _check_same_reading(model: EarlyExitModel, description: dict[str, Any], folder: Path) -> None:
    """Check that a trained model's classifier read the layer, and of it the vector, that it will read in `model`.

    Raises:
        ValueError: it read another.
    """
    config, encoder = description["spec"]["config"], model.encoder
    layer = config.get("num_hidden_layers") or encoder.configuration.num_hidden_layers
    pooling = config.get("pooling", "pooler")
    if config.get("head") == "first_token" and pooling == "pooler":
        pooling = "first"
    if (layer, pooling) != (encoder.num_layers, encoder.pooling):
        raise ValueError(
            f"start {folder}: its classifier reads layer {layer} by pooling {pooling}, but would here read layer "
            f"{encoder.num_layers} by pooling {encoder.pooling}; allowed: a start with the same depth and pooling"
        )


# Exports.


def export_trained(trained: TrainedModel, folder: Path) -> None:
    """Export a fine-tuned model into an empty folder.

    Raises:
        ValueError: no class of `transformers` can represent the encoder.
    """
    model, plain = trained.model.cpu(), None
    ours = model.state_dict()
    if isinstance(model, LastLayerModel):
        with suppress(ValueError):  # a subclass may compute its logits in another way
            plain = _make_classifier(trained, model.encoder.num_layers)
    if plain is None:
        plain = _fill_plain_model(_make_configuration(trained, model.encoder.num_layers, is_classifier=False), ours)
    _save_plain_model(plain, trained, folder)
    held = _find_shared_parameters(plain)
    heads = {name: weight.clone() for name, weight in ours.items() if name not in held}  # tied weights share memory
    save_file(heads, folder / HEADS)
    methods = method_files.included()
    for name, content in methods.for_method(trainables.base_method(trained.spec.method)).items() if methods else ():
        (folder / METHODS).mkdir(exist_ok=True)
        (folder / METHODS / name).write_bytes(content)
    description = {"spec": to_plain(replace(trained.spec, **_shorten_folders(trained.spec)))}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")


def export_at_layer(trained: TrainedModel, layer: int, folder: Path) -> None:
    """Export the first layers of a model into an empty folder, with the classifier after the last of them.

    The export is a sequence classifier of `transformers` without early exits.

    Args:
        layer: number of layers.

    Raises:
        ValueError: no class of `transformers` computes the logits of this layer.
    """
    num_layers = trained.model.encoder.num_layers
    if not 1 <= layer <= num_layers:
        raise ValueError(f"the model has {num_layers} layers; allowed: 1 to {num_layers}")
    _save_plain_model(_make_classifier(trained, layer), trained, folder)


def _make_classifier(trained: TrainedModel, layer: int) -> PreTrainedModel:
    """Make the sequence classifier of `transformers` that has the first layers of a model and computes their logits.

    Raises:
        ValueError: no class of `transformers` computes the logits of this layer.
    """
    model = trained.model.cpu()
    if fault := _find_plain_fault(model):
        raise ValueError(fault)
    if (head := model.plain_head(layer - 1)) is None:
        raise ValueError(f"layer {layer} has no linear classifier after a pooler, as {_CLASSIFIERS} have it")
    parts = {"encoder.pooler": head[0], "classifier": head[1]}
    weights = model.state_dict() | {
        f"{part}.{name}": weight for part, module in parts.items() for name, weight in module.state_dict().items()
    }
    plain = _fill_plain_model(_make_configuration(trained, layer, is_classifier=True), weights)
    batch = dict(_copy_tokenizer(trained)(*_PROBE, padding=True, return_tensors="pt"))
    with torch.no_grad(), torch.random.fork_rng([]):
        ours, theirs = model.heads(batch)[0][layer - 1], plain.eval()(**batch).logits
    if not torch.allclose(ours, theirs, rtol=_SAME_LOGITS, atol=_SAME_LOGITS):
        raise ValueError(f"{type(plain).__name__} of transformers computes other logits than layer {layer}")
    return plain


def _find_plain_fault(model: EarlyExitModel) -> str:
    """Explain why no sequence classifier of `transformers` can have a model's encoder and heads; "" if one can."""
    encoder = model.encoder
    if type(encoder.configuration) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return f"transformers has no sequence classifier for {encoder.configuration.model_type}"
    if not encoder.uses_pooler:
        return f"its heads read {_READ[encoder.pooling]}, but {_CLASSIFIERS} read [CLS] through a pooler"
    return ""


_READ = {"first": "[CLS] without a pooler (pooling=first)", "mean": "the mean of all tokens (pooling=mean)"}


def _copy_tokenizer(trained: TrainedModel) -> PreTrainedTokenizerBase:
    """Copy a tokenizer; by default, the copy returns token types if the encoder reads them, and only then.

    ALBERT's tokenizer in `transformers` leaves them out, and a class of `transformers` may fail on types it lacks.
    """
    tokenizer = deepcopy(trained.tokenizer)
    types = ["token_type_ids"] if trained.model.encoder.has_token_types else []
    tokenizer.model_input_names = ["input_ids", *types, "attention_mask"]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # else it would not be saved
    return tokenizer


def _fill_plain_model(config: PreTrainedConfig, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """Make the `transformers` model of a configuration, with these weights.

    Raises:
        ValueError: a weight is missing, or has another shape.
    """
    with torch.random.fork_rng([]):  # the random weights drawn here, on the CPU, are replaced below
        plain = _make_plain_model(config)
    with torch.no_grad():
        for name, parameter in _find_shared_parameters(plain).items():
            if name not in weights or weights[name].shape != parameter.shape:
                shape = " x ".join(map(str, parameter.shape))
                raise ValueError(f"the model has no weight {name} of {shape}, which {type(plain).__name__} needs")
            parameter.copy_(weights[name])
    return plain


def _save_plain_model(plain: PreTrainedModel, trained: TrainedModel, folder: Path) -> None:
    """Save a `transformers` model with the tokenizer."""
    with quiet_transformers():
        plain.save_pretrained(folder)
        _copy_tokenizer(trained).save_pretrained(folder)


def _read_exported(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read an export. Return its weights and its description, as `read_model` does.

    Raises:
        ValueError: a file is missing or damaged.
    """
    try:
        description = json.loads((folder / DESCRIPTION).read_text())
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        theirs, heads = load_file(folder / WEIGHTS), load_file(folder / HEADS)
        configuration = read_architecture(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        check_architecture(configuration)
        if fault := find_fault(configuration, read_header(folder / WEIGHTS), has=WEIGHTS):
            raise ValueError(fault)
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"{folder}: the exported model cannot be read: {take_first_line(error)}") from error
    with torch.device("meta"):
        plain = _make_plain_model(config)
        names = {id(parameter): name for name, parameter in _find_shared_parameters(plain).items()}
    weights = {names[id(value)]: theirs[name] for name, value in plain.named_parameters() if name in theirs}
    return weights | heads, description | {"encoder": config.to_dict()}


def _make_configuration(trained: TrainedModel, num_layers: int, *, is_classifier: bool) -> PreTrainedConfig:
    """Make the `transformers` configuration of an export of the first layers."""
    model, names = trained.model, trained.task.labels or ("score",)
    if trained.config.attention == "nystrom":
        reason = "the encoder has Nystrom attention, which no class of transformers has"
        raise ValueError(f"{reason}; study.predict can use the model without an export")
    config = deepcopy(model.encoder.configuration)
    if getattr(config, "num_hidden_groups", 1) > 1 and num_layers < config.num_hidden_layers:
        groups = f"{num_layers} of {config.num_hidden_layers} layers in {config.num_hidden_groups} groups"
        raise ValueError(f"the encoder uses {groups}, which no configuration of transformers can describe")
    config.update({"num_hidden_layers": num_layers, "architectures": None})
    if getattr(config, "layer_types", None):  # ModernBERT: one for each layer
        config.layer_types = config.layer_types[:num_layers]
    config.update({"id2label": {}, "label2id": {}})  # otherwise the export could be loaded as an untrained classifier
    if is_classifier:
        config.update({"id2label": dict(enumerate(names)), "label2id": {name: at for at, name in enumerate(names)}})
        config.problem_type = "regression" if trained.task.is_regression else "single_label_classification"
        config.architectures = [_CLASSIFIER]
        if hasattr(config, "classifier_pooling"):  # ModernBERT's classifier reads [CLS] or the mean
            config.classifier_pooling = "cls"
    return config


def _make_plain_model(config: Any) -> PreTrainedModel:
    """Build the `transformers` model of a configuration, with newly initialised weights."""
    if (config.architectures or [""])[0].endswith(_CLASSIFIER):
        attention = choose_attention(config.model_type)
        return AutoModelForSequenceClassification.from_config(config, attn_implementation=attention)
    return AutoModel.from_config(config, **family_options(config.model_type))


def _find_shared_parameters(plain: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Find the parameters of a `transformers` model, by their names in this project."""
    ids = {id(parameter) for parameter in plain.parameters()}
    encoder = {f"encoder.{name}": value for name, value in layerwise(plain).named_parameters() if id(value) in ids}
    classifier = getattr(plain, "classifier", nn.Module())
    output = getattr(classifier, "out_proj", classifier)
    return encoder | {f"classifier.{name}": value for name, value in output.named_parameters()}


def _shorten_folders(spec: TrialSpec) -> dict[str, Any]:
    """Shorten each path in a spec to the name of its folder; return the changed fields."""
    names = [name for name in ("backbone", "tokenizer", "start") if (place := getattr(spec, name)) and is_folder(place)]
    names += ["data"] if classify_data(spec.data) == "folder" else []
    own_task = spec.own_task and replace(spec.own_task, place=spec.task)
    return {"own_task": own_task, **{name: Path(getattr(spec, name)).name for name in names}}
