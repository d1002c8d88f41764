"""A study whose predictions are what the real exit rules make of made layers: for pictures and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from helpers.journals import MadeJournal
from helpers.made_studies import CONFIG, SEEDS, plan_of, record, scores_of, store_predictions, write_plan_of
from msgspec.structs import replace

from study.facts.record import Record
from study.facts.study_folder import compute_predictions_digest
from trainables.configuration.schema import Configuration
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS
from trainables.models.exit_rules import (
    ExitResult,
    ExitRule,
    LastLayer,
    LayerOutputs,
    Patience,
    Sampled,
    Threshold,
    apply_exit,
    every_patience,
    every_threshold,
    read_setting,
    rule_as_json,
)
from trainables.runs.evaluation import as_stored

Change = Callable[[str, np.ndarray, LayerOutputs], LayerOutputs]  # of a method's model, for these labels

LAYERS = 12
SKILLS = {"albert": 0.86, "palbert": 0.85, "pabee": 0.83, "pondernet": 0.81}  # chance of a right answer, all layers
CONFIGS: dict[str, Configuration] = {
    "albert": {},
    "palbert": {"exit": "threshold", "q": 0.5, "prior_lambda": 0.1},
    "pabee": {"patience": 6},
    "pondernet": {"prior_lambda": 0.1, "sample_draws": 5},
}


def swept_study(
    folder: Path,
    methods: list[str],
    tasks: list[str],
    *,
    better_by: float = 0.0,
    searches: int = 12,
    examples: int = 200,
    data: str = "hub",
    change: Change = lambda method, labels, outputs: outputs,
    protocol: dict | None = None,
) -> Path:
    """A whole study folder of albert, palbert, pabee or pondernet; `better_by` is added to every chance of a right
    answer. More layers answer better, and a higher prior λ searches worse. `change` replaces a model's outputs,
    `protocol` fields of the protocol."""
    plan = plan_of(methods, tasks, data=data, protocol=protocol)
    write_plan_of(folder, plan)
    journal = MadeJournal(folder)
    for method in methods:
        for task in tasks:
            searched = _searched(method, task, searches, plan.protocol_hash)
            best = max(searched, key=lambda row: (row.status == "completed", row.selection_score or 0))
            confirmed = []
            for seed in SEEDS:
                arrays = _arrays(method, task, seed, better_by, examples, change)
                row = record(method, task, 0.0, seed=seed, config=best.config, protocol_hash=plan.protocol_hash)
                store_predictions(folder, row.key, arrays)
                own = {"trial": seed - 42, "predictions_digest": compute_predictions_digest(folder, row.key)}
                confirmed.append(replace(row, **own, **scores_of(task, arrays)))
            for row in [*searched, *confirmed]:
                epochs = range(1, row.epochs + 1)
                scores = [(row.selection_score or 0) - 0.02 * abs(epoch - (row.epoch or 1)) for epoch in epochs]
                journal.take(row, epochs=scores)
    journal.end()
    return folder


def _arrays(
    method: str, task: str, seed: int, better_by: float, examples: int, change: Change
) -> dict[str, np.ndarray]:
    """A predictions file as `write_predictions` makes it."""
    number = list(TASKS).index(task)
    shared = np.random.default_rng(number)
    num_labels = TASKS[task].num_labels
    classes = shared.integers(num_labels, size=examples)
    labels = shared.uniform(0, 5, examples) if TASKS[task].is_regression else classes
    outputs = _outputs(method, task, labels, np.random.default_rng([seed, len(method), number]), better_by)
    outputs = change(method, labels, outputs)
    splits = np.array([TASKS[task].dev_splits[i % len(TASKS[task].dev_splits)] for i in range(examples)])
    own = _own_rule(method, task)
    generator = torch.Generator().manual_seed(seed)
    draws = [apply_exit(own, outputs, generator) for _ in range(own.draws)]
    swept = [(rule, apply_exit(rule, outputs)) for rule in _swept_rules(method, task)]

    def scored(result: ExitResult) -> float:
        answers = predictions_from_logits(TASKS[task], result.logits.numpy())
        return score(TASKS[task], compute_metrics(TASKS[task], answers, labels, splits))

    arrays = {
        "ids": np.arange(examples),
        "split": splits,
        "labels": labels,
        "logits": np.stack([draw.logits.numpy() for draw in draws]),
        "exit_layers": np.stack([draw.exit_layer.numpy() for draw in draws]),
        "layer_logits": as_stored(outputs.logits.numpy()),
        "sweep_rule": np.array([rule.name for rule, _ in swept], dtype=np.str_),
        "sweep_rule_fields": np.array([rule_as_json(rule) for rule, _ in swept], dtype=np.str_),
        "sweep_field": np.array([rule.field for rule, _ in swept], dtype=np.str_),
        "sweep_setting": np.array([read_setting(rule) for rule, _ in swept], dtype=float),
        "sweep_score": np.array([scored(result) for _, result in swept], dtype=float),
        "sweep_mean_layers": np.array([result.exit_layer.double().mean() for _, result in swept], dtype=float),
    }
    if outputs.lambdas is not None:
        arrays["lambdas"] = outputs.lambdas.numpy()
    return arrays


def _outputs(method: str, task: str, labels: np.ndarray, rng: np.random.Generator, better_by: float) -> LayerOutputs:
    """Layers whose answers get right one after the other, and λ that rises with the layer and differs by example."""
    share = np.linspace(1 / LAYERS, 1, LAYERS)[:, None]  # (layers, 1)
    chance = SKILLS[method] + better_by + rng.normal(0, 0.01) - 0.35 * (1 - share) ** 2
    right = rng.random(len(labels)) < chance  # (layers, n)
    if TASKS[task].is_regression:
        logits = (labels + np.where(right, 0.2, 1.5) * rng.normal(size=len(labels)))[:, :, None]
    else:
        num_labels = TASKS[task].num_labels
        logits = np.eye(num_labels)[np.where(right, labels, (labels + 1) % num_labels)]
        sureness = np.random.default_rng(len(labels)).uniform(0.5, 6, right.shape) * np.where(right, share, 0.6 * share)
        logits = logits * sureness[:, :, None]
    lambdas = np.clip((0.02 + 0.2 * share) * rng.uniform(0.3, 1.7, len(labels)), 0, 1)
    has_lambdas = method in ("palbert", "pondernet")
    return LayerOutputs(torch.tensor(logits).float(), torch.tensor(lambdas) if has_lambdas else None)


def _own_rule(method: str, task: str) -> ExitRule:
    rules: dict[str, ExitRule] = {
        "albert": LastLayer(),
        "palbert": Threshold(0.5),
        "pabee": Patience(6, 0.5 if TASKS[task].is_regression else None),
        "pondernet": Sampled(5),
    }
    return rules[method]


def _swept_rules(method: str, task: str) -> list[ExitRule]:
    if method == "pabee":
        return every_patience(LAYERS, 0.5 if TASKS[task].is_regression else None)
    return [] if method == "albert" else every_threshold()


def _searched(method: str, task: str, number: int, protocol_hash: str) -> list[Record]:
    """Search trials, every fourth stopped."""
    rng = np.random.default_rng([len(method), list(TASKS).index(task)])
    records = []
    for trial in range(number):
        config = {**CONFIG, **CONFIGS[method], "learning_rate": round(float(1e-5 * 5 ** rng.random()), 7)}
        below = 0.02 * rng.random()
        if "prior_lambda" in config:
            config["prior_lambda"] = round(float(0.08 * (0.5 / 0.08) ** rng.random()), 3)
            below += 0.08 * config["prior_lambda"]
        identity = {"seed": trial, "trial": trial, "config": config, "protocol_hash": protocol_hash}
        row = record(method, task, SKILLS[method] - below, phase="search", **identity)
        ended = f"2026-01-01T{trial:02d}:02:00.000000+00:00"
        stopped = {"status": "stopped", "epochs": 2, "epoch": 2, "gpu_seconds": 30.0} if trial % 4 == 3 else {}
        records.append(replace(row, ended=ended, **stopped))
    return records
