"""Functions that format scores, trials, failures and notices for the output of all commands."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from study.decisions.progress import StudyProgress
from study.drivers.messages import Steps
from study.facts.events import NodeLeftOut, NodeTakenBack, SmokeStepFailed, StudyPaused, TrialReopened, TrialRestarted
from study.facts.plain_words import CellInWords, clock, counted, list_first, shortfalls, to_second
from study.facts.record import Record
from study.facts.study_facts import FailedAttempt, Notice, TrialFacts
from study.facts.study_folder import WORKERS_LOG
from trainables.data.tasks import TASKS
from trainables.runs.trial import blocked_exit

_NUMBERS = 20  # trials listed for one error


def points(score: float | None) -> str:
    """Format a score in [-1, 1] as points: `72.5` for 0.725, "" for None."""
    return "" if score is None else f"{100 * score:.1f}"


def trial_name(trial: TrialFacts) -> str:
    """Name a trial: `palbert/rte search 3`."""
    started = trial.started
    return f"{started.arm} {started.phase} {started.trial}"


def describe_step(trial: TrialFacts, steps: Mapping[str, Steps], form: str) -> str:
    """Insert the step of a running trial into `form`: `({})` becomes `(step 3/40)`; "" if the step is unknown."""
    step = steps.get(trial.key)
    return form.format(f"step {step.done}/{step.of}") if step else ""


def describe_record(record: Record) -> str:
    """Describe an ended trial in one line: name, score, epochs and mean layers, or the error."""
    if record.status == "failed":
        return f"{_record_name(record)} failed: {record.error}"
    if record.status == "dropped":
        return f"{_record_name(record)} is dropped: {record.error}"
    stopped = record.status == "stopped"
    verb = f"stopped at epoch {record.epochs}" if stopped else counted(record.epochs, "epoch")
    score = points(record.selection_score if record.score is None else record.score)
    return f"{_record_name(record)}: {score} ({verb}, {record.mean_layers:.1f} layers)"


def blocked_exits(progress: StudyProgress) -> dict[str, str]:
    """Find the arms whose latest trial lets no example exit early; return the reason for each arm."""
    seen = {record.arm: (record.metrics or {}, record.config) for record in progress.facts.records}
    seen |= {
        trial.started.arm: (trial.last.row.metrics, trial.config) for trial in progress.under_way.values() if trial.last
    }
    return {arm: reason for arm, (metrics, config) in seen.items() if (reason := blocked_exit(metrics, config))}


def describe_missing(progress: StudyProgress) -> list[str]:
    """Describe what each incomplete arm lacks; arms of one method that lack the same share a line."""
    missing = progress.missing
    return shortfalls(
        [
            CellInWords(
                row=arm.arm.name.replace(f"/{arm.arm.task}", "", 1),  # each repeat of a search has its own row
                column=TASKS[arm.arm.task].title,
                name=arm.arm.name,
                shortfall=missing.get(arm.arm.name, ""),
            )
            for arm in progress.arms
        ]
    )


def missing_cells(progress: StudyProgress) -> list[str]:
    """Describe what each incomplete arm lacks, one string for each arm: `palbert/rte: search 3 of 12`."""
    return [f"{name}: {reason}" for name, reason in progress.missing.items()]


def describe_failure(record: Record) -> str:
    """Format a failed trial and its error in one line."""
    return f"{_record_name(record)}: {record.error}"


def describe_smoke_failure(event: SmokeStepFailed) -> str:
    """Format in one line the error of an arm's smoke step, the single training step before its first trial."""
    return f"{event.arm}: the smoke step before the first trial failed: {event.failure.error}"


def describe_attempts(alike: Sequence[FailedAttempt]) -> list[str]:
    """Describe failed attempts with the same error: the first with its traceback, the other attempts by name."""
    attempt = alike[0]
    failure = attempt.failure
    node = f" (node {failure.node[:8]})" if failure.node else ""
    place = f"{failure.host or 'an unknown host'}{node}"
    which = f", attempt {attempt.attempt}" if attempt.key else ""
    return [
        f"{attempt.arm} {attempt.trial}{which}, {attempt.became}: {failure.error}",
        *([f"  and {len(alike) - 1} more with this error: {_list_trials(alike[1:])}"] if len(alike) > 1 else []),
        f"  {to_second(attempt.time)} in launch {attempt.launch}, on {place}; "
        f"cause: {failure.cause}{f'; key {attempt.key}' if attempt.key else ''}",
        f"  configuration: {json.dumps(dict(attempt.config), sort_keys=True)}",
        *(
            f"  {line}"
            for line in (failure.traceback or f"no traceback: the process was lost; its output is in {WORKERS_LOG}")
            .rstrip()
            .splitlines()
        ),
    ]


def _list_trials(attempts: Sequence[FailedAttempt]) -> str:
    """List trials by phase, up to a limit in each: `search 1, 2; confirm 0`."""
    numbers: dict[str, dict[str, None]] = {}
    for attempt in attempts:
        phase, _, number = attempt.trial.rpartition(" ")
        numbers.setdefault(phase, {})[number] = None
    return "; ".join(f"{phase} {list_first([*listed], _NUMBERS)}" for phase, listed in numbers.items())


def failures_command(folder: Path | str) -> str:
    """Format the command that shows the tracebacks of a study's failures."""
    return f"{python()} -m study.status {shlex.quote(str(folder))} --failures"


def python() -> str:
    """Return the path of the Python interpreter for printed commands, relative if it is inside the current folder."""
    here = os.path.relpath(sys.executable)
    return sys.executable if here.startswith("..") else here


def describe_retries(trial: TrialFacts) -> str:
    """Format in one line how often faults of the machine interrupted a trial, and the last error."""
    last = trial.retries[-1].failure
    where = f" on {last.host}" if last.host else ""
    return f"{trial_name(trial)}, {len(trial.retries)} times, last{where}: {last.error}"


def describe_notice(event: Notice) -> str:
    """Format in one line an event that a launch prints: a node left out or used again, a pause, a restarted trial."""
    match event:
        case NodeLeftOut():
            what = f"{counted(event.trials, 'trial')} failed there: {event.error}"
            return f"node {event.host} ({event.node[:8]}) gets no trials for {clock(event.seconds)}; {what}"
        case NodeTakenBack():
            return f"node {event.host} ({event.node[:8]}) gets trials again"
        case StudyPaused():
            return f"pausing for {clock(event.seconds)}: trials fail on every node: {event.error}"
        case TrialRestarted():
            return f"trial {event.key} starts again: {event.reason}"
        case TrialReopened():
            return f"trial {event.key}, which had failed, runs again: {_REASONS[event.reason]}"


_REASONS = {"asked": "--retry-failed", "code": "the code has changed", "versions": "package versions have changed"}


def _record_name(record: Record) -> str:
    return f"{record.arm} {record.phase} {record.trial}"
