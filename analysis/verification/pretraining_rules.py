"""What the reports of a pretraining must say: the rules of `trainables.runs.pretraining_run`, without torch."""

from __future__ import annotations

from typing import Any

from analysis.verification.differences import unlike
from study.facts.events import EpochReported
from study.facts.record import SIZES
from study.facts.study_facts import TrialFacts
from trainables.runs.trial import EpochRow


def report_faults(trial: TrialFacts, event: EpochReported) -> list[str]:
    """What is wrong with the report of an epoch that comes after those of the trial."""
    row = event.report.row
    if missing := [name for name in SIZES if name not in row.metrics]:
        return [f"report row metrics lack {', '.join(missing)}"]
    lines = unlike(row, _expected_row(trial, row)) + _size_faults(trial, row)
    lines += [f"selection_score is {row.selection_score}, which none of the metrics is"] * (
        row.selection_score not in [value for name, value in row.metrics.items() if name not in SIZES]
    )
    return [f"report row {line}" for line in lines] + _outcome_faults(event)


def _expected_row(trial: TrialFacts, row: EpochRow) -> dict[str, object]:
    before = trial.last.report.row if trial.last else None
    return {
        "epoch": trial.epochs + 1,
        "score": None,
        "num_layers": before.num_layers if before else row.num_layers,
        "mean_layers": float(row.num_layers),
        "exit_histogram": [],
        "improved": True,
        "best_epoch": row.epoch,
        "train_examples": _steps(trial, row) * _number(trial, "batch_size"),
        "finished": _steps(trial, row) == trial.config["steps"],
    }


def _size_faults(trial: TrialFacts, row: EpochRow) -> list[str]:
    """Costs are totals: they grow. An example has no more tokens than its maximal length."""
    before = trial.last.report.row if trial.last else None
    steps = _steps(trial, row)
    lines = [f"metrics steps is {row.metrics['steps']}; should be {steps}"] * (row.metrics["steps"] != steps)
    least = before.metrics["tokens"] if before else 0
    most = row.train_examples * _number(trial, "max_length")
    if not least < row.metrics["tokens"] <= most:
        lines.append(f"metrics tokens is {row.metrics['tokens']}; should be more than {least} and at most {most}")
    for name in ("train_seconds", "eval_seconds"):
        if before and getattr(row, name) < getattr(before, name):
            lines.append(f"{name} is {getattr(row, name)}; should be at least {getattr(before, name)}, as before")
    return lines


def _outcome_faults(event: EpochReported) -> list[str]:
    row, outcome = event.report.row, event.report.outcome
    if (outcome is not None) != row.finished:
        return [f"report outcome is {'there' if outcome else 'null'}; should come with the finished epoch alone"]
    if outcome is None:
        return []
    expected: dict[str, object] = {"score": row.selection_score, "epoch": row.epoch, "epochs": row.epoch}
    names = ("selection_score", "metrics", "num_layers", "mean_layers", "train_examples", "train_seconds")
    expected |= {name: getattr(row, name) for name in (*names, "eval_seconds")} | {"data_differences": ()}
    return [f"report outcome {line}" for line in unlike(outcome, expected)]


def _steps(trial: TrialFacts, row: EpochRow) -> int:
    return min(row.epoch * _number(trial, "steps_per_epoch"), _number(trial, "steps"))


def _number(trial: TrialFacts, field: str) -> Any:
    return trial.config[field]
