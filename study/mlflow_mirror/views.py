"""The views of a study's runs that MLflow offers under "Views", and the links that open them. Without MLflow.

MLflow 3.17 keeps a view as a tag of the experiment; `viewStateShareKey` in a link names it. A view says which runs are
shown, in which order and with which columns: without one, a table of runs has no column of metrics.
"""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from study.decisions.progress import StudyProgress

TAG = "mlflow.sharedViewState."
PORT = 5000  # where `mlflow ui` listens unless it is told otherwise
WHAT = ("tags.`method`", "tags.`task`")
NUMBERS = ("metrics.`score`", "metrics.`mean_layers`")
SEED = ("params.`seed`",)
CHART = "score-of-each-seed"


@dataclass(frozen=True)
class View:
    """Which runs, in which order, with which columns beside the run's name."""

    key: str  # in the tag and in links
    name: str  # in MLflow's menu
    filter: str  # as one types it into MLflow's search field
    columns: tuple[str, ...]
    order_by: str
    ascending: bool
    is_chart: bool = False  # opens as bars, one for each run

    def state(self) -> dict[str, Any]:
        """What MLflow's page takes over; whatever is left out is as it always is."""
        table = {
            "searchFilter": self.filter,
            "orderByKey": self.order_by,
            "orderByAsc": self.ascending,
            "selectedColumns": list(self.columns),
            "columnOrder": list(self.columns),
        }
        return table | (_bars(self.name) if self.is_chart else {})


BEST = View(
    key="best",
    name="Best run of each arm",
    filter="tags.best = 'true'",
    columns=(*NUMBERS, *SEED, *WHAT),
    order_by="metrics.`score`",
    ascending=False,
)
ARMS = View(
    key="arms",
    name="Median and winner of each arm",
    filter="tags.level = 'arm'",
    columns=(*NUMBERS, *WHAT, "tags.`status`", "tags.`trials`"),
    order_by="metrics.`score`",
    ascending=False,
)
SEEDS = View(
    key="seeds",
    name="Score of each seed",
    filter="tags.counts = 'true'",
    columns=(*NUMBERS, *SEED, *WHAT),
    order_by="tags.`arm`",
    ascending=True,
    is_chart=True,
)
FAILURES = View(
    key="failures",
    name="Failed trials",
    filter="tags.level = 'trial' AND attributes.status = 'FAILED'",
    columns=("attributes.`Description`", *WHAT),
    order_by="tags.`arm`",  # by time MLflow shows the arms instead, their trials folded
    ascending=True,
)
VIEWS = (BEST, ARMS, SEEDS, FAILURES)


def view_tags(time: int) -> Mapping[str, str]:
    """The tags of an experiment that make the views; `time` in milliseconds since 1970."""
    return {
        TAG + view.key: json.dumps(
            {"name": view.name, "createdAt": time, "updatedAt": time, "state": json.dumps(view.state())}
        )
        for view in VIEWS
    }


def views_with_runs(progress: StudyProgress) -> list[View]:
    """The views that show anything of a study that is this far."""
    is_confirmed = any(arm.confirmed for arm in progress.arms)
    has_failed = any(trial.record and trial.record.status == "failed" for trial in progress.facts.trials.values())
    shown = {BEST.key: is_confirmed, ARMS.key: True, SEEDS.key: is_confirmed, FAILURES.key: has_failed}
    return [view for view in VIEWS if shown[view.key]]


def links(server: str, experiment_id: str, progress: StudyProgress) -> list[str]:
    """A line for each view that has runs: its name, and the link that opens it as model training."""
    return [f"{view.name + ':':<31}{link(server, experiment_id, view)}" for view in views_with_runs(progress)]


def link(server: str, experiment_id: str, view: View) -> str:
    """Opens the view, whatever the browser has shown before."""
    mode = "&compareRunsMode=CHART" if view.is_chart else ""
    page = f"{server.rstrip('/')}/#/experiments/{quote(experiment_id)}/runs"
    return f"{page}?workflowType=machine_learning&viewStateShareKey={view.key}{mode}"


def search_for(arm: str) -> str:
    """What finds the runs of an arm, typed into the search field of a view."""
    return f"tags.arm = '{arm}'"


def free_port() -> int:
    """The first from MLflow's own on that nobody answers on here: macOS has a service on 5000."""
    for port in range(PORT, PORT + 100):
        with socket.socket() as asking:
            asking.settimeout(1.0)
            if asking.connect_ex(("127.0.0.1", port)) != 0:
                return port
    return PORT


def experiment_in(store: Path, name: str) -> str | None:
    """The id of the experiment in an SQLite store; None where it is not there.

    Read with sqlite alone: importing MLflow takes seconds. The table is `experiments` of MLflow 3.
    """
    if not store.exists():
        return None
    with closing(sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            found = connection.execute("SELECT experiment_id FROM experiments WHERE name = ?", [name]).fetchone()
        except sqlite3.Error:  # the mirror was interrupted while it made the tables
            return None
    return str(found[0]) if found else None


def _bars(title: str) -> dict[str, Any]:
    """Above MLflow's own charts, as wide as the page, a section with the score of each run, none left out."""
    section = {"uuid": CHART, "name": title, "display": True, "isReordered": True, "columns": 1, "cardHeight": 600}
    chart = {"uuid": CHART, "type": "BAR", "metricKey": "score", "metricSectionId": CHART, "runsCountToCompare": 100}
    ours = {"deleted": False, "isGenerated": False}
    return {
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,  # else sections are sorted by name
        "compareRunSections": [section | ours],
        "compareRunCharts": [chart | ours],
    }
