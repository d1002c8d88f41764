"""Exclude a trial from searches and medians: `python -m study.drop runs/NAME KEY --because "a bad disk"`.

The trial keeps its predictions and its model, and the notes below the table name the trial and the reason. The trial
is not run again, so the table cell of a dropped confirm trial stays incomplete. If the dropped trial was the best of
its search, the next launch runs the confirm trials of the next best configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

from study.decisions.progress import compute_progress
from study.facts.events import TrialDropped
from study.facts.journal import Journal
from study.facts.plan_file import require_plan
from study.facts.record import Record
from study.launching.screen import describe_record, name_trial
from study.terminal.command_line import Command, argument, option
from study.terminal.text import list_first, python
from trainables.configuration.schema import Typed

MOST_NAMED = 10  # keys listed in an error


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.drop`."""

    folder: Annotated[str, argument("runs/NAME", "the study's folder")]
    key: Annotated[str, argument("KEY", "key of the trial, or the key's first digits; analysis.explain lists keys")]
    because: Annotated[str | None, option("reason, which is printed below the table", "TEXT")] = None
    undo: Annotated[bool, option("count a dropped trial again")] = False


def run(options: Options) -> int:
    """Drop the trial or, with --undo, count it again. Print the commands to run next, and return 0."""
    reason = " ".join((options.because or "").split())
    if bool(reason) == options.undo:
        raise ValueError("give either --because with a reason, or --undo")
    folder = Path(options.folder)
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
    print(f"to rewrite the tables: {python()} -m study.rebuild {folder}")
    if not compute_progress(plan, facts).is_finished:
        print(f"to run the missing trials: {python()} -m study.launch --continue {folder}")
    return 0


def _find_ended_trial(records: Sequence[Record], key: str) -> Record:
    """Find the newest record of the ended trial with a key that begins with `key`.

    Raises:
        ValueError: if no ended trial or several ended trials have such a key.
    """
    newest = {record.key: record for record in records}
    fitting = [record for record in newest.values() if record.key.startswith(key)]
    if len(fitting) == 1:
        return fitting[0]
    menu = [f"{record.key} ({name_trial(record)})" for record in fitting or newest.values()]
    number = "several ended trials" if fitting else "no ended trial"
    raise ValueError(f"KEY {key!r} matches {number}; available: {list_first(menu, MOST_NAMED) or 'none'}")


main = Command("study.drop", Options, __doc__ or "", run)

if __name__ == "__main__":
    sys.exit(main())
