"""The commands of docs/coming_from.md plan what the papers' repositories run: pytest tests/house/test_coming_from.py"""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers.places import ROOT

from study import launch, pretrain
from study.launch_options import build_parser, plan_from
from study.plans.resolution import resolve_configuration

PAGE = (ROOT / "docs" / "coming_from.md").read_text()
COMMANDS = [
    line.split()[2:] for block in re.findall(r"^```\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()
]
LAUNCHES = [words[1:] for words in COMMANDS if words[0] == "study.launch"]

# What the commands of the READMEs say, in this order, as far as a field here means it.
PALBERT = {"epochs": 25, "stop_after": 5, "hidden_dropout": 0.0, "weight_decay": 0.0, "schedule": "constant"}
PABEE = {
    "learning_rate": 2e-5,
    "batch_size": 32,
    "epochs": 5,
    "max_length": 128,
    "schedule": "linear",
    "warmup_steps": 0,
}
WANTED: list[tuple[str, dict[str, Any]]] = [
    ("palbert", PALBERT | {"learning_rate": 1e-5, "batch_size": 32, "lambda_learning_rate": 1e-5, "beta": 0.5, "q": 0.5,
                           "lambda_layer_arch": "linear_cat", "num_lambda_layers": 3, "prior_lambda": 0.1}),
    ("pondernet", PALBERT | {"learning_rate": 1e-5, "batch_size": 16, "beta": 0.5, "prior_lambda": 0.1}),
    ("pabee", PALBERT | {"learning_rate": 1e-5, "batch_size": 32, "patience": 6}),
    ("albert", PALBERT | {"learning_rate": 1e-5, "batch_size": 128}),
    ("pabee", PABEE | {"gradient_clip": 1.0, "weight_decay": 0.0, "stop_after": 0}),
    ("pabee", PABEE | {"gradient_clip": 1.0, "weight_decay": 0.0, "stop_after": 0}),
    ("electra-small", {"max_length": 128}),
    ("sharebert", {"learning_rate": 5e-5, "batch_size": 64, "epochs": 5, "warmup_steps": 50, "weight_decay": 0.01,
                   "gradient_clip": 1.0, "schedule": "polynomial", "max_length": 128}),
]  # fmt: skip


def test_page_has_a_command_for_each_that_is_compared() -> None:
    assert len(LAUNCHES) == len(WANTED) and len(COMMANDS) == len(LAUNCHES) + 5


@pytest.mark.parametrize("number", range(len(WANTED)))
def test_launch_has_the_values_of_the_repository_and_searches_nothing(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words, (method, wanted) = LAUNCHES[number], WANTED[number]
    assert launch.main([*words, "--dry-run"]) == 0
    assert f"{method}/rte" in capsys.readouterr().out
    found = resolve_configuration(plan_from(build_parser().options(words))[0], method, "rte")
    assert {name: layered.value for name, layered in found.fixed.items() if name in wanted} == wanted
    assert not found.tuned or method == "electra-small"


@pytest.mark.parametrize("words", [words[1:] for words in COMMANDS if words[0] == "study.pretrain"], ids=" ".join)
def test_pretraining_can_be_planned(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    here = " ".join("mini" if word.startswith("hub:") else word for word in words)
    without_hub = here.replace("--backbone sharebert-base --tokenizer google-bert/bert-base-uncased", "").split()
    assert pretrain.main([*without_hub, "--dry-run"]) == 0
