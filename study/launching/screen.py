"""Format lines about trials, failures and notices, and the table of arms. An arm is one method on one task."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.table import Table

from study.decisions.progress import ArmProgress, StudyProgress
from study.drivers.messages import Steps
from study.facts.events import NodeLeftOut, NodeTakenBack, StudyPaused, TrialReopened, TrialRestarted, TrialStarted
from study.facts.record import Record
from study.facts.study_facts import FailedAttempt, Notice, TrialFacts
from study.facts.study_folder import WORKERS_LOG
from study.terminal.text import CellInWords, clock, counted, describe_shortfalls, list_first, points, python, to_second
from trainables.data.tasks import TASKS
from trainables.runs.trial import blocked_exit

_NUMBERS = 20  # maximum number of trials to list for one error
_BETWEEN = 2  # blanks between columns
_OF_SEARCHES = ("search", "stopped", "best search")  # columns of the table of arms


# ---- trials, failures and notices in lines


def name_trial(trial: TrialStarted | Record) -> str:
    """Return the name of a trial that has started or ended, such as `palbert/rte search 3`."""
    return f"{trial.arm} {trial.phase} {trial.trial}"


def describe_step(trial: TrialFacts, steps: Mapping[str, Steps], form: str) -> str:
    """Insert the step of a running trial into `form`: `({})` becomes `(step 3/40)`.

    If the step is unknown, return an empty string.
    """
    step = steps.get(trial.key)
    return form.format(f"step {step.done}/{step.of}") if step else ""


def describe_record(record: Record) -> str:
    """Describe an ended trial in one line: its name, score, epochs and mean layers, or why it failed or was dropped."""
    if record.status == "failed":
        return f"{name_trial(record)} failed: {record.error}"
    if record.status == "dropped":
        return f"{name_trial(record)} is dropped: {record.error}"
    stopped = record.status == "stopped"
    verb = f"stopped at epoch {record.epochs}" if stopped else counted(record.epochs, "epoch")
    score = points(record.selection_score if record.score is None else record.score)
    return f"{name_trial(record)}: {score} ({verb}, {record.mean_layers:.1f} layers)"


def blocked_exits(progress: StudyProgress) -> dict[str, str]:
    """Return the reason for each arm that has no early exits in its latest trial."""
    seen = {record.arm: (record.metrics or {}, record.config) for record in progress.facts.records}
    seen |= {
        trial.started.arm: (trial.last.row.metrics, trial.config) for trial in progress.under_way.values() if trial.last
    }
    return {arm: reason for arm, (metrics, config) in seen.items() if (reason := blocked_exit(metrics, config))}


def describe_closed(progress: StudyProgress) -> list[str]:
    """Describe each arm that the limit on GPU time keeps from starting trials, in one line."""
    return [
        f"{arm} is closed by --max-gpu-hours {limit:g}; a higher limit continues it"
        for arm, limit in progress.closed.items()
    ]


def describe_missing(progress: StudyProgress) -> list[str]:
    """Describe what each incomplete arm lacks. Arms of a method share one line if they lack the same trials."""
    missing = progress.missing
    return describe_shortfalls(
        [
            CellInWords(
                row=arm.name.replace(f"/{arm.planned.task}", "", 1),  # each repeat of a search has its own row
                column=TASKS[arm.planned.task].title,
                name=arm.name,
                shortfall=missing.get(arm.name, ""),
            )
            for arm in progress.arms
        ]
    )


def describe_attempts(attempts: Sequence[FailedAttempt]) -> list[str]:
    """Describe failed attempts that have one error in common: the first with its traceback, the others by name."""
    attempt, *others = attempts
    failure = attempt.failure
    node = f" (node {failure.node[:8]})" if failure.node else ""
    place = f"{failure.host or 'an unknown host'}{node}"
    number = f", attempt {attempt.attempt}" if attempt.key else ""
    traceback = failure.traceback or f"the process was lost without a traceback; its output is in {WORKERS_LOG}"
    return [
        f"{attempt.arm} {attempt.trial}{number}, {attempt.became}: {failure.error}",
        *([f"  and {len(others)} more with this error: {_list_trials(others)}"] if others else []),
        f"  {to_second(attempt.time)} in launch {attempt.launch}, on {place}; "
        f"cause: {failure.cause}{f'; key {attempt.key}' if attempt.key else ''}",
        f"  configuration: {json.dumps(dict(attempt.config), sort_keys=True)}",
        *(f"  {line}" for line in traceback.rstrip().splitlines()),
    ]


def _list_trials(attempts: Sequence[FailedAttempt]) -> str:
    """List the trials by phase: `search 1, 2; confirm 0`. At most `_NUMBERS` trials of a phase are listed."""
    numbers: dict[str, dict[str, None]] = {}
    for attempt in attempts:
        phase, _, number = attempt.trial.rpartition(" ")
        numbers.setdefault(phase, {})[number] = None
    return "; ".join(f"{phase} {list_first([*listed], _NUMBERS)}" for phase, listed in numbers.items())


def failures_command(folder: Path | str) -> str:
    """Format the command that shows the tracebacks of a study's failures."""
    return f"{python()} -m study.status {shlex.quote(str(folder))} --failures"


def format_continuation(progress: StudyProgress, folder: Path | str, *options: str) -> str:
    """Format the command that continues a study, within the progress's limit on GPU time, with more `options`."""
    limit = [] if progress.max_gpu_hours is None else [f"--max-gpu-hours {progress.max_gpu_hours:g}"]
    return " ".join([python(), "-m study.launch --continue", shlex.quote(str(folder)), *options, *limit])


def describe_retries(trial: TrialFacts) -> str:
    """Describe in one line how often machine faults interrupted a trial, and what the last error was."""
    last = trial.retries[-1].failure
    place = f" on {last.host}" if last.host else ""
    times = counted(len(trial.retries), "time")
    return f"{name_trial(trial.started)} was interrupted {times}; the last error{place}: {last.error}"


def describe_notice(event: Notice) -> str:
    """Describe a pause, a restarted trial or an excluded node in one line."""
    match event:
        case NodeLeftOut():
            reason = f"{counted(event.trials, 'trial')} failed there: {event.error}"
            return f"node {event.host} ({event.node[:8]}) gets no trials for {clock(event.seconds)}; {reason}"
        case NodeTakenBack():
            return f"node {event.host} ({event.node[:8]}) gets trials again"
        case StudyPaused():
            return f"the study pauses for {clock(event.seconds)}, because trials fail on every node: {event.error}"
        case TrialRestarted():
            return f"trial {event.key} starts again: {event.reason}"
        case TrialReopened():
            return f"trial {event.key} failed earlier and now runs again, because {REASONS[event.reason]}"


REASONS = {"asked": "--retry-failed was given", "code": "the code has changed", "versions": "packages have changed"}


# ---- the table of arms


def arms_table(arms: Sequence[ArmProgress], *, width: int, under_way: str = "under way") -> Table:
    """Build a table of arms. Columns that do not fit are dropped, but the names of arms are never shortened.

    If no arm has a search, the columns of searches are dropped too.

    Args:
        width: width of the terminal in characters.
        under_way: heading of the column that counts unfinished trials.
    """
    columns = ["arm", "search", "stopped", "failed", under_way, "best search", "confirm", "median"]
    rows = [dict(zip(columns, (arm.name, *_format_cells(arm)), strict=True)) for arm in arms]
    if not any(map(_has_search, arms)):
        columns = [name for name in columns if name not in _OF_SEARCHES]
    dispensable = ("stopped", under_way, "best search", "failed", "median")
    cells = [[row[name] for name in columns] for row in rows]
    return build_table(columns, cells, width=width, dispensable=dispensable)


def _has_search(arm: ArmProgress) -> bool:
    return bool(arm.planned.samples or arm.facts.search)


def build_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, dispensable: Sequence[str]
) -> Table:
    """Build a table without borders. The first column is left-aligned, and all others are right-aligned.

    Args:
        width: width of the terminal in characters.
        dispensable: headings of the columns that may be dropped to fit the width, in the order of dropping.
    """
    widths = {name: max(map(cell_len, (name, *cells))) for name, *cells in zip(columns, *rows, strict=True)}
    for name in dispensable:
        if sum(widths.values()) + _BETWEEN * (len(widths) - 1) > width:
            widths.pop(name, None)
    table = Table(box=None, pad_edge=False)
    for name in widths:
        table.add_column(name, justify="left" if name == columns[0] else "right", no_wrap=True, min_width=widths[name])
    for row in rows:
        table.add_row(*(cell for name, cell in zip(columns, row, strict=True) if name in widths))
    return table


def _format_cells(arm: ArmProgress) -> list[str]:
    searched = [trial.record for trial in arm.facts.search if trial.record]
    valid = [trial for trial in arm.facts.search if not (trial.record and trial.record.status in ("failed", "dropped"))]
    best_score = max((trial.best.row.selection_score for trial in valid if trial.best), default=None)
    return [
        f"{len(searched)}/{arm.planned.samples}" if _has_search(arm) else "",
        _count(sum(1 for record in searched if record.status == "stopped")),
        _count(sum(1 for trial in arm.facts.trials if trial.record and trial.record.status == "failed")),
        _count(len(arm.facts.under_way)),
        points(best_score),
        f"{len(arm.confirmed)}/{len(arm.planned.seeds)}",
        points(arm.median),
    ]


def _count(number: int) -> str:
    return str(number or "")
