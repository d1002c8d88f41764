"""The last lines of a launch: the result, the failures, and the commands to run next."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from study.decisions.scheduler import Scheduler
from study.decisions.winners import list_arms_with_winner
from study.facts.events import Execution
from study.facts.study_facts import StudyFacts
from study.facts.study_folder import ANSWER, BROWSE, DEV_TABLE, WORKERS_LOG, read_export
from study.launching.options import LaunchOptions, default_driver, list_execution_options
from study.launching.planned_study import MOST_ARMS, command_line
from study.launching.screen import (
    describe_closed,
    describe_retries,
    failures_command,
    format_continuation,
    name_trial,
)
from study.mlflow_mirror.tracking import unreachable_reason
from study.plans.plan import MOST_REPEATS
from study.plans.resolved_plan import ResolvedPlan
from study.terminal.text import counted, format_markdown, list_first, masked, print_lines, python


def describe_finished(scheduler: Scheduler, folder: Path) -> list[str]:
    """Describe a study without trials to run: its failed trials, and its arms trained before the code changed."""
    limit = max(scheduler.progress.closed.values(), default=None)
    within = "nothing is left to do" if limit is None else f"no trial is left to run within --max-gpu-hours {limit:g}"
    line = f"study {folder}: {within}"
    if failed := scheduler.progress.failures:
        arms = ", ".join(dict.fromkeys(record.arm for record in failed))
        line = (
            f"study {folder}: no trial is left to run, but {counted(len(failed), 'trial')} of {arms} failed; to run "
            "failed trials again, fix the code or add --retry-failed"
        )
    others = scheduler.find_arms_of_other_code()
    if not others:
        return [line]
    command = f"{python()} -m study.launch --continue {shlex.quote(str(folder))} --dry-run --toml > plan.toml"
    return [
        line,
        f"the code has changed since the training of {list_first(others, MOST_ARMS)}; the study keeps its numbers; to "
        f"train again in a new study: {command}, then study.launch --plan plan.toml --name NEW",
    ]


def browse(folder: Path, tracking_uri: str | None) -> list[str]:
    """Return the first line of `browse.txt`, which explains how to see the runs in MLflow.

    If the tracking server does not answer, return the command to copy the runs later.
    """
    uri = tracking_uri or ""
    if reason := unreachable_reason(uri):
        fault = f"MLflow lacks some runs, because {masked(uri)} does not answer ({reason})"
        return [fault, _format_copy(folder, uri)]
    path = folder / BROWSE
    return path.read_text().splitlines()[:1] if uri != "none" and path.exists() else []


def _describe_runs(facts: StudyFacts, folder: Path, options: LaunchOptions) -> list[str]:
    """Explain how to see the runs in MLflow, or how to copy them to another store than that of the last launch."""
    kept = facts.last_launch and facts.last_launch.began.execution
    asked = options.execution.tracking_uri
    if asked in (None, "none", kept and kept.tracking_uri):  # as after each launch that ran trials
        return browse(folder, options.tracking_uri)
    return [f"nothing was copied to {masked(asked)}, because no trial was left to run", _format_copy(folder, asked)]


def _format_copy(folder: Path, uri: str) -> str:
    """Format the command that copies the runs to an MLflow store."""
    command = f"{python()} -m study.mirror {shlex.quote(str(folder))} --tracking-uri {shlex.quote(masked(uri))}"
    return f"copy them:   {command}"


def conclude(scheduler: Scheduler, folder: Path, options: LaunchOptions) -> int:
    """Print the study's result, its failures and the commands to run next; return the exit status."""
    progress = scheduler.progress
    failed = [f"{name_trial(record)}: {record.error}" for record in progress.failures]
    missing = [f"{name}: {reason}" for name, reason in progress.missing.items()]
    status = 1 if failed or missing else 0
    if options.json:
        facts = {"study": folder.resolve().name, "folder": str(folder), "complete": not status}
        trials = {
            "trials": progress.ended_trials,
            "failed": failed,
            "missing": missing,
            "closed": describe_closed(progress),
        }
        print(json.dumps({**facts, **trials}, indent=1))
        return status
    if progress.facts.records:
        print(f"\n{format_markdown(read_export(folder, ANSWER), sys.stdout)}")
    print_lines(describe_closed(progress), sys.stdout)
    print_lines([f"failed: {line}" for line in failed], sys.stdout)
    if failed:
        print(f"tracebacks:  {failures_command(folder)}")
        print(f"output:      {folder / WORKERS_LOG}")
        print(f"fix the cause, then:  {_format_continuation(scheduler, folder, options, '--retry-failed')}")
    if not progress.is_done:
        if scheduler.has_given_up:
            under_way, faults = scheduler.facts.under_way.values(), scheduler.faults
            set_aside = [describe_retries(trial) for trial in under_way if faults.is_set_aside(trial.key)]
            print_lines([f"set aside: {line}" for line in set_aside], sys.stdout)
            print_lines(filter(None, [scheduler.faults.give_up_reason]), sys.stdout)
        word = "paused" if scheduler.has_given_up else "interrupted"
        print(f"the launch was {word}; to continue:  {python()} {command_line().removeprefix('python ')}")
    if (folder / DEV_TABLE).exists():
        print(f"table:       {folder / DEV_TABLE}")
    if (folder / "report.html").exists():
        print(f"report:      {folder / 'report.html'}")
    if list_arms_with_winner(progress):
        print(f"winners:     {python()} -m study.winners {shlex.quote(str(folder))}")
    print_lines(_describe_runs(progress.facts, folder, options), sys.stdout)
    for label, change in {} if status else extensions(progress.plan).items():
        print(f"{label + ':':12} {_format_continuation(scheduler, folder, options, change)}")
    return status


def extensions(plan: ResolvedPlan) -> dict[str, str]:
    """Return the options that extend a study. The keys of the result are labels for display.

    "more search" doubles the number of search trials, or the number of searches if the study repeats searches. "more
    seeds" adds five seeds.
    """
    request, options = plan.request, dict[str, str]()
    if 1 < request.search_repeats < MOST_REPEATS and len(request.methods) > 1 and any(arm.repeat for arm in plan.arms):
        options["more search"] = f"--compare methods:{min(MOST_REPEATS, 2 * request.search_repeats)}"
    elif request.samples is not None and any(arm.can_search_more for arm in plan.arms):
        options["more search"] = f"--samples {2 * request.samples}"
    if any(len(arm.seeds) == request.seeds for arm in plan.arms):
        options["more seeds"] = f"--seeds {request.seeds + 5}"
    return options


def _format_continuation(scheduler: Scheduler, folder: Path, options: LaunchOptions, change: str) -> str:
    """Format the command that continues the study as this launch ran it, with the option `change`."""
    last = scheduler.facts.last_launch
    kept = (last and last.began.execution) or Execution(driver=default_driver())
    flags = list_execution_options(options.execution, beside=kept)
    return format_continuation(scheduler.progress, folder, change, *flags)
