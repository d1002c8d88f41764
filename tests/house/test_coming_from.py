"""The commands of docs/coming_from.md plan what the papers' repositories run: pytest tests/house/test_coming_from.py"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.places import ROOT

import trainables
from study import launch, pretrain, submit
from study.launch_options import plan_from
from study.plans.resolution import resolve_configuration
from trainables import objectives
from trainables.encoders.mini_backbones import word_tokenizer

PAGE = (ROOT / "docs" / "coming_from.md").read_text()
COMMANDS = [
    line.split()[2:] for block in re.findall(r"^```\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()
]
PARSERS = [module.main.parser() for module in (launch, pretrain, submit)]
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
    ("deebert", {"learning_rate": 2e-5, "batch_size": 8, "epochs": 3, "max_length": 128, "schedule": "linear",
                 "warmup_steps": 0, "gradient_clip": 1.0, "weight_decay": 0.0, "select": "last"}),
    ("berxit", {"learning_rate": 2e-5, "batch_size": 8, "epochs": 3, "max_length": 128, "schedule": "linear",
                "warmup_steps": 0, "gradient_clip": 1.0, "weight_decay": 0.0}),
    ("electra-small:lmtuners", {"head": "pooled", "weight_decay": 0.0, "max_length": 128, "epochs": 10}),
    ("alectra-small", {"head": "pooled", "weight_decay": 0.0, "max_length": 128, "epochs": 5}),
    ("sharebert", {"learning_rate": 5e-5, "batch_size": 64, "epochs": 5, "warmup_steps": 50, "weight_decay": 0.01,
                   "gradient_clip": 1.0, "schedule": "polynomial", "max_length": 128}),
]  # fmt: skip


def test_page_has_a_command_for_each_that_is_compared() -> None:
    assert len(LAUNCHES) == len(WANTED) and len(COMMANDS) == len(LAUNCHES) + 8


@pytest.mark.parametrize("number", range(len(WANTED)))
def test_launch_has_the_values_of_the_repository_and_searches_nothing(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words, (method, wanted) = LAUNCHES[number], WANTED[number]
    assert launch.main([*words, "--dry-run"]) == 0
    assert f"{method}/rte" in capsys.readouterr().out
    found = resolve_configuration(plan_from(launch.main.parser().options(words))[0], method, "rte")
    assert {name: layered.value for name, layered in found.fixed.items() if name in wanted} == wanted
    assert not found.tuned or "electra-small" in method or method == "alectra-small"


PRETRAININGS = [words[1:] for words in COMMANDS if words[0] == "study.pretrain"]
SHAREBERT = {"learning_rate": 1e-3, "batch_size": 4000, "gradient_accumulation": 16, "steps": 23_000,
             "warmup_steps": 1380, "schedule": "linear", "gradient_clip": 0.5, "weight_decay": 0.01,
             "optimizer": "adamw", "adam_beta2": 0.98, "adam_epsilon": 1e-6, "hidden_dropout": 0.1}  # fmt: skip
# What the scripts of the repositories say, by objective and backbone.
WANTED_PRETRAININGS: dict[tuple[str, str], dict[str, Any]] = {
    ("alectra-rtd", "alectra-small"): {"learning_rate": 2e-3, "batch_size": 512, "steps": 500_000,
                                       "warmup_steps": 40_000, "optimizer": "lamb_clamped", "weight_decay": 0.01},
    ("mlm", "sharebert-small"): SHAREBERT,
    ("mlm", "sharebert-base"): SHAREBERT,
    ("albert-mlm", "albert-base"): {"learning_rate": 1e-4, "batch_size": 1024, "gradient_accumulation": 128,
                                    "steps": 125_000, "mask_probability": 0.15, "attention": "nystrom",
                                    "conv_kernel_size": 33, "schedule": "constant", "max_length": 512},
}  # fmt: skip


@pytest.mark.parametrize("words", PRETRAININGS, ids=" ".join)
def test_pretraining_has_the_values_of_the_repository(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    request = pretrain.resolve(pretrain.main.parser().options(words))
    wanted = WANTED_PRETRAININGS.get((request.recipe.objective, request.backbone.value), {})
    assert {name: request.fields[name].value for name in wanted} == wanted
    here = " ".join("mini" if word.startswith("hub:") else word for word in words)
    without_hub = here.replace("--backbone sharebert-base --tokenizer google-bert/bert-base-uncased", "").split()
    assert pretrain.main([*without_hub, "--dry-run"]) == 0


def test_every_pretraining_that_is_compared_is_a_command() -> None:
    requests = [pretrain.resolve(pretrain.main.parser().options(words)) for words in PRETRAININGS]
    assert {*WANTED_PRETRAININGS} <= {(request.recipe.objective, request.backbone.value) for request in requests}


@pytest.mark.parametrize(("width", "layers"), [(768, 6), (1024, 24), (2048, 24)])
def test_the_sizes_of_another_repository_can_be_pretrained(width: int, layers: int, tmp_path: Path) -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)
    sizes = {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": layers}
    (tmp_path / "hps").mkdir()
    (tmp_path / "hps" / "config.json").write_text(json.dumps(json.loads(text) | sizes))
    (tmp_path / "words").mkdir()
    word_tokenizer(["a man sleeps"]).backend_tokenizer.save(str(tmp_path / "words" / "tokenizer.json"))
    own = ["--backbone", str(tmp_path / "hps"), "--tokenizer", str(tmp_path / "words"), "--attention", "nystrom"]
    assert pretrain.main(["albert-mlm", "--corpus", "mini", "--to", str(tmp_path / "to"), *own, "--dry-run"]) == 0


def test_the_tables_name_options_and_fields_that_exist() -> None:
    flags = {flag for parser in PARSERS for action in parser._actions for flag in action.option_strings}
    fields = {name for method in trainables.list_methods() for name in trainables.load(method).Config.__struct_fields__}
    fields |= {name for each in objectives.list_objectives() for name in objectives.load(each).Config.__struct_fields__}
    here = " ".join(line.split(" | ", 1)[1] for line in PAGE.splitlines() if line.startswith("| `"))
    code = re.findall(r"`([^`]+)`", here)
    assert {word for text in code for word in text.split() if word.startswith("--")} <= flags
    named = {word.partition("=")[0].removeprefix("--set ") for word in code if "_" in word and "/" not in word}
    assert named - {"CUDA_VISIBLE_DEVICES", "exit_rules", "exit_settings", "linear_cat", "linear_diff"} <= fields
