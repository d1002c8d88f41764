"""What is wrong with the numbers of a record, where its fields are of the right types."""

from __future__ import annotations

import math

from study.facts.record import Record
from trainables.data.tasks import TASKS, score

TOLERANCE = 1e-6  # of a score against the mean of its metrics


def check_record(record: Record) -> list[str]:
    """What is wrong with the record's scores and metrics, one line each, without file and line; empty for a sound one.

    A trial that ended with a score has every metric of its task, its score is their mean, and all of them are shares:
    0.725, not 72.5. Nothing is asked of the numbers of a failed trial; of a stopped one, only what selected it.
    """
    if record.task not in TASKS:
        return [f"task is {record.task!r}; allowed: {', '.join(TASKS)}"]
    if record.status == "failed":
        return []
    lines = _not_a_share("selection_score", record.selection_score)
    if record.status == "stopped" and record.score is None:
        return lines
    lines += _not_a_share("score", record.score)
    missing = [name for name in TASKS[record.task].metrics if name not in record.metrics]
    if missing:
        return [*lines, f"metrics lack {', '.join(missing)}; {record.task} has {', '.join(TASKS[record.task].metrics)}"]
    found = {name: record.metrics[name] for name in TASKS[record.task].metrics}
    lines += [line for name, value in found.items() for line in _not_a_share(f"metrics.{name}", value)]
    mean = score(TASKS[record.task], found)
    if not lines and record.score is not None and abs(mean - record.score) > TOLERANCE:
        lines.append(f"score is {record.score}; the mean of {', '.join(found)} is {mean:.6f}")
    return lines + _layers(record)


def _layers(record: Record) -> list[str]:
    """A model runs at least one layer per example and at most all that it has."""
    run, depth = record.mean_layers, record.num_layers
    if run is None or depth is None or 1 - TOLERANCE <= run <= depth + TOLERANCE:
        return []
    return [f"mean_layers is {run}; allowed: 1 to {depth}, the model's num_layers"]


def _not_a_share(name: str, value: float | None) -> list[str]:
    if value is None:
        return [f"{name} is null; allowed: a number in [-1, 1]"]
    if math.isfinite(value) and -1 <= value <= 1:
        return []
    percent = f"; {value:g} percent is {value / 100:g}" if 1 < abs(value) <= 100 else ""
    return [f"{name} is {value}; allowed: a number in [-1, 1]{percent}"]
