"""The choice of a model: the trial that a command means, and the current address of its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import trainables
from study.decisions.progress import StudyProgress, compute_progress
from study.facts.plan_file import require_plan
from study.facts.record import Record, find_trials
from study.facts.study_facts import read_facts
from study.storage.models import explain_missing_model, keeps_model, locate_model, model_exists
from study.terminal.command_line import option
from study.terminal.text import list_first
from trainables.configuration.schema import Typed
from trainables.configuration.spelling import resolve_name
from trainables.data.tasks import TASKS

MOST_NAMED = 10  # trials named in one line
_TRIAL = (
    "trial that provides the model: its key, or the key's first digits; default: the final run with the best dev score"
)


class ModelChoice(Typed, frozen=True, kw_only=True):
    """The options that choose a model."""

    trial: Annotated[str | None, option(_TRIAL, "KEY")] = None
    method: Annotated[str | None, option("method of the model, if the study has several", "NAME")] = None
    task: Annotated[str | None, option("task of the model, if the study has several", "NAME")] = None


def choose_model(folder: Path, choice: ModelChoice) -> Record:
    """Return the record of the chosen trial, with the current address of the trial's model.

    Without --trial, choose the final run (confirm trial) with the highest dev score, as `study.submit` does. If scores
    are equal, choose the lowest seed.

    Raises:
        ValueError: if no model fits the options, or if models of several arms fit them.
    """
    progress = compute_progress(require_plan(folder).plan, read_facts(folder))
    if choice.trial is None:
        return with_current_model_address(_choose_best_of_arm(progress, choice), folder)
    if choice.method is not None or choice.task is not None:
        raise ValueError("--trial already chooses the model; allowed: --trial, or --method and --task")
    return with_current_model_address(_find_trial(progress.facts.records, choice.trial), folder)


def list_best_records(progress: StudyProgress) -> list[Record]:
    """Return the record of each arm's best completed confirm trial. Arms that repeat a search are left out.

    Raises:
        ValueError: if no confirm trial is completed.
    """
    records = [record for arm in progress.arms if not arm.planned.repeat and (record := arm.best_confirmed)]
    if not records:
        raise ValueError("the study has no completed confirm trial yet")
    return records


def with_current_model_address(record: Record, folder: Path) -> Record:
    """Return the record with the current address of its model.

    Raises:
        ValueError: if the model no longer exists.
    """
    located = locate_model(record, folder)
    if not model_exists(located.model):
        fault = f"the model of trial {record.key} ({record.task}) no longer exists: {located.model}"
        raise ValueError("; ".join(filter(None, [fault, explain_missing_model(record, folder)])))
    return located


def _find_trial(records: Sequence[Record], key: str) -> Record:
    """Find the record of the trial with a model whose key begins with `key`.

    Raises:
        ValueError: if no trial or several trials with a model have such a key.
    """
    kept = [record for record in records if keeps_model(record)]  # a key may also have records of failed attempts
    if len(fitting := find_trials(kept, key)) == 1:
        return fitting[0]
    record = next(iter(find_trials(records, key)), None)
    if fitting:
        kept, fault = fitting, f"--trial {key!r} matches several trials"
    elif record is None:
        fault = f"no trial {key!r} has ended"
    else:
        kept = [other for other in kept if other.arm == record.arm] or kept
        fault = (
            f"trial {record.key} has no model: it is a {record.status} {record.phase} trial of {record.arm}, and only "
            "completed confirm trials keep their model"
        )
    menu = list_first([f"{other.key} ({other.arm}, seed {other.seed})" for other in kept], MOST_NAMED)
    raise ValueError(f"{fault}; these trials have a model: {menu or 'none'}")


def _choose_best_of_arm(progress: StudyProgress, choice: ModelChoice) -> Record:
    records, what = list_best_records(progress), "with a model"
    if choice.method is not None:
        menu = dict.fromkeys(record.method for record in records)
        method = resolve_name(choice.method, menu, what=f"method {what}", known=trainables.list_methods())
        records, what = [record for record in records if record.method == method], f"{what} of {method}"
    if choice.task is not None:
        menu = dict.fromkeys(record.task for record in records)
        task = resolve_name(choice.task, menu, what=f"task {what}", known=TASKS)
        records = [record for record in records if record.task == task]
    if len(records) > 1:
        arms = ", ".join(record.arm for record in records)
        raise ValueError(f"several arms have a model; choose one with --method and --task: {arms}")
    return records[0]
