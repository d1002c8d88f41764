"""Exclude a trial from searches and medians: `python -m study.drop runs/NAME KEY --because "a bad disk"`.

The trial keeps its predictions and its model, and the notes below the table name the trial and the reason. The trial
is not run again, so the table cell of a dropped confirm trial stays incomplete. If the dropped trial was the best of
its search, the next launch runs the confirm trials of the next best configuration.

`python -m study.drop runs/NAME --models` instead frees disk: it deletes the weights of all models from which no
other trial starts, and changes no number. Commands that run the models then say that they are missing.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

from study.decisions.progress import StudyProgress, compute_progress
from study.facts.events import TrialDropped
from study.facts.journal import Journal
from study.facts.plan_file import require_plan
from study.facts.record import Record, find_trials
from study.facts.study_facts import StudyFacts
from study.launching.screen import describe_record, format_continuation, name_trial
from study.storage.addresses import is_uri
from study.storage.models import delete_weights, keeps_model, locate_model, model_exists
from study.storage.study_storage import find_owner
from study.terminal.command_line import Command, argument, option
from study.terminal.text import counted, list_first, python
from trainables.configuration.schema import Typed

MOST_NAMED = 10  # keys listed in an error
NEED_MODELS = (
    "study.predict, study.export, study.time, study.submit, study.score_test, `analysis.verify --again` and the repair "
    "of damaged predictions"
)


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.drop`."""

    folder: Annotated[str, argument("runs/NAME", "the study's folder")]
    key: Annotated[
        str | None, argument("KEY", "key of the trial, or the key's first digits; analysis.explain lists keys")
    ] = None
    because: Annotated[str | None, option("reason, which is printed below the table", "TEXT")] = None
    undo: Annotated[bool, option("count a dropped trial again")] = False
    models: Annotated[
        bool,
        option("drop no trial, but delete the weights of models from which no other trial starts; no number changes"),
    ] = False


def run(options: Options) -> int:
    """Drop the trial, count it again (--undo) or delete all models (--models). Print what follows, and return 0."""
    reason = " ".join((options.because or "").split())
    folder = Path(options.folder)
    if options.models:
        if options.key or options.because or options.undo:
            raise ValueError("--models deletes the weights of all models; leave out KEY, --because and --undo")
        return _drop_models(folder)
    if options.key is None:
        raise ValueError("KEY is missing; allowed: the key of a trial, or --models")
    if bool(reason) == options.undo:
        raise ValueError("give either --because with a reason, or --undo")
    plan = require_plan(folder).plan
    with closing(Journal(folder)) as journal:
        journal.facts.check_unscored()
        record = _find_ended_trial(journal.facts.records, options.key)
        if options.undo != (record.status == "dropped"):
            advice = "--undo needs a dropped trial" if options.undo else "to count the trial again, use --undo"
            raise ValueError(f"trial {record.key} is {record.status}; {advice}")
        if record.status == "failed":
            raise ValueError(f"trial {record.key} failed, so no number includes it; there is no need to drop it")
        journal.append(TrialDropped(time=journal.now(), key=record.key, because=reason or None))
        facts = journal.facts
    changed = facts.trials[record.key].record
    assert changed is not None
    print(describe_record(changed))
    arms = dict.fromkeys(trial.started.arm for trial in facts.trials.values() if trial.start == record.key)
    if arms and not options.undo:
        print(f"arms that started from the trial's model keep their numbers: {', '.join(arms)}")
    print(f"to rewrite the tables: {python()} -m study.rebuild {shlex.quote(str(folder))}")
    progress = compute_progress(plan, facts)
    if not progress.is_finished:
        print(f"to run the missing trials: {format_continuation(progress, folder)}")
    return 0


def _drop_models(folder: Path) -> int:
    """Delete the weights of the models of all ended trials, except those from which other trials start.

    Raises:
        ValueError: if a launch runs the study, or a model is not that of this study alone.
    """
    plan = require_plan(folder).plan
    with closing(Journal(folder)) as journal:  # no launch runs the study meanwhile
        records = {record.key: record for record in journal.facts.records if keeps_model(record) and record.model}
        needed = _list_starting_models(compute_progress(plan, journal.facts), records.values())
        dropped = [record for key, record in records.items() if key not in needed]
        models = _list_own_models(dropped, folder, journal.facts)
        sizes = [size for model in models if (size := delete_weights(model))]
    print(f"deleted the weights of {counted(len(sizes), 'model')}: {sum(sizes) / 1e6:,.1f} MB")
    if needed:
        names = list_first([f"{key} ({records[key].arm}, seed {records[key].seed})" for key in needed], MOST_NAMED)
        print(f"kept {counted(len(needed), 'model')}, from which other trials start: {names}")
    print(f"no longer possible with the deleted models: {NEED_MODELS}")
    print("tables, tests, pictures and the report need no models; study.launch can add trials that need none of these")
    return 0


def _list_own_models(records: Iterable[Record], folder: Path, facts: StudyFacts) -> list[str]:
    """List the paths and URIs of the records' models.

    Raises:
        ValueError: if no launch of the study stored a model there, or another study may be the one that did.
    """
    models = []
    for record in records:
        model = str(locate_model(record, folder).model)
        if not is_uri(model) and not Path(model).is_dir():
            continue
        owner = find_owner(model, key=record.key, folder=folder, facts=facts)
        if owner == folder:
            models.append(model)
        elif model_exists(model):
            raise ValueError(
                f"{model} is a model of the study {owner}, of which {folder} may be a copy; allowed: {python()} -m "
                f"study.drop {shlex.quote(str(owner))} --models; if the study was moved, move it back for this command"
            )
    return models


def _list_starting_models(progress: StudyProgress, records: Iterable[Record]) -> list[str]:
    """List the keys of the trials whose models are the start of other trials, now or in a later launch."""
    chosen = {arm.facts.start_key for arm in progress.arms}
    sources = {arm.planned.start_from for arm in progress.arms if arm.facts.start is None}
    return [record.key for record in records if record.key in chosen or record.arm in sources]


def _find_ended_trial(records: Sequence[Record], key: str) -> Record:
    """Find the newest record of the ended trial with a key that begins with `key`.

    Raises:
        ValueError: if no ended trial or several ended trials have such a key.
    """
    fitting = find_trials(records, key)
    if len(fitting) == 1:
        return fitting[0]
    menu = [f"{record.key} ({name_trial(record)})" for record in fitting or find_trials(records, "")]
    number = "several ended trials" if fitting else "no ended trial"
    raise ValueError(f"KEY {key!r} matches {number}; available: {list_first(menu, MOST_NAMED) or 'none'}")


main = Command("study.drop", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
