"""Study folders in, records out. Everything that analysis knows of a study on disk is read here."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.record import Record, read_events, read_json_lines, read_records
from trainables.data.tasks import TASKS

if TYPE_CHECKING:
    import pandas

RUNS = Path(__file__).parents[1] / "runs"


@dataclass(frozen=True)
class Study:
    """A study folder: its plan, and the record of every finished trial in the order of the file."""

    folder: Path
    plan: dict[str, Any]
    records: list[Record]

    @property
    def name(self) -> str:
        return self.plan.get("name") or self.folder.resolve().name

    @property
    def methods(self) -> list[str]:
        return self.plan["methods"]

    @property
    def tasks(self) -> list[str]:
        return self.plan["tasks"]

    @property
    def seeds(self) -> list[int]:
        """The confirm seeds that the protocol asks for."""
        return self.plan["seeds"]

    @property
    def protocol(self) -> dict[str, Any]:
        return self.plan["protocol"]

    @property
    def protocol_hash(self) -> str:
        return self.plan["protocol_hash"]

    @property
    def records_digest(self) -> str:
        """SHA-256 of the records file: tables that carry another one are not made from these records."""
        path = self.folder / "records.jsonl"
        return hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest()

    @cached_property
    def by_arm(self) -> dict[tuple[str, str], list[Record]]:
        """The records of every arm, (method, task)."""
        arms: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            arms.setdefault((record.method, record.task), []).append(record)
        return arms

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per record with the file's fields, those outside the contract too; `config` and `metrics` are
        spread into columns `config.FIELD` and `metrics.NAME`."""
        import pandas  # takes half a second to import, and no table needs it

        rows = [row for _, row in read_json_lines(self.folder / "records.jsonl")]
        return pandas.json_normalize(rows, max_level=1)

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The journal's events in order; empty where there is no journal."""
        return read_events(self.folder)

    def backbone(self, method: str, task: str) -> str:
        """The backbone that the arm starts from, as the plan names it; "" where the plan does not say."""
        arm = self.plan.get("arms", {}).get(f"{method}/{task}", {})
        return arm.get("backbone") or self.plan.get("backbone") or ""


def load_study(folder: Path | str) -> Study:
    """The study in `folder`.

    ValueError: it is no study folder; a line of its records is broken (file and line are named); a record belongs to
    another protocol than the plan's, or is there twice.
    """
    folder = Path(folder)
    plan = _read_plan(folder / "plan.json")
    records = _without_retried(folder / "records.jsonl", read_records(folder / "records.jsonl"))
    for record in records:
        if record.protocol_hash != plan["protocol_hash"]:
            raise ValueError(
                f"{folder}: record {record.key!r} has protocol {record.protocol_hash}, plan.json has "
                f"{plan['protocol_hash']}; records of two protocols are never mixed"
            )
    study = Study(folder=folder, plan=plan, records=records)
    strangers = study.by_arm.keys() - {(method, task) for method in study.methods for task in study.tasks}
    if strangers:
        names = ", ".join(sorted("/".join(arm) for arm in strangers))
        warnings.warn(f"{folder}: records of arms that the plan does not have are left out: {names}", stacklevel=2)
    return study


def load_studies(folders: list[Path], *, apart_from: tuple[str, ...] = ()) -> list[Study]:
    """The studies in `folders`. ValueError, with both hashes, if their protocols differ but in `apart_from`."""
    names = Counter(folder.resolve().name for folder in folders)
    if twice := [name for name, number in names.items() if number > 1]:
        raise ValueError(
            f"several studies are named {', '.join(twice)}; allowed: each once, in folders of unlike names"
        )
    studies = [load_study(folder) for folder in folders]
    for other in studies[1:]:
        _check_same_protocol(studies[0], other, apart_from)
    return studies


def _check_same_protocol(first: Study, other: Study, apart_from: tuple[str, ...]) -> None:
    fields = sorted(first.protocol.keys() | other.protocol.keys())
    differing = [name for name in fields if first.protocol.get(name) != other.protocol.get(name)]
    allowed = bool(differing) and set(differing) <= set(apart_from)
    if first.protocol_hash == other.protocol_hash or allowed:
        return
    details = "; ".join(f"{name}: {first.protocol.get(name)} against {other.protocol.get(name)}" for name in differing)
    raise ValueError(
        f"two protocols never share a table: {first.folder} has {first.protocol_hash}, {other.folder} has "
        f"{other.protocol_hash} ({details or 'the same fields'})"
    )


def newest_study(root: Path | str = RUNS) -> Path:
    """The study folder under `root` whose plan was written last. ValueError where there is none."""
    plans = sorted(Path(root).glob("*/plan.json"), key=lambda path: path.stat().st_mtime)
    if not plans:
        raise ValueError(f"no study under {root}: no folder there holds a plan.json")
    return plans[-1].parent


def _read_plan(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ValueError(f"{path.parent} is no study folder: it has no plan.json")
    try:
        plan = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    wanted = ("methods", "tasks", "seeds", "protocol", "protocol_hash")
    missing = [name for name in wanted if not isinstance(plan, dict) or name not in plan]
    if missing:
        raise ValueError(f"{path} lacks the field(s) {', '.join(missing)}")
    for task in plan["tasks"]:
        if task not in TASKS:
            raise ValueError(f"{path}: no task named {task!r}; available: {', '.join(TASKS)}")
    return plan


def _without_retried(path: Path, records: list[Record]) -> list[Record]:
    """The last record of every key: a failed trial may have been run again. Any other repetition is a ValueError."""
    lines: dict[str, int] = {}
    kept: dict[str, Record] = {}
    for number, record in enumerate(records, start=1):
        earlier = kept.pop(record.key, None)
        if earlier is not None and earlier.status != "failed":
            raise ValueError(f"{path}:{number}: the record {record.key!r} was already on line {lines[record.key]}")
        kept[record.key], lines[record.key] = record, number
    return list(kept.values())
