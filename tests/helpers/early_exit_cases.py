"""Reference cases of PALBERT and PABEE: the original's weights and batch, and what it made of them.

Everything is computed for the whole batch and for one example at a time. One example at a time, the task loss and the
gradients of a ponder model are not defined by the case: with the original `constant` tail they depend on how many
layers the rest of the batch needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from helpers.configurations import values_of
from helpers.reference_files import (
    TOLERANCE,
    Batch,
    Comparison,
    check_names,
    largest_difference,
    read_batch,
    single_examples,
)
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel

import trainables
from trainables.configuration import PonderConfig
from trainables.encoders.layerwise import LayerwiseEncoder, layerwise
from trainables.models.classifiers import ClassifierPerLayer
from trainables.models.early_exit import EarlyExitModel
from trainables.models.exit_rules import ExitRule, Expectation, LastLayer, Patience, Threshold, apply_exit
from trainables.models.ponder import Lambda, PonderModel, divergence, truncated_posterior

Quantities = dict[str, Tensor]

# Settings of a case and their defaults in the original code.
_SETTINGS: dict[str, dict[str, Any]] = {
    "ponder": {"lambda_layer_arch": "linear", "num_lambda_layers": 1, "epsilon": 0.05},
    "pabee": {"regression_threshold": 0.2},
}


def compare_early_exit(case: dict[str, Any], weights: dict[str, Tensor]) -> Iterator[Comparison]:
    """Every expected quantity beside ours, first for the whole batch, then for one example at a time.

    Raises:
        ValueError: the case expects nothing, has settings or quantities that are not compared, or weights that do not
            fit.
    """
    given = dict(case["case"])
    method = given.pop("method")
    check_names({method}, set(_SETTINGS), "method")
    check_names(set(given), set(_SETTINGS[method]), "settings")
    settings, expected = _SETTINGS[method] | given, case["expected"]
    if not expected.get("train") or not expected.get("eval"):
        raise ValueError("the case expects nothing: expected.train and expected.eval are needed")
    num_labels = case["albert_config"].get("num_labels", 2)
    batch = read_batch(case["batch"], is_regression=num_labels == 1)
    encoder = layerwise(AlbertModel._from_config(AlbertConfig(**case["albert_config"]), attn_implementation="sdpa"))
    model = _MODELS[method](encoder, num_labels, settings, expected["train"])
    _load(model, weights)
    yield from _compare_training(expected["train"], *_TRAINING[method](model, batch))
    for batches, size in (([batch], "batched"), (single_examples(batch), "batch 1")):
        for setting, values in expected["eval"].items():
            yield from _compare_exit(setting, values, model, _exit_rule(setting, settings), batches, size)


def _ponder(encoder: LayerwiseEncoder, num_labels: int, settings: dict[str, Any], train: dict[str, Any]) -> PonderModel:
    changes = {
        "classifier_dropout": 0.0,
        "lambda_layer_arch": settings["lambda_layer_arch"],
        "beta": train.get("beta", 0.5),
        "prior_lambda": train.get("prior_lambda", 0.1),
        "epsilon": settings["epsilon"],
        "kl_direction": "prior_posterior",
        "posterior_tail": "constant",
    }
    config = trainables.configure("palbert", values_of("palbert") | changes)
    assert isinstance(config, PonderConfig)
    arch, layers = settings["lambda_layer_arch"], settings["num_lambda_layers"]
    # The original's 1 is a bare linear layer; from 2 on it counts the hidden tanh layers.
    shape = Lambda(arch, 0 if layers == 1 and arch != "rnn" else layers, learning_rate=None)
    return PonderModel(encoder, num_labels, config, shape, LastLayer())


def _pabee(
    encoder: LayerwiseEncoder, num_labels: int, settings: dict[str, Any], train: dict[str, Any]
) -> ClassifierPerLayer:
    config = trainables.configure("pabee", values_of("pabee") | {"classifier_dropout": 0.0})
    rule = Patience(1, settings["regression_threshold"])
    return ClassifierPerLayer(encoder, rule, num_labels, config, swept=())


def _load(model: EarlyExitModel, weights: dict[str, Tensor]) -> None:
    renamed = {ours: tensor for name, tensor in weights.items() if (ours := _our_name(name)) is not None}
    try:
        model.eval().load_state_dict(renamed)
    except RuntimeError as error:
        raise ValueError(f"weights do not fit: {' '.join(str(error).split())}") from error


def _our_name(original: str) -> str | None:
    """The name of an original parameter in our models, None if it takes no part in what a case computes."""
    if original.endswith("position_ids") or original == "albert.layer_positional_embeddings.weight":
        return None  # a buffer, and an option that no published command uses
    for pattern, replacement in _NAMES:
        if re.match(pattern, original):
            return re.sub(pattern, replacement, original)
    return original


# Original name -> ours, first match. Λ is a `LambdaLayer`, or a plain Linear as long as its architecture is not set.
_NAMES = (
    (r"albert\.encoder\.embedding_hidden_mapping_in\.", "encoder.project."),
    (r"albert\.encoder\.albert_layer_groups\.", "encoder.layers."),
    (r"albert\.", "encoder."),
    (r"classifiers\.cls_head\.", "classifier."),
    (r"classifiers\.exit_head\.(?:cls\.)?(weight|bias)$", r"lambda_head.output.\1"),
    (r"classifiers\.exit_head\.feature_extractor\.(\d+)\.0\.", r"lambda_head.hidden.\1."),
    (r"classifiers\.exit_head\.feature_extractor\.", "lambda_head.recurrent."),
)


def _compare_training(expected: dict[str, Any], batched: Quantities, one_by_one: Quantities) -> Iterator[Comparison]:
    check_names(set(expected), set(batched) | {"beta", "prior_lambda"}, "training quantity")
    for size, quantities in (("batched", batched), ("batch 1", one_by_one)):
        for quantity, ours in quantities.items():
            if quantity in expected:
                yield Comparison(f"train {quantity} ({size})", largest_difference(ours, expected[quantity]))


def _ponder_training(model: EarlyExitModel, batch: Batch) -> tuple[Quantities, Quantities]:
    assert isinstance(model, PonderModel)
    terms = model.loss(batch)
    terms["loss"].backward()
    exit_head: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (exit_head if name.startswith("lambda_head.") else rest).append(parameter)
    batched = {
        **_posterior(model, batch),
        "task_loss": terms["task_loss"],
        "total_loss": terms["loss"],
        "grad_norm_exit_head": _gradient_norm(exit_head),
        "grad_norm_rest": _gradient_norm(rest),
    }
    alone = [_posterior(model, example) for example in single_examples(batch)]
    one_by_one = {
        "exit_pdf": torch.cat([posterior["exit_pdf"] for posterior in alone], dim=1),
        "kl": torch.stack([posterior["kl"] for posterior in alone]).mean(),
    }
    return batched, one_by_one


def _posterior(model: PonderModel, batch: Batch) -> Quantities:
    posterior = truncated_posterior(model.heads_until_truncation(batch)[1], model.config, model.encoder.num_layers)
    kl = divergence(posterior, model.config.kl_direction).mean()
    return {"exit_pdf": posterior.probabilities(), "kl": kl}


def _pabee_training(model: EarlyExitModel, batch: Batch) -> tuple[Quantities, Quantities]:
    return _loss_and_gradient(model, [batch]), _loss_and_gradient(model, single_examples(batch))


def _loss_and_gradient(model: EarlyExitModel, batches: list[Batch]) -> Quantities:
    model.zero_grad()
    loss = torch.stack([model.loss(batch)["loss"] for batch in batches]).mean()
    loss.backward()
    return {"loss": loss, "grad_norm": _gradient_norm(list(model.parameters()))}


def _gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt()


def _compare_exit(
    setting: str, expected: dict[str, Any], model: EarlyExitModel, rule: ExitRule, batches: list[Batch], size: str
) -> Iterator[Comparison]:
    """Answers and exit layers by both ways of evaluating; the exit layers are equal or not."""
    check_names(set(expected), {"exit_layer", "logits"}, "evaluated quantity")
    model.exit_rule = rule
    simulated = [apply_exit(rule, model.all_exits(batch)) for batch in batches]
    compacted = [model.infer(batch) for batch in batches]
    for way, results in (("simulated", simulated), ("compacted", compacted)):
        for quantity, values in expected.items():
            ours = torch.cat([getattr(result, quantity) for result in results])
            allowed = 0.0 if quantity == "exit_layer" else TOLERANCE
            name = f"eval {setting} {quantity} ({size}, {way})"
            yield Comparison(name, largest_difference(ours, values), allowed)


def _exit_rule(setting: str, settings: dict[str, Any]) -> ExitRule:
    name, _, number = setting.partition("@")
    check_names({name}, set(_RULES), "evaluation")
    return _RULES[name](number, settings)


_RULES: dict[str, Callable[[str, dict[str, Any]], ExitRule]] = {
    "threshold": lambda number, settings: Threshold(float(number)),
    "patience": lambda number, settings: Patience(int(number), settings["regression_threshold"]),
    "expectation": lambda number, settings: Expectation(legacy=False),
    "expectation_legacy": lambda number, settings: Expectation(legacy=True),
    "last": lambda number, settings: LastLayer(),
}
_MODELS: dict[str, Callable[[LayerwiseEncoder, int, dict[str, Any], dict[str, Any]], EarlyExitModel]] = {
    "ponder": _ponder,
    "pabee": _pabee,
}
_TRAINING = {"ponder": _ponder_training, "pabee": _pabee_training}
