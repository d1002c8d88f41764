"""Study folders made of given records, with the real plan, journal and records files, for the tests of analysis."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from helpers.journals import MadeJournal
from msgspec.structs import replace

from analysis.layouts.evidence import Evidence, gather
from analysis.studies.cells import Row, make_rows
from analysis.studies.load import load_study
from study.facts.events import FILE, FORMAT
from study.facts.plan_file import PlanFile, write_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.facts.study_folder import compute_predictions_digest, predictions_file
from study.plans.plan import EarlyStopping, Plan
from study.plans.resolved_plan import Arm, Protocol, ResolvedPlan, digest, list_confirm_seeds
from trainables.configuration.ranges import Interval
from trainables.configuration.schema import from_plain, to_plain
from trainables.data.metrics import compute_metrics, predictions_from_logits, score
from trainables.data.tasks import TASKS

SEEDS = [42, 43, 44, 45, 46]
PROTOCOL = Protocol(
    selection="dev",
    metric="the task's GLUE metric at the selected epoch",
    aggregate="median over seeds from 42",
    sampler="tpe",
    early_stopping=EarlyStopping(grace=1, factor=3),
)
COMPONENTS = {
    "sst2": ["accuracy"],
    "rte": ["accuracy"],
    "qnli": ["accuracy"],
    "cola": ["matthews"],
    "mrpc": ["accuracy", "f1"],
    "mnli": ["accuracy_matched", "accuracy_mismatched"],
    "qqp": ["accuracy", "f1"],
    "stsb": ["pearson", "spearman"],
    "wnli": ["accuracy"],
}
CONFIG = {"learning_rate": 1e-5, "batch_size": 32, "epochs": 25}
SETTINGS = {  # of the papers, beyond CONFIG
    "palbert": {
        "exit": "threshold",
        "q": 0.5,
        "lambda_layer_arch": "linear_cat",
        "num_lambda_layers": 3,
        "lambda_learning_rate": 1e-5,
    },
    "pondernet": {"sample_draws": 1},
    "pabee": {"patience": 6},
}
CONTENT = {
    "backbone_fingerprint": "albert/albert-base-v2",
    "tokenizer_fingerprint": None,
    "data_fingerprint": "f00d",
}
SPACE = {"learning_rate": Interval(low=2e-6, high=5e-5, log=True)}


def config_of(method: str) -> dict[str, Any]:
    """The configuration of the records of a method, unless it is given."""
    return CONFIG | SETTINGS.get(method, {})


def plan_of(
    methods: list[str],
    tasks: list[str],
    *,
    protocol: dict | None = None,
    seeds: int = len(SEEDS),
    backbone: str = "albert/albert-base-v2",
    baseline: str | None = "albert",
    start_from: dict[str, str] | None = None,
    config: dict | None = None,
    data: str = "hub",
    settings: dict | None = None,
    data_fingerprint: str = "f00d",
    samples: int = 1,
    test_across: str | None = None,
) -> ResolvedPlan:
    """A plan of these arms; `protocol` replaces fields of PROTOCOL. `settings` are fields of every configuration."""
    rules = replace(PROTOCOL, **(protocol or {}))
    settings = settings or {}
    request = Plan(
        profile="paper",
        methods=tuple(methods),
        tasks=tuple(tasks),
        data=data,
        samples=1,
        seeds=seeds,
        sampler=rules.sampler,
        selection=rules.selection,
        settings=settings,
        early_stopping=rules.early_stopping,
        start_from=start_from or {},
        baseline=baseline,
        test_across=test_across,
    )
    arms = tuple(
        Arm(
            method=method,
            task=task,
            space=SPACE,
            fixed={
                name: value for name, value in (config or config_of(method) | settings).items() if name not in SPACE
            },
            first=(),
            samples=samples,
            seeds=list_confirm_seeds(seeds),
            backbone=backbone,
            backbone_fingerprint=backbone,
            tokenizer=None,
            tokenizer_fingerprint=None,
            data_fingerprint=data_fingerprint,
            start_from=request.find_start(method, task, None),
        )
        for method in methods
        for task in tasks
    )
    return ResolvedPlan(request=request, arms=arms, protocol=rules, departures={})


def write_plan_of(folder: Path, plan: ResolvedPlan, *, name: str | None = None) -> None:
    """The plan.json of a study in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = PlanFile(
        format=FORMAT,
        name=name or folder.name,
        created="2026-01-01T00:00:00.000000+00:00",
        command="python -m study.launch",
        versions={},
        git_commit="0123abc",
        code_digest="c0de",
        protocol_hash=plan.protocol_hash,
        plan=plan,
    )
    write_plan(folder, content)


HASH = plan_of(["palbert"], ["rte"]).protocol_hash  # of the protocol of records and studies, unless it is changed


def record(
    method: str, task: str, score: float | None, *, seed: int = 42, phase: str = "confirm", **fields: Any
) -> Record:
    """A record with every field of the contract; `fields` replaces any of them."""
    config, start = fields.get("config", config_of(method)), fields.get("start")
    protocol_hash = fields.get("protocol_hash", HASH)
    identity = {"method": method, "task": task, "phase": phase, "config": config, "seed": seed, "start": start}
    content = CONTENT | {name: fields[name] for name in CONTENT if name in fields}
    values = {
        "key": key_of(protocol_hash, **identity, **content),
        "protocol_hash": protocol_hash,
        **identity,
        "trial": 0,
        "status": "completed" if score is not None else "failed",
        "error": None if score is not None else "loss is nan at step 3",
        "score": score,
        "selection_score": score,
        "metrics": dict.fromkeys(COMPONENTS[task], score) if score is not None else {},
        "epoch": 3 if score is not None else None,
        "epochs": 8,
        "num_layers": 12,
        "num_parameters": 11_700_000,
        "mean_layers": float(fields.get("num_layers", 12)) if method == "albert" else 8.0,
        "train_examples": 20_000,
        "train_seconds": 100.0,
        "eval_seconds": 16.0,
        "gpu_seconds": 120.0,
        "wall_seconds": 120.0,
        "model": None,
        "predictions_digest": None,
        **CONTENT,
        "data_differences": (),
        "versions": {"torch": "2.13.0"},
        "tokens_digest": None,
        "backbone_digest": None,
        "git_commit": "0123abc",
        "code_digest": "c0de",
        "host": "node-1",
        "device": "cuda:0",
        "started": "2026-01-01T00:00:00.000000+00:00",
        "ended": "2026-01-01T00:02:00.000000+00:00",
    }
    return Record(**(values | fields))


def write_records(folder: Path, records: list[Record]) -> None:
    """Replaces the journal by one whose trials end with these records."""
    (folder / FILE).unlink(missing_ok=True)
    journal = MadeJournal(folder)
    if not records:
        journal.begin()
    for row in records:
        journal.take(row)
    journal.end()


def edit_records(folder: Path, change: Callable[[list[dict]], object]) -> None:
    """Replaces the journal by one with its records as they are after `change` was applied to them as plain values."""
    rows = [to_plain(row) for row in read_facts(folder).records]
    change(rows)
    write_records(folder, [from_plain(Record, row, where="a record") for row in rows])


def evidence_of(*folders: Path) -> Evidence:
    """What the analysis knows of these studies, without its warnings about missing predictions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gather([load_study(folder) for folder in folders])


def write_study(
    folder: Path,
    records: list[Record],
    *,
    methods: list[str] | None = None,
    tasks: list[str] | None = None,
    name: str | None = None,
    **plan: Any,
) -> Path:
    """A study folder with these records; methods and tasks of the plan are those of the records unless given; `plan`
    are further arguments of `plan_of`. Records of the usual protocol are taken to be of the plan's."""
    methods = methods or list(dict.fromkeys(row.method for row in records))
    tasks = tasks or list(dict.fromkeys(row.task for row in records))
    made = plan_of(methods, tasks, **plan)
    write_plan_of(folder, made, name=name)
    write_records(folder, [of_plan(row, made) for row in records])
    return folder


def read_table(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, by column."""
    with path.open() as file:
        return list(csv.DictReader(file))


def rows_in(folder: Path) -> list[Row]:
    """The rows of the study in the folder, as tables show them."""
    return make_rows([load_study(folder)])


def of_plan(row: Record, plan: ResolvedPlan) -> Record:
    """The record as a trial of the plan, unless it was made under a particular protocol."""
    arms = {arm.name: arm for arm in plan.arms}
    if row.protocol_hash != HASH or row.arm not in arms:
        return row
    arm = arms[row.arm]
    content = {name: getattr(arm, name) for name in CONTENT if getattr(row, name) == CONTENT[name]}
    row = replace(row, config={**row.config, **plan.request.settings}, **content)
    identity = {name: getattr(row, name) for name in ("method", "task", "phase", "config", "seed", "start", *CONTENT)}
    return replace(row, protocol_hash=plan.protocol_hash, key=key_of(plan.protocol_hash, **identity))


def key_of(
    protocol_hash: str,
    *,
    backbone_fingerprint: str,
    tokenizer_fingerprint: str | None,
    data_fingerprint: str,
    **identity: Any,
) -> str:
    """The key of a trial, from fields of its record."""
    content = [backbone_fingerprint, tokenizer_fingerprint, data_fingerprint]
    method, task, *rest = (identity[name] for name in ("method", "task", "phase", "config", "seed", "start"))
    return digest([protocol_hash, method, task, *content, *rest])


def arm(method: str, task: str, scores: list[float | None], **fields: Any) -> list[Record]:
    """An arm's records: one search trial at the best score, then confirm trials on seeds from 42."""
    best = max(score for score in scores if score is not None)
    search = record(method, task, best, seed=1, phase="search", **fields)
    confirm = [record(method, task, score, seed=42 + i, trial=i, **fields) for i, score in enumerate(scores)]
    return [search, *confirm]


def predicted_study(
    folder: Path,
    methods: dict[str, float],
    tasks: list[str],
    *,
    num_examples: int = 400,
    seen_with: Mapping[str, Any] | None = None,
    **plan: Any,
) -> Path:
    """A whole study folder as a launch leaves it: records, predictions and journal that agree with each other.

    `methods` gives each method's chance of a right answer. The exit of `pondernet` is sampled. If the study was
    `seen_with` other fields of its plan, an earlier launch has ended with these.
    """
    made = plan_of(list(methods), tasks, **plan)
    write_plan_of(folder, made)
    records: list[Record] = []
    for number, (method, chance) in enumerate(methods.items()):
        for task in tasks:
            confirmed = []
            for seed in made.arms[0].seeds:
                arrays = predictions(method, task, chance, seed=seed, num_examples=num_examples, salt=number)
                content = {"backbone_fingerprint": made.arms[0].backbone_fingerprint}
                row = record(method, task, 0.0, seed=seed, trial=seed - 42, protocol_hash=made.protocol_hash, **content)
                store_predictions(folder, row.key, arrays)
                digest = compute_predictions_digest(folder, row.key)
                confirmed.append(replace(row, **scores_of(task, arrays), predictions_digest=digest))
            records += confirmed
            best = max(row.score for row in confirmed if row.score is not None)
            records += [_searched(confirmed[0], trial, best) for trial in range(4)]
    journal = MadeJournal(folder)
    if seen_with is not None:
        journal.begin(plan=replace(made, request=replace(made.request, **seen_with)))
        journal.end()
    for row in records:
        epochs = range(1, row.epochs + 1)
        journal.take(row, epochs=[(row.score or 0.0) - 0.02 * abs(epoch - (row.epoch or 1)) for epoch in epochs])
    journal.end()
    return folder


def _searched(confirmed: Record, trial: int, best: float) -> Record:
    """A search trial: the first is the winner, the last was stopped."""
    learning_rate = 1e-5 * (trial + 1) if trial else confirmed.config["learning_rate"]
    searched = record(
        confirmed.method,
        confirmed.task,
        best - 0.01 * trial,
        phase="search",
        seed=trial,
        trial=trial,
        config={**confirmed.config, "learning_rate": learning_rate},
        protocol_hash=confirmed.protocol_hash,
        backbone_fingerprint=confirmed.backbone_fingerprint,
    )
    return replace(searched, status="stopped", epochs=2, epoch=2) if trial == 3 else searched


def predictions(
    method: str, task: str, chance: float, *, seed: int, num_examples: int, salt: int
) -> dict[str, np.ndarray]:
    """The arrays of a predictions file. Examples differ in ease, in the same way for every method and seed."""
    shared, rng = np.random.default_rng(len(task)), np.random.default_rng([seed, salt, len(task)])
    ease = shared.uniform(-0.2, 0.2, num_examples)
    right = rng.random(num_examples) < np.clip(chance + ease, 0, 1)
    if TASKS[task].is_regression:
        labels = shared.uniform(0, 5, num_examples)
        logits = (labels + np.where(right, 0.1, 2.0) * rng.normal(size=num_examples))[:, None]
    else:
        labels = shared.integers(TASKS[task].num_labels, size=num_examples)
        logits = np.eye(TASKS[task].num_labels)[np.where(right, labels, (labels + 1) % TASKS[task].num_labels)]
    splits = TASKS[task].dev_splits
    layers = np.full(num_examples, 12) if method == "albert" else 12 - rng.integers(8, size=num_examples)
    settings = np.linspace(0.1, 0.9, 0 if method == "albert" else 9)
    draws = 4 if method == "pondernet" else 1
    drawn = np.repeat(logits[None], draws, axis=0)
    for number in range(1, draws):  # another draw has some of the answers of another example
        drawn[number] = np.where(rng.random(num_examples)[:, None] < 0.1, np.roll(logits, 1, axis=0), logits)
    arrays = {
        "ids": np.arange(num_examples),
        "split": np.array([splits[i % len(splits)] for i in range(num_examples)]),
        "labels": labels,
        "logits": drawn.astype(np.float32),
        "exit_layers": np.stack([np.roll(layers, number) for number in range(draws)]).astype(np.uint8),
        "layer_logits": np.repeat(logits[None], 12, axis=0).astype(np.float32),
        "sweep_rule": np.array(["made"] * len(settings)),
        "sweep_rule_fields": np.array(["{}"] * len(settings)),
        "sweep_field": np.array(["q"] * len(settings)),
        "sweep_setting": settings,
        "sweep_score": chance - 0.1 * (1 - settings) ** 2,
        "sweep_mean_layers": 1 + 11 * settings,
    }
    if method in ("pondernet", "palbert"):
        hazards = 1 / np.arange(12, 0, -1)
        arrays["lambdas"] = np.repeat(hazards[:, None], num_examples, axis=1).astype(np.float32)
    return arrays


def scores_of(task: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The record's numbers that these predictions give."""
    of_draws = [
        compute_metrics(TASKS[task], predictions_from_logits(TASKS[task], logits), arrays["labels"], arrays["split"])
        for logits in arrays["logits"]
    ]
    metrics = {name: float(np.mean([own[name] for own in of_draws])) for name in of_draws[0]}
    found = score(TASKS[task], metrics)
    if len(of_draws) > 1:
        metrics["sample_std"] = float(np.std([score(TASKS[task], own) for own in of_draws], ddof=1))
    layers = float(arrays["exit_layers"].mean())
    return {"score": found, "selection_score": found, "metrics": metrics, "mean_layers": layers}


def store_predictions(folder: Path, key: str, arrays: dict[str, np.ndarray]) -> None:
    path = predictions_file(folder, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
