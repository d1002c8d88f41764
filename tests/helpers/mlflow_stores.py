"""What an MLflow store holds of a study, and a study to mirror."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from helpers.journals import CONFIG, MadeJournal
from helpers.made_studies import plan_of, write_plan_of


def planned(folder: Path, *, methods: tuple[str, ...] = ("palbert",)) -> MadeJournal:
    """The journal of a study with two seeds, before its first event."""
    write_plan_of(folder, plan_of(list(methods), ["rte"], seeds=2, config=CONFIG))
    return MadeJournal(folder)


def begin_search(journal: MadeJournal) -> None:
    """Begin with a whole search trial, and with one that ASHA stopped."""
    journal.begin()
    journal.whole_trial("a" * 16, [0.5, 0.7, 0.6])
    journal.start("b" * 16, trial=1)
    journal.epoch("b" * 16, 1, 0.4)
    journal.stop("b" * 16, rung=1, cutoff=0.5)
    journal.finish("b" * 16, status="stopped")


def stored_runs(uri: str, name: str = "mine") -> dict[str, Any]:
    """Every MLflow run of the experiment, by its key; an error where a key is there twice."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    by_key = {run.data.tags["key"]: run for run in runs}
    assert len(by_key) == len(runs)
    return by_key


def curves(uri: str, run: Any) -> dict[str, list[tuple[int, float | None, int]]]:
    """(step, value, time) of every point of every curve of `run`; None for NaN, which equals nothing."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return {
        name: sorted(
            (point.step, None if math.isnan(point.value) else point.value, point.timestamp)
            for point in client.get_metric_history(run.info.run_id, name)
        )
        for name in run.data.metrics
    }


def content(uri: str, name: str = "mine") -> dict[str, Any]:
    """All that the store says of a study, for comparing before with after."""
    return {
        key: (run.info.run_id, run.info.status, run.info.end_time, run.data.params, run.data.tags, curves(uri, run))
        for key, run in stored_runs(uri, name).items()
    }
