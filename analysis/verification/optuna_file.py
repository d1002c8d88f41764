"""`optuna.journal` against the records: every ended search trial, by its number, one Optuna study per arm.

Read without Optuna: its `JournalFileBackend` writes one operation per line, of which a study's launches need two.
"""

from __future__ import annotations

import json
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from analysis.verification.differences import differences
from study.facts.record import Record
from study.facts.study_facts import StudyFacts, TrialFacts
from study.plans.plan_file import PlanFile
from study.plans.resolved_plan import Arm
from trainables.schema import to_plain

FILE = "optuna.journal"
_NEW_STUDY, _NEW_TRIAL = 0, 4  # optuna.storages.journal._storage.JournalOperation
_MAXIMIZE = 2  # optuna.study.StudyDirection
_STATES = {"completed": 1, "stopped": 2, "failed": 3}  # optuna.trial.TrialState: COMPLETE, PRUNED, FAIL


def optuna_drift(folder: Path, file: PlanFile, facts: StudyFacts) -> list[str]:
    """Where the file is not what the facts give; nothing where there is none."""
    if not (folder / FILE).exists():
        return []
    lines, drift = _read(folder / FILE)
    studies: list[str] = []
    left = {arm.name: _search_records(facts, arm) for arm in file.plan.arms}
    for number, found in lines.items():
        where = f"{FILE}:{number}"
        try:
            if found["op_code"] == _NEW_STUDY:
                name = found.get("study_name")
                studies += [name] * (name not in studies)  # every launch asks for it again
                expected = {"study_name": name if name in left else list(left), "directions": [_MAXIMIZE]}
                drift += differences(where, _without(found, "op_code", "worker_id"), expected)
            else:
                drift += _trial_drift(where, found, file, facts, left[studies[found["study_id"]]])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            drift.append(f"{where} is no operation of this study: {error!r}")
    due = [(name, record) for name, records in left.items() for record in _due(facts, records)]
    return drift + [f"{FILE} lacks the search trial {record.key} of {name}" for name, record in due]


def _read(path: Path) -> tuple[dict[int, Any], list[str]]:
    lines, broken = {}, []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            lines[number] = json.loads(line)
        except ValueError as error:
            broken.append(f"{FILE}:{number}: not a JSON object: {error}")
    return lines, broken


def _search_records(facts: StudyFacts, arm: Arm) -> list[list[Record]]:
    """The records of each search trial, by its number, up to the first that has none; several where it was reopened."""
    own = facts.arm(arm.name)
    records = [[record for record in own.records if record.key == trial.key] for trial in own.search]
    return list(takewhile(bool, records))


def _meant(found: Any, records: list[Record]) -> Record:
    """Of a trial that was reopened a launch that was killed may have left an earlier record; the last one else."""
    ended = {datetime.fromisoformat(record.ended).astimezone(): record for record in records}
    return ended.get(datetime.fromisoformat(found["datetime_complete"]).astimezone(), records[-1])


def _due(facts: StudyFacts, left: list[list[Record]]) -> list[Record]:
    """Those of the records that a launch which was not killed would have added."""
    last = facts.last_launch
    return [records[-1] for records in left if last and last.ended and records[-1].ended <= last.ended.time]


def _trial_drift(where: str, found: Any, file: PlanFile, facts: StudyFacts, left: list[list[Record]]) -> list[str]:
    """Takes the next of the trials away, and compares the line with it."""
    if not left:
        return [f"{where} is of no ended search trial"]
    record = _meant(found, left.pop(0))
    arm = file.plan.arm(record.arm)
    plain = _without(found, "worker_id", "study_id")
    for name in ("datetime_start", "datetime_complete"):
        plain[name] = datetime.fromisoformat(plain[name]).astimezone().isoformat()
    plain["distributions"] = {name: json.loads(text) for name, text in plain["distributions"].items()}
    plain["params"] = {name: _value(arm, name, value) for name, value in plain["params"].items()}
    return differences(where, plain, _expected(arm, facts.trials[record.key], record))


def _expected(arm: Arm, trial: TrialFacts, record: Record) -> dict[str, Any]:
    scores = {} if record.status == "failed" else trial.scores
    return {
        "op_code": _NEW_TRIAL,
        "state": _STATES[record.status],
        "value": record.selection_score if record.status == "completed" else None,
        "values": None,
        "datetime_start": datetime.fromisoformat(record.started).astimezone().isoformat(),
        "datetime_complete": datetime.fromisoformat(record.ended).astimezone().isoformat(),
        "distributions": {name: to_plain(allowed) for name, allowed in arm.space.items()},
        "params": {name: record.config[name] for name in arm.space},
        "user_attrs": {"key": record.key, "trial": record.trial, "seed": record.seed, "status": record.status},
        "system_attrs": {},
        "intermediate_values": {str(step): score for step, score in scores.items()},
    }


def _value(arm: Arm, name: str, value: Any) -> Any:
    """A parameter as configurations have it: Optuna writes the number of a choice."""
    choices = arm.space[name].attributes.get("choices")
    return choices[int(value)] if isinstance(choices, list) else value


def _without(found: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}
