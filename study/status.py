"""What of a study is done, running, stopped, failed and missing: `python -m study.status runs/NAME`."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from study.eta import remaining_seconds
from study.journal import lock_holder
from study.ledger import Spent, ledger
from study.plan import ResolvedPlan, load_plan_json, resolved_from_json
from study.record import read_events
from study.state import ArmState, StudyState
from study.view import arms_table, clock


def main(argv: list[str] | None = None) -> int:
    """0 if the study is complete, 1 if something is missing or failed, 2 if the folder is no study."""
    parser = argparse.ArgumentParser(prog="python -m study.status", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="runs/NAME")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    options = parser.parse_args(argv)
    try:
        state = load_state(options.folder)
    except ValueError as error:
        print(f"study.status: {error}", file=sys.stderr)
        return 2
    facts = describe_study(state, options.folder)
    if options.json:
        print(json.dumps(facts, indent=1))
    else:
        _print(state, facts)
    return 0 if facts["complete"] else 1


def load_state(folder: Path) -> StudyState:
    """The study as its journal has it now; nothing is written. ValueError: the folder is no study, or is broken."""
    on_disk = load_plan_json(folder)
    if on_disk is None:
        raise ValueError(f"no plan.json in {folder}; allowed: the folder of a study")
    return state_on_disk(folder, resolved_from_json(on_disk))


def state_on_disk(folder: Path, resolved: ResolvedPlan) -> StudyState:
    """The study with this plan after the events in its folder; nothing is written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a torn last line: the launch is writing it
        events = read_events(folder)
    launches = [event for event in events if event["event"] == "launch_began"]
    nothing: dict[str, Any] = {"versions": {}, "git_commit": None}
    return StudyState(
        folder.name,
        resolved,
        events=events,
        append=_read_only,
        provenance=nothing,
        max_gpu_hours=launches[-1].get("max_gpu_hours") if launches else None,
    )


def describe_study(state: StudyState, folder: Path) -> dict[str, Any]:
    missing = [f"{arm.arm.name}: {reason}" for arm in state.arms if (reason := missing_from(state, arm))]
    failed = [f"{r.method}/{r.task} {r.phase} {r.trial}: {r.error}" for r in state.ended if r.status == "failed"]
    return {
        "study": state.name,
        "protocol_hash": state.resolved.protocol_hash,
        "launch": lock_holder(folder),
        "trials": dict(Counter(record.status for record in state.ended)),
        "total": state.total_trials,
        "under_way": [_under_way(trial.start, trial.last) for trial in state.unfinished],
        "failed": failed,
        "missing": missing,
        "ledger": [spent.to_json() for spent in ledger(state.ended)],
        "remaining_seconds": remaining_seconds(state),
        "complete": not (missing or failed),
    }


def missing_from(state: StudyState, arm: ArmState) -> str:
    """What the arm's cell waits for; empty when it is complete."""
    if not arm.search_ended:
        ended = sum(1 for trial in arm.phase("search") if trial.record)
        return f"search {ended} of {arm.arm.samples}"
    if arm.winner is None:
        return "no search trial completed"
    done = sum(1 for trial in state.confirm_trials(arm) if trial.record and trial.record.status == "completed")
    return "" if done >= len(state.resolved.seeds) else f"confirm {done} of {len(state.resolved.seeds)}"


def _under_way(start: dict[str, Any], last: dict[str, Any] | None) -> str:
    epoch = last["epoch"] if last else 0
    return f"{start['method']}/{start['task']} {start['phase']} {start['trial']} at epoch {epoch}"


def _print(state: StudyState, facts: dict[str, Any]) -> None:
    console = Console(highlight=False)
    counts = ", ".join(f"{number} {status}" for status, number in facts["trials"].items()) or "none ended"
    console.print(
        f"study {facts['study']} ({facts['protocol_hash']}): {counts} of {facts['total']} trials", markup=False
    )
    console.print(f"run by {facts['launch']}" if facts["launch"] else "not being run", markup=False)
    console.print(arms_table(state))
    if state.ended:
        console.print(_ledger_table(ledger(state.ended)))
    for title in ("under_way", "failed", "missing"):
        for line in facts[title]:
            console.print(f"{title.replace('_', ' ')}: {line}", markup=False, soft_wrap=True)
    if not state.finished and facts["remaining_seconds"] is not None:
        console.print(f"left: about {clock(facts['remaining_seconds'])} of one slot")


def _ledger_table(entries: list[Spent]) -> Table:
    """What each arm and phase has cost so far."""
    table = Table(box=None, pad_edge=False)
    for column in ("spent on", "phase", "trials", "epochs", "examples", "wall clock", "GPU"):
        table.add_column(column, justify="left" if column in ("spent on", "phase") else "right")
    for spent in entries:
        counts = (str(sum(spent.trials.values())), str(spent.epochs), f"{spent.train_examples:,}")
        table.add_row(spent.arm, spent.phase, *counts, clock(spent.wall_seconds), clock(spent.gpu_seconds))
    return table


def _read_only(event: str, **values: Any) -> dict[str, Any]:
    raise AssertionError("status writes nothing")


if __name__ == "__main__":
    sys.exit(main())
