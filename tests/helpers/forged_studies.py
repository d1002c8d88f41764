"""Study folders whose numbers are lies: journal, predictions, plan and tables are written anew so that they agree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from helpers.edited_studies import read_event_lines, write_events
from helpers.made_studies import scores_of, store_predictions
from msgspec.structs import replace

from analysis.tables import write_tables
from study.facts.plan_file import require_plan, write_plan
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.facts.study_folder import compute_predictions_digest, predictions_file

Line = dict[str, Any]


def rewrite_journal(study: Path, change: Callable[[Line], Line | None]) -> None:
    """Replaces every line by what `change` makes of it, and leaves out those that it makes None of."""
    kept = []
    for line in read_event_lines(study):
        changed = change(json.loads(line))
        if changed is not None:
            kept.append(line if changed == json.loads(line) else msgspec.json.encode(changed))
    write_events(study, kept)


def forge_predictions(study: Path, forged: list[tuple[Record, dict[str, np.ndarray]]]) -> None:
    """Gives these trials other predictions, and journal and tables the numbers that follow from them."""
    reported, digests = {}, {}
    for record, arrays in forged:
        store_predictions(study, record.key, arrays)
        numbers = scores_of(record.task, arrays)
        reported[record.key] = {name: numbers[name] for name in ("score", "metrics", "mean_layers")}
        digests[record.key] = compute_predictions_digest(study, record.key)

    def change(line: Line) -> Line:
        if line.get("outcome") and line["key"] in reported:
            line["outcome"]["reported"] = reported[line["key"]]
        if line["event"] == "trial_ended" and line["key"] in digests:
            line["predictions_digest"] = digests[line["key"]]
        return line

    rewrite_journal(study, change)
    with suppress(ValueError):  # tables of copied seeds are refused
        write_tables([study], study / "tables")


def right_answers(study: Path, record: Record, *, share: float) -> dict[str, np.ndarray]:
    """The arrays of the trial's predictions, of which so large a share of wrong answers was mended."""
    with np.load(predictions_file(study, record.key)) as file:
        arrays = dict(file)
    logits, labels = arrays["logits"], arrays["labels"].astype(int)
    for row in range(int(share * len(labels))):
        logits[:, row] = np.eye(logits.shape[2])[labels[row]]
    return arrays


def copies_of_best_seed(study: Path, arm: str) -> None:
    """Gives all confirm trials of the arm the predictions of the best one."""
    confirmed = confirm_records(study, arm)
    best = max(confirmed, key=lambda record: record.score or 0.0)
    arrays = right_answers(study, best, share=0.0)
    forge_predictions(study, [(record, arrays) for record in confirmed])


def remove_method(study: Path, method: str, *, with_files: bool) -> None:
    """Takes a method out of plan, journal and tables; `with_files`: out of predictions and trials too."""
    keys = {trial.key for trial in read_facts(study).trials.values() if trial.arm.method == method}

    def change(line: Line) -> Line | None:
        if line.get("key") in keys or line.get("arm", "").startswith(f"{method}/"):
            return None
        if line["event"] == "launch_began":
            plan = line["plan"]
            plan["arms"] = [arm for arm in plan["arms"] if arm["method"] != method]
            plan["asked"]["methods"].remove(method)
            plan["departures"].pop(method, None)
        return line

    rewrite_journal(study, change)
    if with_files:
        for key in keys:
            predictions_file(study, key).unlink(missing_ok=True)
            shutil.rmtree(study / "trials" / key, ignore_errors=True)
    plan = read_facts(study).plan
    assert plan is not None
    write_plan(study, replace(require_plan(study), plan=plan))
    write_tables([study], study / "tables")


def confirm_records(study: Path, arm: str) -> list[Record]:
    """The records of the arm's confirm trials."""
    return [record for record in read_facts(study).records if (record.arm, record.phase) == (arm, "confirm")]
