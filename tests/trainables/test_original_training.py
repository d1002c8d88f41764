"""Training beside a plain second writing of the originals: pytest tests/trainables/test_original_training.py

Facts: tinkoff-ai/palbert at 52a79af (src/train.py), JetRunner/PABEE at 6080b3e (run_glue.py, pabee/modeling_bert.py,
finetune_bert.sh).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.configurations import SIZES
from helpers.plan_files import plan_from
from torch import Tensor, nn
from transformers import BertConfig, BertModel, get_linear_schedule_with_warmup

import trainables
from study.plans.resolution import resolve_configuration
from trainables.configuration import TrainingConfig
from trainables.data.tasks import TASKS
from trainables.encoders.loading import load_encoder
from trainables.models.classifiers import ClassifierPerLayer
from trainables.models.early_exit import EarlyExitModel
from trainables.runs.optimiser import Optimiser

STEPS = 12


def resolve_values(*words: str) -> dict[str, Any]:
    """The fields of one arm on RTE, as a launch with these words would fix them."""
    (method,) = (after for before, after in itertools.pairwise(words) if before == "--method")
    plan = plan_from("--task", "rte", "--samples", "0", *words)
    return {name: layered.value for name, layered in resolve_configuration(plan, method, "rte").fixed.items()}


def build_model(method: str, values: Mapping[str, Any], backbone: str) -> tuple[TrainingConfig, EarlyExitModel]:
    config = trainables.configure(method, values)
    torch.manual_seed(0)
    encoder = load_encoder(backbone, config, vocab_size=30)
    return config, trainables.load_method(method).build(config, encoder, TASKS["rte"])


def draw_batches() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randint(5, 30, (8, 9), generator=generator) for _ in range(STEPS)]
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 2} for ids in batches]


def train_here(model: EarlyExitModel, config: TrainingConfig) -> list[float]:
    optimiser = Optimiser(model, model.parameter_groups(config), config, num_steps=STEPS, warmup_steps=0)
    losses = list[float]()
    model.train()
    for batch in draw_batches():
        torch.manual_seed(len(losses))
        losses.append(optimiser.step([model.loss(batch)["loss"]]).item())
    return losses


def train_as_palbert(model: EarlyExitModel, groups: list[dict[str, Any]]) -> list[float]:
    """`Trainer.train` with the optimiser of train.py; its scheduler is None, and it clips nothing."""
    adam, losses = torch.optim.Adam(groups), list[float]()
    model.train()
    for batch in draw_batches():
        torch.manual_seed(len(losses))
        adam.zero_grad()
        loss = model.loss(batch)["loss"]
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


def largest_difference(ours: Iterable[float], theirs: Iterable[float]) -> float:
    return max(abs(one - other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("method", ["palbert", "pondernet"])
def test_weight_decay_of_palbert_is_another_and_a_departure(method: str) -> None:
    differences = dict[float, float]()
    for weight_decay in (0.0, 0.01):
        values = resolve_values("--method", method, "--data", "mini", "--profile", "mini")
        values |= {"weight_decay": weight_decay, "learning_rate": 1e-3, "gradient_clip": 0.0, "schedule": "constant"}
        values |= {"warmup_ratio": 0.0} | ({"lambda_learning_rate": 5e-4} if method == "palbert" else {})
        config, model = build_model(method, values, "mini-albert")
        original = deepcopy(model)
        of_lambda = [weight for name, weight in original.named_parameters() if name.startswith("lambda_head.")]
        rest = [weight for name, weight in original.named_parameters() if not name.startswith("lambda_head.")]
        groups: list[dict[str, Any]] = [{"params": rest, "lr": 1e-3, "weight_decay": weight_decay}]
        if method == "palbert":
            groups.append({"params": of_lambda, "lr": 5e-4})
        else:  # without --lambda-lr, one group has all parameters
            groups[0]["params"] = [*rest, *of_lambda]
        differences[weight_decay] = largest_difference(train_here(model, config), train_as_palbert(original, groups))
    assert differences[0.0] < 1e-5 and differences[0.01] > 1e-3
    assert "kind of weight_decay: decoupled, " in " ".join(map(str, trainables.departures(method)))


@pytest.fixture
def bert(tmp_path: Path) -> str:
    folder = tmp_path / "bert"
    BertModel(BertConfig(**SIZES)).save_pretrained(folder)
    return str(folder)


class OriginalPabee(nn.Module):
    """`BertForSequenceClassificationWithPabee`, with the dropout of BertConfig."""

    def __init__(self, model: ClassifierPerLayer, folder: str) -> None:
        super().__init__()
        self.bert = BertModel.from_pretrained(folder)
        self.dropout = nn.Dropout(self.bert.config.hidden_dropout_prob)
        self.classifiers = deepcopy(model.classifiers)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        hidden = self.bert(batch["input_ids"], batch["attention_mask"], output_hidden_states=True).hidden_states[1:]
        total, weights = torch.zeros(()), 0
        for number, (head, layer) in enumerate(zip(self.classifiers, hidden, strict=True), start=1):
            logits = head(self.dropout(self.bert.pooler(layer)))
            total = total + number * nn.functional.cross_entropy(logits, batch["labels"])
            weights += number
        return total / weights


def list_dropout(model: nn.Module) -> list[float]:
    return [module.p for module in model.modules() if isinstance(module, nn.Dropout)]


def test_pabee_on_bert_trains_as_the_original(bert: str) -> None:
    by_hand = ["--set", "schedule=linear", "--set", "gradient_clip=1.0", "--set", "learning_rate=1e-3"]
    values = resolve_values("--method", "pabee", "--backbone", bert, "--profile", "paper", *by_hand)
    config, model = build_model("pabee", values | {"max_length": 16}, bert)
    assert isinstance(model, ClassifierPerLayer)
    original = OriginalPabee(model, bert)
    assert list_dropout(model) == list_dropout(original) == [0.1] * len(list_dropout(original))
    for module in (*model.modules(), *original.modules()):
        if isinstance(module, nn.Dropout):  # the two draw in another order
            module.p = 0.0
    decayed, rest = list[nn.Parameter](), list[nn.Parameter]()
    for name, weight in original.named_parameters():
        (rest if name.endswith(("bias", "LayerNorm.weight")) else decayed).append(weight)
    groups = [{"params": decayed, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=1e-3, eps=1e-8)
    schedule, losses = get_linear_schedule_with_warmup(adam, 0, STEPS), list[float]()
    original.train()
    for batch in draw_batches():
        adam.zero_grad()
        loss = original(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(original.parameters(), 1.0)
        adam.step()
        schedule.step()
        losses.append(loss.item())
    assert largest_difference(train_here(model, config), losses) < 1e-4
    assert losses[0] - losses[-1] > 0.01
