"""Choose one trained model of a study: the model of a given trial, or the best model of one method on one task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import trainables
from study.command_line import option
from study.decisions.progress import StudyProgress, last_progress
from study.facts.plain_words import list_first
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.plans.plan_file import require_plan
from study.storage.trial_places import keeps_model, locate_model, model_exists
from trainables.data.tasks import TASKS
from trainables.schema import Typed
from trainables.spelling import is_same_name, resolve_name

MOST_NAMED = 10  # trials named in one line
_TRIAL = "use the model of this trial; default: the final run with the best dev score"


class ModelChoice(Typed, frozen=True, kw_only=True):
    """The options that choose a model."""

    trial: Annotated[str | None, option(_TRIAL, "KEY")] = None
    method: Annotated[str | None, option("method, if the study has several", "NAME")] = None
    task: Annotated[str | None, option("task, if the study has several", "NAME")] = None


def chosen_model(folder: Path, choice: ModelChoice) -> Record:
    """Return the record of the chosen trial, with the current address of the trial's model.

    Without --trial, choose the confirm trial (a final run of the best configuration) with the highest dev score, as
    `study.submit` does. Ties go to the first seed.

    Raises:
        ValueError: if no model fits the options, or if models of several arms fit them.
    """
    progress = last_progress(require_plan(folder).plan, read_facts(folder))
    if choice.trial is None:
        return with_current_model_address(_choose_best_of_arm(progress, choice), folder)
    if choice.method is not None or choice.task is not None:
        raise ValueError("--trial already chooses the model; allowed: --trial, or --method and --task")
    return with_current_model_address(_find_trial(progress.facts.records, choice.trial), folder)


def list_best_records(progress: StudyProgress) -> list[Record]:
    """List the record of each arm's best completed confirm trial; leave out repeats of an arm's search.

    Raises:
        ValueError: if no confirm trial is completed.
    """
    records = [record for arm in progress.arms if not arm.arm.repeat and (record := arm.best_confirmed)]
    if not records:
        raise ValueError("the study has no completed confirm trial yet")
    return records


def with_current_model_address(record: Record, folder: Path) -> Record:
    """Return the record with the current address of its model.

    Raises:
        ValueError: if the model no longer exists.
    """
    record = locate_model(record, folder)
    if not model_exists(record.model):
        raise ValueError(f"the model of record {record.key} ({record.task}) is gone: {record.model}")
    return record


def _find_trial(records: Sequence[Record], key: str) -> Record:
    kept = [record for record in records if keeps_model(record)]
    for record in kept:
        if record.key == key:
            return record
    ended = next((record for record in records if record.key == key), None)
    if ended is None:
        raise ValueError(f"no trial {key!r} has ended; trials with a model: {_list_models(kept)}")
    siblings = [record for record in kept if record.arm == ended.arm]
    raise ValueError(
        f"trial {key} has no model: it is a {ended.status} {ended.phase} trial of {ended.arm}, and only completed "
        f"confirm trials keep one; trials with a model: {_list_models(siblings or kept)}"
    )


def _choose_best_of_arm(progress: StudyProgress, choice: ModelChoice) -> Record:
    models = {record.arm: record for record in list_best_records(progress)}
    methods, tasks = ({name.split("/")[place]: None for name in models} for place in (0, 1))
    if choice.method is not None:
        resolve_name(choice.method, methods, what="method with a model", known=trainables.list_methods())
    if choice.task is not None:
        resolve_name(choice.task, tasks, what="task with a model", known=TASKS)
    wanted = [name for name in models if _fits(name, choice)]
    if not wanted:
        arms = f"{choice.method or 'any method'} on {choice.task or 'any task'}"
        raise ValueError(f"no model of {arms}; available: {', '.join(models)}")
    if len(wanted) > 1:
        raise ValueError(f"several arms have a model; choose one with --method and --task: {', '.join(wanted)}")
    return models[wanted[0]]


def _fits(arm: str, choice: ModelChoice) -> bool:
    method, _, task = arm.partition("/")
    return (choice.method is None or is_same_name(choice.method, method)) and (
        choice.task is None or is_same_name(choice.task, task)
    )


def _list_models(records: Sequence[Record]) -> str:
    if not records:
        return "none"
    return list_first([f"{record.key} ({record.arm}, seed {record.seed})" for record in records], MOST_NAMED)
