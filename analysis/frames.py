"""Load a study as pandas data frames, for notebooks and scripts. `docs/frames.md` describes every column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
from scipy import special

from analysis.layouts.evidence import Evidence, gather
from analysis.pictures.picture import Picture
from analysis.pictures.study_pictures import pictures
from analysis.statistics.times import Measurement
from analysis.studies.cells import confirm_trials
from analysis.studies.epochs import compute_epoch_means, list_loss_points, read_epochs
from analysis.studies.load import Study
from analysis.studies.stored_predictions import Predictions, read_predictions
from analysis.studies.texts import DevTexts, read_texts
from study.facts.events import EpochReported
from study.facts.record import Record
from trainables.configuration.schema import to_plain
from trainables.data.tasks import TASKS
from trainables.runs.trial import EpochRow

Rows = Iterable[Mapping[str, Any]]
SPREAD = ("config", "metrics", "versions", "exit_setting", "losses")  # one column for each field of these values
TRIAL = {"key": "str", "arm": "str", "method": "str", "task": "str", "phase": "str", "trial": "int64", "seed": "int64"}
SEED = {name: TRIAL[name] for name in ("key", "arm", "method", "task", "seed")}
COUNTS = {"counts": "bool"}
PREDICTIONS = {**SEED, **COUNTS, "draw": "int64", "split": "str", "id": "int64", "label": "float64"}
PREDICTIONS |= {"answer": "float64", "right": "float64", "layer": "int64", "probability": "float64", "text": "str"}
SWEEPS = {**SEED, **COUNTS, "rule": "str", "setting": "float64", "score": "float64", "mean_layers": "float64"}
SWEEPS |= {"num_layers": "int64"}
TIMES = {**SEED, **COUNTS, "host": "str", "device": "str", "threads": "int64", "time": "str", "trusted": "bool"}
TIMES |= {"batch_size": "int64", "exit": "str", "rule": "str", "setting": "float64", "mean_layers": "float64"}
TIMES |= {"round": "int64", "milliseconds": "float64"}
SECONDS = {"wall_seconds": "float64", "gpu_seconds": "float64"}


@dataclass(frozen=True)
class Frames:
    """Pandas data frames of a finished or running study. A frame without rows still has all columns.

    The column `counts` is true for the trials that count in tables. These are the completed confirm trials (final runs
    with fresh seeds) of the winning configurations. Trials of repeated searches do not count.
    """

    study: Study
    data: str | None = None  # where to read the texts of `predictions`, as `--data` of a launch; None: they are empty

    @property
    def folder(self) -> Path:
        """Folder of the study."""
        return self.study.folder

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.study.name

    @property
    def baseline(self) -> str | None:
        """Baseline method, or None if no baseline is chosen or the baseline has no scores."""
        return self.evidence.baseline

    @property
    def protocol(self) -> dict[str, Any]:
        """Evaluation rules that apply to all numbers of the study."""
        plain: dict[str, Any] = to_plain(self.study.protocol)
        return plain

    @cached_property
    def records(self) -> pd.DataFrame:
        """One row per ended trial, with the numbers of its selected epoch."""
        rows = [{**to_plain(one), "arm": one.arm, "counts": one.key in self._counting} for one in self.study.records]
        columns = {name: dtype for name, dtype in _dtypes(Record).items() if name not in SPREAD}
        dtypes = {"arm": "str", **columns, **COUNTS, **self._metrics}
        return _frame(map(_spread, rows), dtypes, self._fields)

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per reported epoch, including those of running trials."""
        rows = []
        for event in self._reported:
            costs = {name: getattr(event, name) for name in SECONDS}
            parts = {"losses": compute_epoch_means(event.row.losses)}
            rows.append(_spread({**self._identify(event), **to_plain(event.row), **parts, **costs}))
        of_epoch = {name: dtype for name, dtype in _dtypes(EpochRow).items() if name not in (*SPREAD, "finished")}
        return _frame(rows, {**TRIAL, "status": "str", **COUNTS, **of_epoch, **SECONDS, **self._metrics})

    @cached_property
    def losses(self) -> pd.DataFrame:
        """One row per point of each trial's loss curves, with the parts of the loss that the model's `loss` returns."""
        rows = [
            _spread({**self._identify(event), "epoch": event.row.epoch, "step": point.step, "losses": point.means})
            for event in self._reported
            for point in list_loss_points(event)
        ]
        return _frame(rows, {**TRIAL, "status": "str", **COUNTS, "epoch": "int64", "step": "int64"})

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """One row per dev example of each confirm trial with stored predictions.

        If the exit is random, there is one row per example and draw.

        Raises:
            ValueError: the data for the texts cannot be read, or are not the study's.
        """
        classes = max((len(TASKS[task].labels) for task in self.study.tasks), default=0)
        dtypes = PREDICTIONS | {f"probabilities.{number}": "float64" for number in range(classes)}
        parts = [
            _examples(trial, stored, self._texts[stored.task.name].select(stored) if self.data else [""], classes)
            for trial, stored in self._stored
        ]
        return _joined(parts, dtypes)

    @cached_property
    def sweeps(self) -> pd.DataFrame:
        """One row per evaluated exit setting of each confirm trial with stored predictions."""
        return _joined([_settings(*own) for own in self._stored], SWEEPS)

    @cached_property
    def times(self) -> pd.DataFrame:
        """One row per round of each measured model, exit and batch size, with the mean time per text."""
        records = self.study.records_by_key
        rows = []
        for event in self.study.facts.times:
            of_event = {name: getattr(event, name) for name in ("host", "device", "threads", "time")}
            of_event["trusted"] = not Measurement(event, self.study).disturbance
            for model in event.models:
                if (record := records.get(model.key)) is None:
                    continue
                trial = {name: getattr(record, name) for name in SEED} | {"counts": record.key in self._counting}
                names = {"batch_size": model.batch_size, "exit": model.exit, "rule": model.rule, "setting": model.at}
                row = {**trial, **of_event, **names, "mean_layers": model.mean_layers}
                rows += [{**row, "round": number, "milliseconds": time} for number, time in enumerate(model.rounds)]
        return _frame(rows, TIMES)

    def picture(self, name: str) -> Picture | None:
        """Return the picture `name` of the report, such as `seeds`; return None if there is no such picture."""
        return next((picture for picture in self._pictures if picture.name == name), None)

    @cached_property
    def evidence(self) -> Evidence:
        """Statistics from which the study's tables are made."""
        return gather([self.study])

    @cached_property
    def _pictures(self) -> list[Picture]:
        return pictures(self.evidence)

    @cached_property
    def _reported(self) -> list[EpochReported]:
        return read_epochs(self.study)

    def _identify(self, event: EpochReported) -> dict[str, Any]:
        """Return the columns that identify the trial of a reported epoch."""
        trial = self.study.facts.trials[event.key]
        named = {name: getattr(trial.started, name) for name in ("key", "arm", "phase", "trial", "seed")}
        named |= {"method": trial.arm.method, "task": trial.arm.task, "counts": event.key in self._counting}
        return named | {"status": trial.record.status if trial.record else "under way"}

    @cached_property
    def _counting(self) -> set[str]:
        confirmed = [
            confirm_trials(arm, self.study.records_by_arm.get(arm.name, [])) for arm in self.study.plan.first_arms
        ]
        return {record.key for records in confirmed for record in records if record.status == "completed"}

    @cached_property
    def _stored(self) -> list[tuple[dict[str, Any], Predictions]]:
        """Identifying columns and predictions of each confirm trial that has stored predictions."""
        found = []
        for record in self.study.records:
            if record.phase == "confirm" and (predictions := read_predictions(self.study, record)) is not None:
                named = {name: getattr(record, name) for name in SEED}
                found.append(({**named, "counts": record.key in self._counting}, predictions))
        return found

    @cached_property
    def _texts(self) -> dict[str, DevTexts]:
        return {task: read_texts(self.study, task, self.data) for task in self.study.tasks}

    @property
    def _fields(self) -> list[str]:
        """Column names of the configuration fields of all arms."""
        return [f"config.{name}" for arm in self.study.plan.arms for name in (*arm.searched_fields, *arm.fixed)]

    @property
    def _metrics(self) -> dict[str, str]:
        return {f"metrics.{name}": "float64" for task in self.study.tasks for name in TASKS[task].metrics}


def _examples(trial: dict[str, Any], stored: Predictions, texts: list[str], classes: int) -> pd.DataFrame:
    draws, number = stored.answers.shape
    probability = np.full((draws, number), np.nan)
    probabilities = np.full((draws, number, classes), np.nan)
    if not stored.task.is_regression:
        of_classes = special.softmax(stored.logits.astype(np.float64), axis=-1)
        probability, probabilities[..., : of_classes.shape[-1]] = of_classes.max(axis=-1), of_classes
    right = np.full((draws, number), np.nan) if stored.task.is_regression else stored.answers == stored.labels
    each = {"split": stored.split, "id": stored.ids, "label": stored.labels}
    of_draws = {"answer": stored.answers, "right": right, "layer": stored.exit_layers, "probability": probability}
    of_draws |= {f"probabilities.{place}": probabilities[..., place] for place in range(classes)}
    columns = {name: np.tile(values, draws) for name, values in each.items()}
    columns |= {name: np.ravel(values) for name, values in of_draws.items()}
    columns["text"] = np.tile(np.broadcast_to(np.array(texts, dtype=object), number), draws)
    return pd.DataFrame({**trial, "draw": np.repeat(np.arange(draws), number), **columns})


def _settings(trial: dict[str, Any], stored: Predictions) -> pd.DataFrame:
    swept = {"rule": stored.sweep_rule, "setting": stored.sweep_setting, "score": stored.sweep_score}
    depth = len(stored.layer_answers)
    return pd.DataFrame({**trial, **swept, "mean_layers": stored.sweep_mean_layers, "num_layers": depth})


def _joined(parts: list[pd.DataFrame], dtypes: Mapping[str, str]) -> pd.DataFrame:
    filled = [part for part in parts if len(part)]
    joined = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=[*dtypes])
    return joined[[*dtypes]].astype(dict(dtypes))


def _frame(rows: Rows, dtypes: Mapping[str, str], further: Iterable[str] = ()) -> pd.DataFrame:
    """Make a frame of `rows`. The columns in `dtypes` come first, then those in `further`, then the rest."""
    found = list(rows)
    columns = dict.fromkeys([*dtypes, *further, *(name for row in found for name in row)])
    return pd.DataFrame(found, columns=[*columns]).astype(dict(dtypes))


def _spread(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each nested value by one column per entry, such as `config.beta`."""
    parts = {f"{name}.{field}": value for name in SPREAD for field, value in row.get(name, {}).items()}
    return {name: value for name, value in row.items() if name not in (*SPREAD, "finished")} | parts


def _dtypes(kind: type) -> dict[str, str]:
    """Choose a dtype for each field of a struct; optional integers become nullable."""
    return {name: _dtype(hint) for name, hint in get_type_hints(kind).items() if name in kind.__struct_fields__}  # type: ignore[attr-defined]


def _dtype(hint: Any) -> str:
    types = set(get_args(hint)) or {hint}
    if int in types:
        return "Int64" if NoneType in types else "int64"
    if float in types:
        return "float64"
    return "str" if types <= {str, NoneType} or all(isinstance(each, str) for each in types) else "object"
