"""Makes a case of tests/cases again, with the original code: the same inputs and weights, and its numbers.

    PYTHONPATH=.:tests python -m helpers.record_case CASE CHECKOUT FOLDER

CHECKOUT is the original's repository at the commit that tests/cases/README.md names. Writes the case to FOLDER, and
prints how far each of its numbers is from the recorded one; exit status 1 if one is further than the tests allow.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from helpers.places import CASES
from helpers.reference_files import TOLERANCE, Batch, largest_difference, read_batch, read_description, read_tensors
from safetensors.torch import save_file
from torch import Tensor, nn

Numbers = dict[str, Any]  # by name, nested as in case.json; or tensors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(RECORDERS))
    parser.add_argument("checkout", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    description, tensors = read_case(arguments.case)
    numbers = RECORDERS[arguments.case](arguments.checkout.resolve(), description, tensors)
    recorded = description.get("expected", tensors)
    largest = 0.0
    for name, value in numbers.items():
        difference = largest_difference(torch.as_tensor(value), _find(recorded, name))
        print(f"{difference:9.2e}  {name}")
        largest = max(largest, difference)
        *places, last = name.split("/")
        _find(recorded, "/".join(places))[last] = value if recorded is tensors else torch.as_tensor(value).tolist()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "case.json").write_text(json.dumps(description), encoding="utf-8")
    if tensors:
        name = "tensors" if recorded is tensors else "weights"
        save_file(
            {key: tensor.contiguous() for key, tensor in tensors.items()}, arguments.folder / f"{name}.safetensors"
        )
    return int(not largest <= TOLERANCE)


def read_case(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is recorded of a case: its description and its tensors, if it has any."""
    if (folder := CASES / name).is_dir():
        (file,) = folder.glob("*.safetensors")
        return read_description(folder), read_tensors(folder, file.name)
    return json.loads((CASES / "released_exits.json").read_text())[name], {}


def _find(numbers: Numbers, name: str) -> Any:
    """The value at `train/loss` or the like."""
    for place in name.split("/") if name else ():
        numbers = numbers[place]
    return numbers


def _load(folder: Path, name: str) -> ModuleType:
    """A module of the original."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def record_palbert(checkout: Path, description: dict[str, Any], weights: dict[str, Tensor]) -> Numbers:
    original, losses = _load(checkout / "src/modeling", "palbert_fast"), _load(checkout / "src", "loss")
    settings, expected, batch = description["case"], description["expected"], read_batch(description["batch"])
    model = _albert(original, "PAlbertForSequenceClassification", description)
    model.classifiers.set_lambda_layer_arch(
        settings["num_lambda_layers"], rnn=False, hidden_dim=2 * model.config.hidden_size
    )
    model.set_epsilon(settings["epsilon"])
    _fill(model, weights)
    options = {"use_prev_hiddens": True, "use_layer_pos_embeddings": False, "prev_state_influence": "cat"}
    model.train()
    outputs = model(**batch, **options)
    prior = losses.RegularizationLoss(expected["train"]["prior_lambda"], model.config.num_hidden_layers)
    divergence = prior(torch.stack(outputs["exit_pdf"]).transpose(0, 1))
    total = outputs["loss"] + expected["train"]["beta"] * divergence
    total.backward()
    numbers = {
        "train/exit_pdf": torch.stack(outputs["exit_pdf"]),
        "train/task_loss": outputs["loss"],
        "train/kl": divergence,
        "train/total_loss": total,
        "train/grad_norm_exit_head": _norm(model.classifiers.exit_head.parameters()),
        "train/grad_norm_rest": _norm(
            parameter for name, parameter in model.named_parameters() if not name.startswith("classifiers.exit_head.")
        ),
    }
    for setting in expected["eval"]:
        rule, _, threshold = setting.partition("@")
        model.set_threshold(float(threshold or 1))
        criteria = "threshold" if rule == "threshold" else "expectation"
        numbers |= _evaluate(model, batch, setting, lambda part, c=criteria: model(**part, **options, exit_criteria=c))
    return numbers


def record_pabee(checkout: Path, description: dict[str, Any], weights: dict[str, Tensor]) -> Numbers:
    original, batch = _load(checkout / "src/modeling", "palbert_fast"), read_batch(description["batch"])
    model = _albert(original, "AlbertPABEEForSequenceClassification", description)
    _fill(model, weights)
    model.train()
    loss = model(**batch)["loss"]
    loss.backward()
    numbers = {"train/loss": loss, "train/grad_norm": _norm(model.parameters())}
    for setting in description["expected"]["eval"]:
        model.set_patience(int(setting.partition("@")[2]))
        numbers |= _evaluate(model, batch, setting, lambda part: model(**part))
    return numbers


def _albert(original: ModuleType, name: str, description: dict[str, Any]) -> Any:
    """A model of the original, whose layers take and give what those of transformers 4.10 did."""
    layers = original.AlbertLayerGroup

    class LayerGroup(layers):  # type: ignore[misc, valid-type]
        def forward(self, states: Tensor, mask: Tensor, head_mask: object) -> tuple[Tensor]:
            return (super().forward(states, mask),)

    config = original.AlbertConfig(**description["albert_config"], attn_implementation="eager")
    with (
        patch.object(original, "AlbertLayerGroup", LayerGroup),
        patch.object(original.AlbertPreTrainedModel, "init_weights", lambda self: None),  # weights are given
    ):
        return getattr(original, name)(config)


def _fill(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Loads weights, of which transformers 4.10 also stored the numbers of the positions."""
    model.load_state_dict({name: tensor for name, tensor in weights.items() if not name.endswith("position_ids")})


def _norm(parameters: Any) -> Tensor:
    return torch.stack([p.grad.double().square().sum() for p in parameters if p.grad is not None]).sum().sqrt()


@torch.no_grad()
def _evaluate(model: Any, batch: Batch, setting: str, answer: Callable[[Batch], Numbers]) -> Numbers:
    """The answers to single examples, and the layers that the model's own statistics count for each."""
    model.eval()
    layers, logits = [], []
    for index in range(len(batch["input_ids"])):
        model.albert.reset_stats()
        part = {name: rows[index, None] for name, rows in batch.items() if name != "labels"}
        logits.append(answer(part)["logits"][0])
        layers.append(model.albert.inference_layers_num)
    return {f"eval/{setting}/exit_layer": torch.tensor(layers), f"eval/{setting}/logits": torch.stack(logits)}


def record_berxit(checkout: Path, description: dict[str, Any], _: dict[str, Tensor]) -> Numbers:
    """Losses and gradients of both turns, the exit head's answers, and where the examples leave."""
    model, batch, numbers = _released(checkout, description), _batch(description), {}
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"SLURM_TMPDIR": folder}):  # it writes there
        for turn, step in (("even", 0), ("odd", 1)):
            _leave_below(model, -1.0, folder)
            numbers |= _loss_and_gradients(model, batch, turn, train_strategy="alternate-lte", step_num=step)
        answers = _single_answers(model, batch)
        numbers["uncertainties"] = torch.stack([torch.stack(answer[1]["lte"]) for answer in answers], dim=1)
        for setting in description["expected"]["exits"]:
            _leave_below(model, float(setting), folder)
            numbers |= _exits(model, batch, setting)
    return numbers


def record_deebert(checkout: Path, description: dict[str, Any], _: dict[str, Tensor]) -> Numbers:
    """The loss and the gradients of the second stage, and where the examples leave."""
    model, batch = _released(checkout, description), _batch(description)
    numbers = _loss_and_gradients(model, batch, "highways", train_highway=True)
    for setting in description["expected"]["exits"]:
        model.bert.encoder.set_early_exit_entropy(float(setting))
        numbers |= _exits(model, batch, setting)
    return numbers


def _released(checkout: Path, description: dict[str, Any]) -> Any:
    """A model of a copy of transformers 2 in the checkout, of which only the needed modules are imported."""
    for name, content in {
        "boto3": {},
        "botocore.config": {"Config": None},
        "botocore.exceptions": {"ClientError": None},
    }.items():
        _pretend(name, **content)
    _pretend("released", __path__=[str(checkout / "transformers")])
    original = importlib.import_module("released.modeling_highway_bert")
    config = importlib.import_module("released.configuration_bert").BertConfig(num_labels=description["num_labels"])
    config.__dict__.update(description["config"])
    model = original.BertForSequenceClassification(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(make_weight(_our_name(name, config.num_hidden_layers), parameter.shape))
    return model


def _batch(description: dict[str, Any]) -> Batch:
    return read_batch(description["batch"], is_regression=description["num_labels"] == 1)


def make_weight(name: str, shape: torch.Size) -> Tensor:
    """The numbers of a parameter, from its name in our model and its shape alone."""
    phase, scale = zlib.crc32(name.encode()) % 1000, 2.0 if name.startswith("classifiers") else 0.5
    values = torch.sin(torch.arange(1, math.prod(shape) + 1, dtype=torch.float64) * 1.7 + phase)
    return (values * (scale if len(shape) > 1 else 0.2)).reshape(shape).float() + ("LayerNorm.weight" in name)


def _our_name(original: str, num_layers: int) -> str:
    """The name in our model; the last layer's pooler for the exit head alone counts as the model's own."""
    for pattern, replacement in (
        (rf"bert\.encoder\.highway\.{num_layers - 1}\.pooler\.dense\.", "encoder.pooler."),
        (r"bert\.encoder\.highway\.(\d+)\.pooler\.dense\.", r"poolers.\1."),
        (r"bert\.encoder\.highway\.(\d+)\.classifier\.", r"classifiers.\1."),
        (r"classifier\.", f"classifiers.{num_layers - 1}."),
        (r"bert\.encoder\.lte_classifier\.", "exit_head."),
        (r"bert\.encoder\.layer\.", "encoder.layers."),
        (r"bert\.pooler\.dense\.", "encoder.pooler."),
        (r"bert\.", "encoder."),
    ):
        if re.match(pattern, original):
            return re.sub(pattern, replacement, original)
    return original


def _leave_below(model: Any, threshold: float, folder: str) -> None:
    model.bert.encoder.enable_lte(argparse.Namespace(lte_th=str(threshold), plot_data_dir=folder, output_dir=""))


def _loss_and_gradients(model: Any, batch: Batch, turn: str, **options: Any) -> Numbers:
    model.train().zero_grad()
    loss = model(**batch, **options)[0]
    loss.backward()
    layers, gradients = model.num_layers, {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            ours = _our_name(name, layers)
            gradients[ours] = gradients.get(ours, 0) + parameter.grad
    norms = {f"{turn}/gradients/{name}": gradient.norm() for name, gradient in gradients.items()}
    trained = "" if turn != "highways" else ("classifiers", "poolers")  # DeeBERT's second stage
    return {
        f"{turn}/loss": loss,
        **{name: norm for name, norm in norms.items() if name.split("/")[2].startswith(trained)},
    }


@torch.no_grad()
def _single_answers(model: Any, batch: Batch) -> list[Any]:
    model.eval()
    inputs = {name: rows for name, rows in batch.items() if name != "labels"}
    return [
        model(**{name: rows[index, None] for name, rows in inputs.items()}) for index in range(len(batch["labels"]))
    ]


def _exits(model: Any, batch: Batch, setting: str) -> Numbers:
    answers = _single_answers(model, batch)
    return {
        f"exits/{setting}/exit_layer": torch.tensor([answer[-1] for answer in answers]),
        f"exits/{setting}/logits": torch.cat([answer[0] for answer in answers]),
    }


def record_sharebert(checkout: Path, description: dict[str, Any], weights: dict[str, Tensor]) -> Numbers:
    _pretend("apex.normalization", FusedLayerNorm=nn.LayerNorm)  # is imported, and not used
    original = _load(checkout, "pretraining.modeling")
    options = {"layer_norm_type": "pytorch", "useLN": True, "encoder_ln_mode": "pre-ln", "layernorm_embedding": False}
    model = original.ShareBertModel(original.BertConfig(**description["config"], **options)).eval()
    model.load_state_dict(weights)
    batch = read_batch(description["batch"])
    last, pooled = model(**batch, output_all_encoded_layers=False)
    loss = last.square().mean() + pooled.square().mean()
    loss.backward()
    gradients = {name: parameter.grad.norm() for name, parameter in model.named_parameters()}
    shown = len(description["expected"]["last_hidden"][0])
    return {
        "last_hidden": last[:, :shown],
        "pooled": pooled,
        "loss": loss,
        **{f"grad_norm/{name}": gradients[name] for name in description["expected"]["grad_norm"]},
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def record_nystrom(checkout: Path, description: dict[str, Any], tensors: dict[str, Tensor]) -> Numbers:
    """The attention alone: its linear layers are replaced by what is given."""
    attention = _load(checkout, "albert.nystrom").NystromAttention(
        dim=description["head_size"],
        dim_head=description["head_size"],
        heads=1,
        num_landmarks=description["num_landmarks"],
        pinv_iterations=description["pinv_iterations"],
        residual_conv_kernel=description["conv_kernel_size"],
    )
    attention.to_qkv, attention.to_out = nn.Identity(), nn.Identity()
    attention.res_conv.weight = nn.Parameter(tensors["conv_weight"])
    states = {name: tensors[name].clone().requires_grad_() for name in ("query", "key", "value")}
    output = attention(torch.cat([*states.values()], dim=-1)[None])[0]
    output.square().mean().backward()
    return {"output": output, **{f"grad_{name}": tensor.grad for name, tensor in states.items()}}


def record_lamb(checkout: Path, description: dict[str, Any], tensors: dict[str, Tensor]) -> Numbers:
    parameters = [nn.Parameter(tensors[f"start_{index}"].clone()) for index in range(description["num_parameters"])]
    optimiser = _load(checkout, "pytorch_lamb.lamb").Lamb(
        parameters,
        lr=description["learning_rate"],
        betas=tuple(description["betas"]),
        eps=description["epsilon"],
        weight_decay=description["weight_decay"],
    )
    numbers = {}
    for step in range(description["steps"]):
        for index, parameter in enumerate(parameters):
            parameter.grad = tensors[f"grad_{step}_{index}"].clone()
        optimiser.step()
        numbers |= {f"after_{step}_{index}": value.detach().clone() for index, value in enumerate(parameters)}
    return numbers


def _pretend(name: str, **content: Any) -> None:
    """Puts a module with this content where the original imports one."""
    package, _, last = name.rpartition(".")
    module = sys.modules.setdefault(name, ModuleType(name))
    module.__dict__.update(content)
    if package:
        setattr(sys.modules.setdefault(package, ModuleType(package)), last, module)


RECORDERS: dict[str, Callable[[Path, dict[str, Any], dict[str, Tensor]], Numbers]] = {
    "berxit_classes": record_berxit,
    "berxit_scores": record_berxit,
    "deebert_classes": record_deebert,
    "lamb": record_lamb,
    "nystrom_attention_8_of_32": record_nystrom,
    "pabee_classification": record_pabee,
    "palbert_linear_cat_3": record_palbert,
    "sharebert_3_layers": record_sharebert,
}


if __name__ == "__main__":
    sys.exit(main())
