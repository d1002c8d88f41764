"""The texts of dev examples. A study does not store them: they are read from its data, which may be elsewhere now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from analysis.studies.load import Study
from analysis.studies.stored_predictions import Answers
from study.facts.plan_file import find_data
from trainables.data.glue import fingerprint, load_split
from trainables.data.tasks import TASKS
from trainables.files.sources import from_cache_only

BETWEEN = " | "  # the texts of a pair
_SAME_LABEL = 1e-4  # labels of a regression are stored in single precision


@dataclass(frozen=True)
class DevTexts:
    """The text and the label of each dev example of a task, by split and id."""

    task: str
    rows: Mapping[tuple[str, int], tuple[str, float]]

    def select(self, answers: Answers) -> list[str]:
        """Return the texts of the examples that a model answered.

        Raises:
            ValueError: an example is missing, or has another label.
        """
        places = zip(answers.split.tolist(), answers.ids.tolist(), strict=True)
        found = [self.rows.get((split, int(number))) for split, number in places]
        texts = [
            row[0]
            for row, label in zip(found, answers.labels.tolist(), strict=True)
            if row is not None and abs(row[1] - label) < _SAME_LABEL
        ]
        if len(texts) < len(found):
            raise ValueError(f"the data have other rows of {self.task} than those of the study")
        return texts


def read_texts(study: Study, task: str, data: str | None = None) -> DevTexts:
    """Read the dev texts of a task.

    Args:
        data: where to read them, as `--data` of a launch. None reads the study's own data; those of the hub are then
            read only from the local cache.

    Raises:
        ValueError: the data cannot be read, or are not the study's.
    """
    own = TASKS[task]
    is_named = data is not None
    if data is None:
        data = find_data(study.folder, study.plan, task, recorded=_find_recorded(study, task))
    elif fingerprint(own, data) != next(arm.data_fingerprint for arm in study.plan.arms if arm.task == task):
        raise ValueError(f"data {data} has other rows of {task} than those of the study")
    rows = dict[tuple[str, int], tuple[str, float]]()
    try:
        with nullcontext() if is_named or data != "hub" else from_cache_only():
            for split in own.dev_splits:
                read = load_split(own, split, data)
                assert read.labels is not None, "dev splits have labels"
                for number, texts, label in zip(read.ids, read.texts, read.labels.tolist(), strict=True):
                    rows[split, number] = BETWEEN.join(texts), label
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name}, which reads these data, is not installed") from None
    return DevTexts(task, rows)


def _find_recorded(study: Study, task: str) -> str:
    """Find where a trial of the task read its data, in the description of a model; "" if no model is stored."""
    for record in study.records:
        if record.task == task and record.model:
            path = study.folder / "trials" / record.key / Path(record.model).name / "model.json"
            if path.is_file():
                return str(json.loads(path.read_text())["spec"]["data"])
    return ""
