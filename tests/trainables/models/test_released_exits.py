"""BERxiT and DeeBERT against their released code: pytest tests/trainables/models/test_released_exits.py

`tests/cases/released_exits.json` has numbers alone: what castorini/berxit at 1fb2162 and castorini/DeeBERT at 563eac1
compute with the weights of `make_weight`, one example at a time where examples leave. Their last layer has one more
pooler, for the exit head alone; there it has the weights of the model's own, and the two gradients are added.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from helpers.configurations import values_of
from helpers.places import CASES
from helpers.record_case import make_weight
from transformers import BertConfig, BertModel

import trainables
from trainables.data.tasks import TASKS
from trainables.encoders.layerwise import layerwise
from trainables.models.answer_rules import Entropy
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import LearnedExit, apply_exit

RELEASED = json.loads((CASES / "released_exits.json").read_text())
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
BERXIT = pytest.mark.parametrize("name", ["berxit_classes", "berxit_scores"])


def model_of(case: dict[str, Any]) -> EarlyExitModel:
    method, task = case["released"], TASKS["stsb" if case["num_labels"] == 1 else "mnli"]
    encoder = layerwise(BertModel._from_config(BertConfig(**case["config"]), attn_implementation="sdpa"))
    config = trainables.configure(method, values_of(method, task.name) | {"classifier_dropout": 0.0})
    model = trainables.load_method(method).build(config, encoder, task)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(make_weight(name, parameter.shape))
    return model


def batch_of(case: dict[str, Any]) -> Batch:
    return {name: torch.tensor(rows) for name, rows in case["batch"].items()}


def check_loss_and_gradients(model: EarlyExitModel, batch: Batch, expected: dict[str, Any]) -> None:
    model.train().zero_grad()
    loss = model.loss(batch)["loss"]
    loss.backward()
    torch.testing.assert_close(loss.item(), expected["loss"], **TOLERANCE)
    trained = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    norms = {name: 0.0 if gradient is None else gradient.norm().item() for name, gradient in trained.items()}
    # Softmax does not depend on the keys' biases, so their gradients are rounding errors.
    assert all(norm < 1e-4 for name, norm in norms.items() if name.endswith("key.bias"))
    norms = {name: norm for name, norm in norms.items() if not name.endswith("key.bias")}
    assert norms == pytest.approx({name: expected["gradients"].get(name, 0.0) for name in norms}, rel=1e-4, abs=1e-5)


def check_exits(model: EarlyExitModel, batch: Batch, rules: dict[str, Any], expected: dict[str, Any]) -> None:
    model.eval()
    for setting, found in expected.items():
        model.exit_rule = rules[setting]
        for result in (apply_exit(model.exit_rule, model.all_exits(batch)), model.infer(batch)):
            assert result.exit_layer.tolist() == found["exit_layer"], setting
            torch.testing.assert_close(result.logits, torch.tensor(found["logits"]), **TOLERANCE)


@BERXIT
def test_berxit_has_the_released_losses_and_gradients_in_turn(name: str) -> None:
    case = RELEASED[name]
    model = model_of(case)
    for turn in ("even", "odd", "even"):
        check_loss_and_gradients(model, batch_of(case), case["expected"][turn])
        model.after_step()


@BERXIT
def test_berxit_leaves_where_the_released_code_does(name: str) -> None:
    case = RELEASED[name]
    model = model_of(case).eval()
    uncertainties = model.all_exits(batch_of(case)).uncertainties
    torch.testing.assert_close(uncertainties, torch.tensor(case["expected"]["uncertainties"]), **TOLERANCE)
    rules = {setting: LearnedExit(float(setting)) for setting in case["expected"]["exits"]}
    check_exits(model, batch_of(case), rules, case["expected"]["exits"])


def test_deebert_matches_released_loss_gradients_and_exits() -> None:
    case = RELEASED["deebert_classes"]
    model, nats = model_of(case), math.log(case["num_labels"])
    check_loss_and_gradients(model, batch_of(case), case["expected"]["highways"])
    rules = {setting: Entropy(float(setting) / nats) for setting in case["expected"]["exits"]}
    check_exits(model, batch_of(case), rules, case["expected"]["exits"])
