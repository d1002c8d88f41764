"""What an epoch's report must say by the reports before it: the rules of `trainables.runs.training`, without torch."""

from __future__ import annotations

import math
from typing import Any

from analysis.verification import pretraining_rules
from analysis.verification.differences import differences, unlike
from study.facts.events import EpochReported
from study.facts.study_facts import TrialFacts
from trainables.data.tasks import TASKS, score
from trainables.runs.trial import EpochRow, Selection
from trainables.schema import to_plain

EXAMPLES = "train_examples per epoch"
TOLERANCE = 1e-12  # of a mean over several draws, which is added up in another order


class EpochRules:
    """The rules, and what the reports of an arm have in common: examples of an epoch's training and evaluation."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._examples: dict[tuple[str, str], int] = {}

    def faults(self, trial: TrialFacts, event: EpochReported) -> list[str]:
        """What is wrong with the report after those of the trial."""
        if trial.phase == "pretrain":
            return pretraining_rules.report_faults(trial, event)
        row = event.report.row
        lines = unlike(row, self._expected_row(trial, row))
        lines += self._score_faults(trial, row)
        lines += self._example_faults(trial, row)
        if trial.last:
            before = to_plain(trial.last.report.row)
            now = to_plain(row)
            lines += [
                f"{name} is {now[name]}; should be at least {before[name]}, as in the epoch before"
                for name in ("train_seconds", "eval_seconds")
                if now[name] < before[name]
            ]
        return [f"report row {line}" for line in lines] + self._outcome_faults(trial, event)

    def _expected_row(self, trial: TrialFacts, row: EpochRow) -> dict[str, object]:
        config, best = trial.config, trial.best.report.row if trial.best else None
        improved = config["select"] == "last" or row.selection_score > (best.selection_score if best else -math.inf)
        best_epoch = row.epoch if improved or best is None else best.epoch
        patience: Any = config["stop_after"]
        epochs: Any = config["epochs"]
        return {
            "epoch": trial.epochs + 1,
            "score": row.selection_score if self._selection == "dev" else None,
            "num_layers": len(row.exit_histogram),
            "improved": improved,
            "best_epoch": best_epoch,
            "finished": row.epoch >= epochs or 0 < patience <= row.epoch - best_epoch,
        }

    def _score_faults(self, trial: TrialFacts, row: EpochRow) -> list[str]:
        task, examples = TASKS[trial.started.task], sum(row.exit_histogram)
        try:
            mean = score(task, row.metrics)
        except KeyError as error:
            return [f"metrics lack {error.args[0]}"]
        layers = sum(layer * number for layer, number in enumerate(row.exit_histogram, start=1))
        pairs = {
            "selection_score": (row.selection_score, mean),
            "mean_layers": (row.mean_layers, layers / examples if examples else 0.0),
        }
        is_drawn = "sample_std" in row.metrics  # means over several draws are added up in another order
        return [
            f"{name} is {found!r}; should be {wanted!r}, by the {'metrics' if name != 'mean_layers' else 'histogram'}"
            for name, (found, wanted) in pairs.items()
            if found != wanted and not (is_drawn and abs(found - wanted) <= TOLERANCE)
        ]

    def _example_faults(self, trial: TrialFacts, row: EpochRow) -> list[str]:
        """Every trial of an arm sees the same examples in each epoch, and is evaluated on the same."""
        arm, numbers = trial.started.arm, {"examples in exit_histogram": round(sum(row.exit_histogram))}
        numbers[EXAMPLES], rest = divmod(row.train_examples, row.epoch)
        if rest:
            return [f"train_examples is {row.train_examples}; should be a multiple of the {row.epoch} epochs"]
        first = {name: self._examples.setdefault((arm, name), number) for name, number in numbers.items()}
        return [
            f"{name} is {number}; should be {first[name]}, as in the first report of {arm}"
            for name, number in numbers.items()
            if number != first[name]
        ]

    def _outcome_faults(self, trial: TrialFacts, event: EpochReported) -> list[str]:
        """It comes with the last epoch. A confirm trial is evaluated once more for it: its predictions say the rest."""
        row, outcome = event.report.row, event.report.outcome
        if (outcome is not None) != row.finished:
            return [f"report outcome is {'there' if outcome else 'null'}; should come with the finished epoch alone"]
        if outcome is None:
            return []
        selected = trial.best.report.row if trial.best and row.best_epoch != row.epoch else row
        expected: dict[str, object] = {
            "selection_score": selected.selection_score,
            "epoch": row.best_epoch,
            "epochs": row.epoch,
            "num_layers": row.num_layers,
            "train_examples": row.train_examples,
            "train_seconds": row.train_seconds,
        }
        if trial.phase == "search":
            names = ("metrics", "mean_layers")
            expected |= {name: getattr(selected, name) for name in names}
            expected |= {"score": selected.selection_score, "eval_seconds": row.eval_seconds, "model": None}
            expected["latency"] = None
        lines = [f"report outcome {line}" for line in unlike(outcome, expected)]
        if outcome.eval_seconds < row.eval_seconds:
            lines += differences("report outcome eval_seconds", outcome.eval_seconds, row.eval_seconds)
        return lines
