"""Show what is done, running, stopped, failed and missing in a study: `python -m study.status runs/NAME`.

`python -m study.status runs/` prints a line for each study in the folder.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from study.command_line import Command, argument, option
from study.decisions.progress import StudyProgress, last_progress
from study.drivers.steps_file import read_steps
from study.facts.events import FILE
from study.facts.journal import lock_holder
from study.facts.ledger import Spent, ledger
from study.facts.other_code import describe_code_by_launch
from study.facts.plain_words import clock, counted, on_screen
from study.facts.study_facts import FailedAttempt, StudyFacts, TrialFacts, read_facts
from study.forecast import remaining_seconds
from study.plans.plan_file import find_plan, require_plan
from study.plans.select_by import describe_select_by
from study.screen.arms_table import arms_table
from study.screen.words import (
    blocked_exits,
    describe_attempts,
    describe_failure,
    describe_missing,
    describe_notice,
    describe_retries,
    describe_smoke_failure,
    describe_step,
    failures_command,
    missing_cells,
    trial_name,
)
from trainables.schema import Typed, to_plain

WIDEST = 10_000  # columns of a line that no terminal shows


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    folder: Annotated[str, argument("runs/NAME", "a study, or a folder of studies (a line for each)")]
    failures: Annotated[bool, option("list failures with tracebacks; equal ones of an arm once")] = False
    json: Annotated[bool, option("print the answer as JSON")] = False


class Status(Typed, frozen=True, kw_only=True):
    """The answer as `--json` gives it."""

    study: str
    protocol_hash: str
    launch: str | None  # who runs it now
    trials: dict[str, int]  # ended ones by status
    total: int
    under_way: list[str]
    waiting: list[str]  # those of them that a fault of the machine broke off last, with its error
    left_out: list[str]  # nodes that get no trials now
    failed: list[str]
    missing: list[str]
    ledger: list[Spent]
    code: list[str]  # that launches trained with
    remaining_seconds: float | None
    complete: bool


def run(options: Options) -> int:
    """0 if the study is complete, or all are, 1 if something is missing or failed, 2 if the folder is no study."""
    folder = Path(options.folder)
    if studies := studies_in(folder):
        return _tell_all(studies, as_json=options.json)
    progress = read_progress(folder)
    status = status_of(progress, folder)
    if options.failures:
        _tell_failures(folder, progress.facts.failed, as_json=options.json)
    elif options.json:
        print(json.dumps(to_plain(status), indent=1))
    else:
        _print(progress, status, options.folder)
    return 0 if status.complete else 1


def studies_in(folder: Path) -> list[Path]:
    """The folders of studies that a folder holds which is none itself, the one launched last first."""
    if find_plan(folder) is not None or not folder.is_dir():
        return []
    launched = {path.parent: path.stat().st_mtime for path in folder.glob(f"*/{FILE}")}
    return sorted(launched, key=lambda study: (-launched[study], study.name))


def _tell_all(studies: Sequence[Path], *, as_json: bool) -> int:
    """A line for each study, and why those cannot be read that cannot."""
    table, longest = Table(box=None, pad_edge=False), max(cell_len(folder.name) for folder in studies)
    right = ("trials", "wall clock", "GPU")
    for column in ("study", "methods", "tasks", "trials", "wall clock", "GPU", "state"):
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold", min_width=longest if column == "study" else None)
    found: list[object] = []
    broken: list[str] = []
    is_complete, together = True, [0.0, 0.0]
    for folder in studies:
        try:
            progress = read_progress(folder)
        except ValueError as error:
            table.add_row(folder.name, "", "", "", "", "", "cannot be read")
            broken.append(f"{folder.name}: {error}")
            found.append({"study": folder.name, "error": str(error)})
            is_complete = False
            continue
        status, asked = status_of(progress, folder), progress.plan.asked
        trials = f"{sum(status.trials.values())} of {status.total}"
        spent = [sum(getattr(one, kind) for one in status.ledger) for kind in ("wall_seconds", "gpu_seconds")]
        together = [one + more for one, more in zip(together, spent, strict=True)]
        what = ", ".join(asked.methods), ", ".join(asked.tasks)
        table.add_row(folder.name, *what, trials, *map(clock, spent), _state(status))
        found.append(to_plain(status))
        is_complete = is_complete and status.complete
    if len(studies) > 1:
        table.add_row("together", "", "", "", *map(clock, together), "failed and stopped trials too")
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST)
        console.print(table, crop=False)
        for line in broken:
            console.print(line, markup=False, soft_wrap=True)
    return 0 if is_complete else 1


def _state(status: Status) -> str:
    words = [f"run by {status.launch}"] if status.launch else []
    words += [f"{len(status.failed)} failed"] if status.failed else []
    words += [f"{counted(len(status.missing), 'cell')} missing"] if status.missing else []
    return ", ".join(words) or "complete"


def read_progress(folder: Path) -> StudyProgress:
    """How far the study is, as its journal has it now; nothing is written.

    Raises:
        ValueError: the folder is no study, or is broken.
    """
    plan = require_plan(folder).plan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a torn last line: the launch is writing it
        facts = read_facts(folder)
    return last_progress(plan, facts)


def status_of(progress: StudyProgress, folder: Path) -> Status:
    facts, holder = progress.facts, lock_holder(folder)
    steps = read_steps(folder) if holder else {}  # a launch that was killed has left its own
    failed = [describe_failure(record) for record in progress.failures]
    failed += [describe_smoke_failure(event) for event in facts.smoke_failed.values()]
    return Status(
        study=folder.resolve().name,
        protocol_hash=progress.plan.protocol_hash,
        launch=holder,
        trials=dict(Counter(trial.record.status for trial in facts.trials.values() if trial.record)),
        total=progress.total_trials,
        under_way=[
            f"{trial_name(trial)}{_how_far(trial, is_run=holder is not None)}{describe_step(trial, steps, ', {}')}"
            for trial in facts.under_way.values()
        ],
        waiting=[describe_retries(trial) for trial in facts.under_way.values() if trial.is_broken_off],
        left_out=[describe_notice(event) for event in facts.left_out.values()],
        failed=failed,
        missing=missing_cells(progress),
        ledger=ledger(facts.records),
        code=describe_code_by_launch(facts),
        remaining_seconds=remaining_seconds(progress, steps),
        complete=not (progress.missing or failed),
    )


def _how_far(trial: TrialFacts, *, is_run: bool) -> str:
    """Where a trial under way is, or, where no launch runs, what the next one goes on from."""
    if is_run:
        return f" at epoch {trial.epochs}"
    return f", saved at epoch {trial.epochs}" if trial.epochs else ", nothing saved yet"


def _print(progress: StudyProgress, status: Status, folder: str) -> None:
    console = Console(highlight=False)
    counts = ", ".join(f"{number} {word}" for word, number in status.trials.items()) or "none ended"
    total = f"{counts} of {counted(status.total, 'trial')}"
    words = f"study {status.study} ({status.protocol_hash}): {total}"
    console.print(on_screen(words, sys.stdout), markup=False, soft_wrap=True)
    console.print(on_screen(_run_by(progress.facts, status.launch), sys.stdout), markup=False, soft_wrap=True)
    console.print(arms_table(progress, width=console.width, under_way=_title(status)))
    if precision := progress.plan.protocol.search_precision:
        words = f"best is of search trials in {precision}, median of confirm trials in the configured precision"
        console.print(on_screen(words, sys.stdout), markup=False, soft_wrap=True)
    if rule := progress.plan.protocol.select_by:
        console.print(on_screen(describe_select_by(rule), sys.stdout), markup=False, soft_wrap=True)
    if status.ledger:
        console.print(_ledger_table(status.ledger))
    parts = {_title(status): status.under_way, "broken off": status.waiting, "left out": status.left_out}
    for title, lines in (parts | {"failed": status.failed, "missing": describe_missing(progress)}).items():
        for line in lines:
            console.print(on_screen(f"{title}: {line}", sys.stdout), markup=False, soft_wrap=True)
    for arm, reason in blocked_exits(progress).items():
        console.print(on_screen(f"{arm}: {reason}", sys.stdout), markup=False, soft_wrap=True)
    for line in status.code if len(status.code) > 1 else []:
        console.print(on_screen(f"trained by {line}", sys.stdout), markup=False, soft_wrap=True)
    if status.failed or status.waiting:
        console.print(f"tracebacks: {failures_command(folder)}", markup=False, soft_wrap=True)
    if not progress.is_finished and status.remaining_seconds is not None:
        console.print(f"left: about {clock(status.remaining_seconds)} of one slot")


def _run_by(facts: StudyFacts, holder: str | None) -> str:
    """The launch that runs the study, or what its last one noted at its end."""
    ended = facts.last_launch.ended if facts.last_launch else None
    noted = f"; the last launch, {ended.status}: {ended.note}" if ended and ended.note else ""
    return f"run by {holder}" if holder else f"not being run{noted}"


def _title(status: Status) -> str:
    """Of trials that have begun and not ended."""
    return "under way" if status.launch else "begun"


def _alike(attempts: Iterable[FailedAttempt]) -> list[list[FailedAttempt]]:
    """Attempts of one arm that failed with the same error together; those that are not the method's fault by host."""
    found: dict[tuple[object, ...], list[FailedAttempt]] = {}
    for attempt in attempts:
        failure = attempt.failure
        host = None if failure.cause == "method" else failure.host
        of = attempt.arm, attempt.key is None, attempt.became, failure.cause, failure.error, host
        found.setdefault(of, []).append(attempt)
    return list(found.values())


def _tell_failures(folder: Path, attempts: Sequence[FailedAttempt], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"study": folder.resolve().name, "failures": to_plain(attempts)}, indent=1))
        return
    for group in _alike(attempts):
        print("\n".join(describe_attempts(group)), end="\n\n")
    print(counted(len(attempts), "failed attempt") if attempts else "no failed attempts")


def _ledger_table(entries: list[Spent]) -> Table:
    """What each arm and phase has cost so far."""
    table = Table(box=None, pad_edge=False)
    for column in ("spent on", "phase", "trials", "epochs", "examples", "wall clock", "GPU"):
        table.add_column(column, justify="left" if column in ("spent on", "phase") else "right")
    for spent in entries:
        counts = (str(sum(spent.trials.values())), str(spent.epochs), f"{spent.train_examples:,}")
        table.add_row(spent.arm, spent.phase, *counts, clock(spent.wall_seconds), clock(spent.gpu_seconds))
    return table


main = Command(
    "study.status",
    Options,
    "Show what is done, running, stopped, failed and missing in a study.",
    run,
    epilog="Exit status: 0 the study, or every study of the folder, is complete; 1 cells are missing, for instance "
    "because it runs, or trials failed; 2 the folder holds no study.",
)

if __name__ == "__main__":
    sys.exit(main())
