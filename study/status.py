"""Show what is done, running, stopped, failed and missing in a study: `python -m study.status runs/NAME`.

`python -m study.status runs/` prints a line for each study in the folder.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from study.decisions.progress import StudyProgress, read_progress
from study.drivers.messages import Steps, read_steps
from study.facts.code_history import describe_code_by_launch
from study.facts.events import FILE
from study.facts.lock import find_lock_holder
from study.facts.plan_file import find_plan
from study.facts.record import Spent, compute_ledger
from study.facts.study_facts import FailedAttempt, StudyFacts, TrialFacts
from study.launching.forecast import remaining_seconds
from study.launching.screen import (
    arms_table,
    blocked_exits,
    build_table,
    describe_attempts,
    describe_closed,
    describe_missing,
    describe_notice,
    describe_retries,
    describe_step,
    failures_command,
    format_continuation,
    name_trial,
)
from study.plans.samplers import describe_select_by
from study.terminal.command_line import Command, argument, option
from study.terminal.text import clock, counted, print_lines, python
from trainables.configuration.schema import Typed, to_plain

WIDEST = 10_000  # maximum width of a line that is not written to a terminal


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.status`."""

    folder: Annotated[str, argument("runs/NAME", "a study, or a folder of studies (prints a line for each study)")]
    failures: Annotated[bool, option("list failed attempts with tracebacks; equal errors share one entry")] = False
    json: Annotated[bool, option("print the status as JSON")] = False


class Status(Typed, frozen=True, kw_only=True):
    """The status of a study, in the form that `--json` prints."""

    study: str
    protocol_hash: str
    launch: str | None  # the process that runs the study now, or None
    trials: dict[str, int]  # number of ended trials by status
    total: int
    under_way: list[str]
    waiting: list[str]  # trials that a machine fault interrupted, and the error of each trial
    left_out: list[str]  # nodes that currently get no trials; [] without a launch, as the next one judges nodes anew
    failed: list[str]
    missing: list[str]
    closed: list[str]  # arms that --max-gpu-hours keeps from starting trials
    ledger: list[Spent]
    code: list[str]  # one line for each version of the code that trained trials
    remaining_seconds: float | None
    complete: bool


def run(options: Options) -> int:
    """Print the status. Return 0 if every study is complete, and 1 if trials failed or results are missing."""
    folder = Path(options.folder)
    if studies := list_studies(folder):
        if options.failures:
            raise ValueError(f"--failures is for one study; allowed: {', '.join(map(str, studies))}")
        return _print_all(studies, as_json=options.json)
    progress = read_progress(folder)
    status = collect_status(progress, folder)
    if options.failures:
        _print_failures(folder, progress.facts.failed, as_json=options.json)
    elif options.json:
        print(json.dumps(to_plain(status), indent=1))
    else:
        _print(progress, status, options.folder)
    return 0 if status.complete else 1


def list_studies(folder: Path) -> list[Path]:
    """List the studies in `folder`, most recently active first. If `folder` is itself a study, return []."""
    if find_plan(folder) is not None or not folder.is_dir():
        return []
    launched = {path.parent: path.stat().st_mtime for path in folder.glob(f"*/{FILE}")}
    return sorted(launched, key=lambda study: (-launched[study], study.name))


def _print_all(studies: Sequence[Path], *, as_json: bool) -> int:
    """Print a line for each study, and an error for each unreadable study. Return the exit status."""
    table, longest = Table(box=None, pad_edge=False), max(cell_len(folder.name) for folder in studies)
    for column in ("study", "methods", "tasks", "trials", "wall clock", "GPU", "state"):
        justify: Literal["left", "right"] = "right" if column in ("trials", "wall clock", "GPU") else "left"
        table.add_column(column, justify=justify, overflow="fold", min_width=longest if column == "study" else None)
    statuses: list[Status] = []
    answers: list[object] = []
    broken: list[str] = []
    for folder in studies:
        try:
            progress = read_progress(folder)
        except ValueError as error:
            table.add_row(folder.name, "", "", "", "", "", "cannot be read")
            broken.append(f"{folder.name}: {error}")
            answers.append({"study": folder.name, "error": str(error)})
            continue
        status, request = collect_status(progress, folder), progress.plan.request
        trials = f"{sum(status.trials.values())} of {status.total}"
        names = ", ".join(request.methods), ", ".join(request.tasks)
        table.add_row(folder.name, *names, trials, *_time_spent(status.ledger), _describe_state(status))
        statuses.append(status)
        answers.append(to_plain(status))
    if len(studies) > 1:
        spent = [entry for status in statuses for entry in status.ledger]
        table.add_row("together", "", "", "", *_time_spent(spent), "includes failed and stopped trials")
    if as_json:
        print(json.dumps(answers, indent=1))
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST).print(table, crop=False)
        print("".join(f"{line}\n" for line in broken), end="")
    return 0 if not broken and all(status.complete for status in statuses) else 1


def _time_spent(entries: Sequence[Spent]) -> tuple[str, str]:
    """Format the total wall-clock time and the total GPU time of the entries."""
    return clock(sum(entry.wall_seconds for entry in entries)), clock(sum(entry.gpu_seconds for entry in entries))


def _describe_state(status: Status) -> str:
    words = [f"run by {status.launch}"] if status.launch else []
    words += [f"{len(status.failed)} failed"] if status.failed else []
    words += [f"{counted(len(status.missing), 'cell')} missing"] if status.missing else []
    words += [f"{counted(len(status.closed), 'arm')} closed by --max-gpu-hours"] if status.closed else []
    return ", ".join(words) or "complete"


def collect_status(progress: StudyProgress, folder: Path) -> Status:
    """Collect the status of the study in `folder`."""
    facts, holder = progress.facts, find_lock_holder(folder)
    steps = read_steps(folder) if holder else {}  # if no launch holds the lock, a killed launch left the file
    failed = [f"{name_trial(record)}: {record.error}" for record in progress.failures]
    failed += [
        f"{event.arm}: the smoke step before the first trial failed: {event.failure.error}"
        for event in facts.smoke_failed.values()
    ]
    return Status(
        study=folder.resolve().name,
        protocol_hash=progress.plan.protocol_hash,
        launch=holder,
        trials=dict(Counter(trial.record.status for trial in facts.trials.values() if trial.record)),
        total=progress.total_trials,
        under_way=[_describe_unfinished(trial, steps, is_run=bool(holder)) for trial in facts.under_way.values()],
        waiting=[describe_retries(trial) for trial in facts.under_way.values() if trial.is_broken_off],
        left_out=[describe_notice(event) for event in facts.left_out.values() if holder],
        failed=failed,
        missing=[f"{name}: {reason}" for name, reason in progress.missing.items()],
        closed=describe_closed(progress),
        ledger=compute_ledger(facts.records),
        code=describe_code_by_launch(facts),
        remaining_seconds=remaining_seconds(progress, steps),
        complete=not (progress.missing or failed),
    )


def _describe_unfinished(trial: TrialFacts, steps: Mapping[str, Steps], *, is_run: bool) -> str:
    """Describe the progress of an unfinished trial. `is_run` is true while a launch is running."""
    saved = f", saved at epoch {trial.epochs}" if trial.epochs else ", nothing saved yet"
    epoch = f" at epoch {trial.epochs}" if is_run else saved
    return f"{name_trial(trial.started)}{epoch}{describe_step(trial, steps, ', {}')}"


def _print(progress: StudyProgress, status: Status, folder: str) -> None:
    console = Console(highlight=False)
    counts = ", ".join(f"{number} {word}" for word, number in status.trials.items()) or "no trial has ended"
    total = f"{counts}; {counted(status.total, 'trial')} in total"
    lines = [f"study {status.study} ({status.protocol_hash}): {total}", _describe_launch(progress.facts, status.launch)]
    print_lines(lines, sys.stdout)
    title = "under way" if status.launch else "unfinished"
    console.print(arms_table(progress.arms, width=console.width, under_way=title))
    if precision := progress.plan.protocol.search_precision:
        line = f"trials of the search run in {precision}, and confirm trials run in the configured precision"
        print_lines([line], sys.stdout)
    if rule := progress.plan.protocol.select_by:
        print_lines([describe_select_by(rule)], sys.stdout)
    if status.ledger:
        console.print(_build_ledger_table(status.ledger, width=console.width))
    parts = {title: status.under_way, "interrupted": status.waiting, "left out": status.left_out}
    parts |= {"failed": status.failed, "missing": describe_missing(progress)}
    lines = [f"{name}: {line}" for name, part in parts.items() for line in part]
    lines += status.closed
    lines += [f"{arm}: {reason}" for arm, reason in blocked_exits(progress).items()]
    lines += [f"trained by {line}" for line in status.code] if len(status.code) > 1 else []
    print_lines(lines, sys.stdout)
    if status.failed or status.waiting:
        print(f"tracebacks: {failures_command(folder)}")
    if not progress.is_finished and status.remaining_seconds is not None:
        print(f"time left: about {clock(status.remaining_seconds)} if trials run one at a time")
    if status.complete:
        print(f"table: {python()} -m analysis.tables {shlex.quote(folder)}")
    elif not (status.launch or progress.is_finished) and progress.facts.last_launch:
        print(f"continue: {format_continuation(progress, folder)}")


def _describe_launch(facts: StudyFacts, holder: str | None) -> str:
    """Describe the launch that is running the study. If no launch is running, describe how the last launch ended."""
    ended = facts.last_launch.ended if facts.last_launch else None
    noted = f"; the last launch ended with status {ended.status}: {ended.note}" if ended and ended.note else ""
    return f"run by {holder}" if holder else f"no launch is running{noted}"


def _group_attempts(attempts: Iterable[FailedAttempt]) -> list[list[FailedAttempt]]:
    """Group failed attempts by arm, error and outcome.

    Errors that the method did not cause are also grouped by host.
    """
    groups: dict[tuple[object, ...], list[FailedAttempt]] = {}
    for attempt in attempts:
        failure = attempt.failure
        host = None if failure.cause == "method" else failure.host
        fault = attempt.arm, attempt.key is None, attempt.became, failure.cause, failure.error, host
        groups.setdefault(fault, []).append(attempt)
    return list(groups.values())


def _print_failures(folder: Path, attempts: Sequence[FailedAttempt], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"study": folder.resolve().name, "failures": to_plain(attempts)}, indent=1))
        return
    for group in _group_attempts(attempts):
        print("\n".join(describe_attempts(group)), end="\n\n")
    print(counted(len(attempts), "failed attempt") if attempts else "no failed attempts")


def _build_ledger_table(entries: Sequence[Spent], *, width: int) -> Table:
    """Build a table with a row for each phase of each arm: numbers of trials, epochs and examples, and the time."""
    columns = ("arm and phase", "trials", "epochs", "examples", "wall clock", "GPU")
    rows = []
    for entry in entries:
        counts = (str(sum(entry.trials.values())), str(entry.epochs), f"{entry.train_examples:,}")
        rows.append((f"{entry.arm} {entry.phase}", *counts, *_time_spent([entry])))
    return build_table(columns, rows, width=width, dispensable=("examples",))


main = Command(
    "study.status",
    Options,
    __doc__ or "",
    run,
    epilog="Exit status: 0 if the study, or every study in the folder, is complete; 1 if trials failed or results are "
    "missing, for instance because the study is still running; 2 if the folder holds no study.",
)

if __name__ == "__main__":
    sys.exit(main())
