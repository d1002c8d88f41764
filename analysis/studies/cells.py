"""Make the cells and rows of a table from the records of one or several studies.

An arm is one method on one task. A cell joins an arm's records from all studies; each trial counts once. The studies
must have the same protocol (`load_studies`) and the same seeds. Each task must have the same data in all studies, and
each method the same backbone and settings. Generated and real data cannot be mixed.

With `separate`, each study has its own rows. Then only the protocol and the data must be the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from analysis.studies.load import Study
from study.facts.plan_file import compare_arms, list_changes
from study.facts.record import Record
from study.facts.winner import choose_winner
from study.plans.resolved_plan import Arm
from study.plans.settings import find_keys, format_setting
from trainables.configuration.schema import Configuration, to_plain
from trainables.data.repeated_texts import RepeatedTexts
from trainables.data.tasks import TASKS

State = Literal["complete", "missing", "fewer seeds", "other seeds"]
SAME_NUMBERS = ("status", "score", "selection_score", "metrics", "epoch", "epochs", "mean_layers")
SAME_METHOD = ("backbone_fingerprint", "tokenizer_fingerprint")  # must be equal over the tasks of a row


@dataclass(frozen=True)
class Cell:
    """A table's entry for a method on a task. It has the final runs of the best configuration, one per seed."""

    arm: Arm
    studies: tuple[Study, ...]  # studies that have this method on this task
    arm_records: tuple[Record, ...]  # all records of the method on the task, of both phases and any status
    records: tuple[Record, ...]  # completed final runs
    tested: tuple[Record, ...]  # those, and the final runs that were dropped when their scores were known
    failed: tuple[Record, ...]  # final runs of the same configuration that failed
    seeds_wanted: tuple[int, ...]  # seeds that the table's protocol asks for

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.arm.task

    @property
    def name(self) -> str:
        """Name of the arm: `palbert/rte`."""
        return self.arm.name

    @property
    def with_dropped(self) -> Cell:
        """The cell as means, intervals and tests see it: its final runs include those in `tested` that were dropped."""
        return replace(self, records=self.tested)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the completed final runs, ascending."""
        return [record.seed for record in self.records]

    @property
    def scores(self) -> list[float]:
        """Scores of the completed final runs, in [-1, 1]."""
        return [record.score for record in self.records if record.score is not None]  # completed trials have a score

    @property
    def config(self) -> Configuration | None:
        """The winning configuration, or None if no final run is completed."""
        return self.records[0].config if self.records else None

    @cached_property
    def median(self) -> float:
        """Median score over the seeds, or NaN if no final run is completed."""
        return float(np.median(self.scores)) if self.records else math.nan

    @property
    def state(self) -> State:
        """State of the cell: "complete", or how its seeds differ from `seeds_wanted`."""
        wanted, found = self.seeds_wanted, self.seeds
        if not found:
            return "missing"
        if sorted(found) == sorted(wanted):
            return "complete"
        return "fewer seeds" if len(found) < len(wanted) else "other seeds"

    @property
    def data_differences(self) -> tuple[str, ...]:
        """Differences between the data of the final runs and the official GLUE data, in words."""
        found = [line for record in self.records for line in record.data_differences or ()]
        return tuple(dict.fromkeys(found))

    @property
    def repeated_texts(self) -> RepeatedTexts | None:
        """Numbers of dev texts that occur in train, and of contradictory labels; None if no plan has them."""
        plans = [study.plan for study in self.studies]
        return next((counted for plan in plans if (counted := (plan.repeated_texts or {}).get(self.task))), None)

    @property
    def paid(self) -> list[Record]:
        """All records of the arm, including those of failed trials that later ran again.

        A record that several studies have, because one is a copy of another, counts once.
        """
        paid: list[Record] = []
        for study in self.studies:
            earlier = {_identify_run(record) for record in paid}
            own = (*study.records_by_arm.get(self.name, []), *(one for one in study.retried if one.arm == self.name))
            paid += [record for record in own if _identify_run(record) not in earlier]
        return paid

    def find_study(self, record: Record) -> Study:
        """Find the study with this run of the trial. In another study, the same trial may have failed."""
        holders = [(study, study.records_by_key.get(record.key)) for study in self.studies]
        run = (*_identify_run(record), record.status)
        return next(study for study, own in holders if own and (*_identify_run(own), own.status) == run)

    @property
    def dropped(self) -> list[Record]:
        """Records that the user excluded with `study.drop`."""
        return [record for record in self.arm_records if record.status == "dropped"]

    @property
    def tried(self) -> int:
        """Number of configurations that the search tried, in completed trials and in trials that ASHA stopped."""
        tried = ("completed", "stopped")
        return sum(record.phase == "search" and record.status in tried for record in self.arm_records)

    @property
    def former_scores(self) -> list[float]:
        """Scores of the confirm trials of earlier winners."""
        confirm = [record for record in self.arm_records if record.phase == "confirm" and record not in self.records]
        return [record.score for record in confirm if record.status == "completed" and record.score is not None]

    @property
    def unfinished(self) -> str:
        """Description of what is missing in the arm's search; empty if the search has ended."""
        return f"{self._search_left}; the number is of the best configuration so far" if self._search_left else ""

    @cached_property
    def _search_left(self) -> str:
        """Number of search trials of all studies that have ended; empty if these are as many as any study asks for.

        A search that ended early counts for all studies that ask for no more trials.
        """
        asked = {True: 0, False: 0}  # most search trials that a study asks for, by whether its search has ended
        ended = set[str]()  # keys
        for study in self.studies:
            if search := study.facts.arms[self.name].search:
                progress = study.progress.get(self.name)
                is_over = progress is None or progress.is_search_over
                asked[is_over] = max(asked[is_over], study.plan.arm(self.name).samples)
                ended |= {trial.key for trial in search if trial.ended}
        is_left = asked[False] > max(asked[True], len(ended))
        return f"{len(ended)} of {asked[False]} search trials ended" if is_left else ""

    @property
    def _missing(self) -> str:
        """Description of what the studies lack; a study that had fewer trials than another is left out."""
        found = [study.progress[self.name] for study in self.studies if self.name in study.progress]
        lacking = [progress for progress in found if progress.missing]
        late = [progress for progress in lacking if progress.facts.trials and progress.is_search_over]
        return " and ".join(dict.fromkeys(progress.missing for progress in late or lacking))

    @property
    def is_finished(self) -> bool:
        """Whether the search and the final runs of all seeds have ended, even if some failed or were dropped."""
        num_ended = len(self.tested) + len(self.failed)
        return self.state != "missing" and not self.unfinished and num_ended >= len(self.seeds_wanted)

    @property
    def shortfall(self) -> str:
        """Description of the cell's state: the seeds found and wanted, or the reason why the cell is empty."""
        failed = f"; failed seeds: {', '.join(str(record.seed) for record in self.failed)}" if self.failed else ""
        dropped = [str(record.seed) for record in self.dropped if record.phase == "confirm"]
        failed += f"; dropped seeds: {', '.join(dropped)}" if dropped else ""
        if self.state == "missing" and (known := self._search_left or self._missing):
            return f"missing: {known}{failed}"
        wanted, found = ", ".join(map(str, self.seeds_wanted)), ", ".join(map(str, self.seeds))
        if self.state == "complete":
            return f"complete: seeds {wanted}{failed}"
        has = f"seeds {found}" if found else "no seeds"
        return f"{self.state}: found {has}; the protocol asks for seeds {wanted}{failed}"


def _identify_run(record: Record) -> tuple[object, ...]:
    """Tell one run of a trial from the others, also from those in copies of the study."""
    return (record.key, record.host, record.started, record.ended)  # a trial that runs again keeps its start


@dataclass(frozen=True)
class Row:
    """One line of a table: the cells of a method, by task."""

    label: str
    method: str
    cells: dict[str, Cell]  # by task


def read_cell(study: Study, method: str, task: str) -> Cell:
    """Make the cell of a method on a task from one study. The cell has no score until a final run is completed."""
    arm = study.arm(method, task)
    return make_cell(arm, [study], study.records_by_arm.get(arm.name, []), seeds_wanted=arm.seeds)


def confirm_trials(arm: Arm, records: Sequence[Record]) -> list[Record]:
    """List the final runs of the arm's winning configuration, sorted by seed. Failed runs are included."""
    winner = choose_winner(arm, records)
    return winner.confirm_trials(records) if winner else []


def make_cell(arm: Arm, studies: list[Study], records: Iterable[Record], *, seeds_wanted: tuple[int, ...]) -> Cell:
    """Make the cell of an arm from the records of the arm."""
    records = tuple(records)
    confirm = confirm_trials(arm, records)
    return Cell(
        arm=arm,
        studies=tuple(studies),
        arm_records=records,
        records=tuple(record for record in confirm if record.status == "completed"),
        tested=tuple(record for record in confirm if record.status in ("completed", "dropped")),
        failed=tuple(record for record in confirm if record.status == "failed"),
        seeds_wanted=seeds_wanted,
    )


def make_rows(studies: Sequence[Study], *, separate: bool = False) -> list[Row]:
    """Make the rows of a table: one per method. If `separate`, make one per study and method.

    Raises:
        ValueError: if the studies cannot share a table; the message names two studies and what differs.
    """
    _check_data(studies)
    seeds = table_seeds(studies)
    if separate and len(studies) > 1:
        named = list(zip(name_studies(studies), studies, strict=True))
        return [_row([study], method, f"{method} ({name})", seeds) for name, study in named for method in study.methods]
    for other in studies[1:]:
        if studies[0].seeds != other.seeds:
            raise ValueError(
                f"{studies[0].folder} asks for --seeds {len(studies[0].seeds)}, {other.folder} for {len(other.seeds)}; "
                "allowed: the same --seeds (a larger --seeds extends a study), or --separate, which gives each study "
                "its own rows"
            )
    methods = dict.fromkeys(method for study in studies for method in study.methods)
    rows = {method: [study for study in studies if method in study.methods] for method in methods}
    return [_row(holders, method, method, seeds) for method, holders in rows.items()]


def table_seeds(studies: Sequence[Study]) -> tuple[int, ...]:
    """Return the seeds that the table asks for: the longest list of seeds in the studies' plans."""
    return max((study.seeds for study in studies), key=len)


def name_studies(studies: Sequence[Study]) -> list[str]:
    """Return a label for each study: its name, or its folder if another study has the same name."""
    number = Counter(study.name for study in studies)
    return [study.name if number[study.name] == 1 else str(study.folder) for study in studies]


def _row(studies: list[Study], method: str, label: str, seeds: tuple[int, ...]) -> Row:
    tasks = dict.fromkeys(task for study in studies for task in study.tasks)
    cells = {task: _cell([study for study in studies if task in study.tasks], method, task, seeds) for task in tasks}
    _check_one_method(label, cells)
    return Row(label, method, cells)


def _cell(studies: list[Study], method: str, task: str, seeds: tuple[int, ...]) -> Cell:
    arm = studies[0].arm(method, task)
    for other in studies[1:]:
        again = other.arm(method, task)
        _require_same(arm.name, studies[0], other, compare_arms(arm, again) + _differing(["seeds"], arm, again))
    has_own_seeds = arm.seeds != studies[0].seeds
    return make_cell(arm, studies, _joined(studies, arm.name), seeds_wanted=arm.seeds if has_own_seeds else seeds)


def find_repeats(cell: Cell) -> list[Cell]:
    """List the cell, and then the cells of its repeated searches."""
    planned = [arm for study in cell.studies for arm in study.plan.arms]
    others = {arm.name: arm for arm in planned if arm.repeat and (arm.method, arm.task) == (cell.arm.method, cell.task)}
    cells = [cell]
    for name, arm in sorted(others.items()):
        holders = [study for study in cell.studies if name in {own.name for own in study.plan.arms}]
        cells.append(make_cell(arm, holders, _joined(holders, name), seeds_wanted=arm.seeds))
    return cells


def _joined(studies: list[Study], arm: str) -> list[Record]:
    """Join the arm's records of all studies, and keep one record per trial.

    If the user dropped the trial in any study, the dropped record is kept. A failed record is kept only if the trial
    failed in all studies.
    """
    found: dict[str, tuple[Study, Record]] = {}
    for study in studies:
        for record in study.records_by_arm.get(arm, []):
            earlier = found.get(record.key)
            if earlier is None or earlier[1].status == "failed" or record.status == "dropped":
                found[record.key] = (study, record)
            elif record.status != "failed" and earlier[1].status != "dropped":
                differing = _differing(SAME_NUMBERS, earlier[1], record)
                _require_same(f"trial {record.key} of {record.arm}", earlier[0], study, differing)
    return [record for _, record in found.values()]


def _check_data(studies: Sequence[Study]) -> None:
    """Reject studies that have different data for a task, or that mix generated and real data."""
    for other in studies[1:]:
        if other.is_mini != studies[0].is_mini:
            raise ValueError(
                "a table cannot mix generated data and other data: "
                f"{_describe_data(studies[0])} and {_describe_data(other)}; "
                "allowed: only studies of --data mini, or only studies of other data"
            )
    first: dict[str, tuple[Study, str]] = {}
    for study in studies:
        for arm in study.plan.arms:
            holder, fingerprint = first.setdefault(arm.task, (study, arm.data_fingerprint))
            if fingerprint != arm.data_fingerprint:
                raise ValueError(
                    f"a column cannot mix two data sets: {TASKS[arm.task].title} has data fingerprint {fingerprint} "
                    f"in {_describe_data(holder)}, but {arm.data_fingerprint} in {_describe_data(study)}; "
                    "allowed: studies of the same data"
                )


def _describe_data(study: Study) -> str:
    """Return the study's folder, followed by its option `--data`."""
    return f"{study.folder} (--data {study.plan.data})"


def _check_one_method(label: str, cells: dict[str, Cell]) -> None:
    """Reject a row if its cells have different backbones, tokenizers or settings."""
    first = next(iter(cells.values()))
    for cell in cells.values():
        mine, theirs = (_collect_settings(one) for one in (first, cell))
        differing = _differing(SAME_METHOD, first.arm, cell.arm) + list_changes("settings", mine, theirs)
        _require_same(label, first.studies[0], cell.studies[0], differing)


def _collect_settings(cell: Cell) -> dict[str, object]:
    """Collect the configuration fields that the user set for the cell's method, except `epochs`."""
    settings = cell.studies[0].plan.request.settings
    keys = find_keys(settings, cell.arm.method)
    return {field: format_setting(settings[key]) for field, key in keys.items() if field != "epochs"}


def _differing(fields: Iterable[str], one: Arm | Record, other: Arm | Record) -> list[str]:
    mine, theirs = to_plain(one), to_plain(other)
    return [line for field in fields for line in list_changes(field, mine.get(field), theirs.get(field))]


def _require_same(what: str, first: Study, other: Study, differing: list[str]) -> None:
    if differing:
        raise ValueError(
            f"{what} is not the same in {first.folder} and {other.folder}: {'; '.join(differing)}; "
            "--separate gives each study its own rows"
        )
