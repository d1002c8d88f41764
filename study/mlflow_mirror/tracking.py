"""Writes runs to MLflow; writing the same content again creates no duplicates.

The tags `study_id` and `key` identify a run. MLflow stores equal metric values once, because its primary key is
run, name, time, step and value. After a killed process or a lost server, a new `Tracking` can therefore write again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import ssl
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from study.mlflow_mirror.run_content import MLFLOW_STATUS, Point, Run
from study.storage.addresses import masked

# MLflow's limits for one log_batch request: mlflow/utils/validation.py of 3.17.
POINTS_PER_BATCH = 800
TAGS_PER_BATCH = 100
RUNS_PER_PAGE = 1000

PARENT = "mlflow.parentRunId"
ANSWER_SECONDS = 3.0  # timeout of the health check

# Errors that a retry cannot fix: a wrong address, password or value.
FATAL_ERRORS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "PERMISSION_DENIED", "UNAUTHENTICATED", "ENDPOINT_NOT_FOUND")


def default_uri(folder: Path) -> str:
    """Return the SQLite URI of MLflow's store in the study folder; `%` and `?` in the path are encoded."""
    path = str(folder.resolve() / "mlflow.db")
    return f"sqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def unreachable_reason(uri: str) -> str | None:
    """Return the reason why no web server answers at `uri`; None if one answers or `uri` is not a web address.

    MLflow is not imported for this, because the import takes seconds. A certificate error counts as an answer, because
    MLflow may trust a certificate that Python does not.
    """
    if not uri.startswith(("http://", "https://")):
        return None
    try:
        urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_SECONDS).close()
    except HTTPError:
        return None
    except (OSError, URLError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):
            return None
        return getattr(reason, "strerror", None) or str(reason)
    return None


def prepare_environment() -> None:
    """Set the environment variables that MLflow reads on import, unless the user has set them."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "ERROR",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # MLflow's retry may create a run twice; the mirror retries
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "GIT_PYTHON_REFRESH": "quiet",
    }.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.ERROR)


def outages() -> tuple[type[Exception], ...]:
    """Return the exception classes that MLflow raises if its store is unreachable or refuses a call."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError  # the errors of `requests` are OSErrors


def is_fatal(error: Exception) -> bool:
    """Check if a repeated call would fail with the same error."""
    return getattr(error, "error_code", None) in FATAL_ERRORS


def reason(error: BaseException) -> str:
    """Return the first line of the error's innermost cause, without passwords."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return masked(str(error) or type(error).__name__).splitlines()[0]


def count_experiments(uri: str) -> int:
    """Count the store's experiments, up to 1000; raise one of `outages()` if the store is unreachable."""
    from mlflow.tracking import MlflowClient

    return len(MlflowClient(tracking_uri=uri).search_experiments(max_results=1000))


def read_runs(uri: str, study_id: str) -> dict[str, Any]:
    """Read the tags and latest metrics of a study's runs in all experiments: run key -> data."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = _search(client, experiments, study_id)
    return {run.data.tags["key"]: run.data for run in runs}


def _search(client: Any, experiments: list[str], study_id: str) -> Iterator[Any]:
    """Yield the study's runs in these experiments, in order of start."""
    token = None
    while True:
        page = client.search_runs(
            experiments,
            f"tags.study_id = '{study_id}'",
            max_results=RUNS_PER_PAGE,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        yield from page
        token = page.token
        if not token:
            return


class Tracking:
    """The runs of one study in an MLflow store. Methods raise one of `outages()` if the store is unreachable."""

    def __init__(self, uri: str, *, experiment: str, study_id: str, artifacts: Path) -> None:
        """Find the study's runs in the store; `artifacts` is the artifact folder if the store is not a server."""
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self.study_id = study_id
        self.experiment_id = self._find_experiment(experiment, None if uri.startswith("http") else artifacts.as_uri())
        self.run_ids: dict[str, str] = {}  # run key -> MLflow's id
        self._finished: dict[str, str] = {}  # run key -> digest of the content that MLflow has
        self._sent: dict[str, set[Point]] = {}  # run key -> points sent so far, until the run has ended
        for run in _search(self.client, [self.experiment_id], study_id):
            self._remember(run)

    def write(self, run: Run) -> None:
        """Write the content of `run` to its MLflow run; send nothing if MLflow already has it."""
        digest = self._digest(run)
        if self._finished.get(run.key) == digest:
            return
        run_id = self.run_ids.get(run.key) or self._create(run)
        for folder, paths in run.files.items():
            for path in paths:
                self.client.log_artifact(run_id, path, folder or None)
        status = MLFLOW_STATUS[run.status]
        if run.ended is None:
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status=status, end_time=run.ended)
        self._send_batches(run, run_id, digest)
        self._finished[run.key] = digest

    def _digest(self, run: Run) -> str:
        """Hash the run's content, its parent's ID, and the bytes of its files."""
        paths = [Path(path) for paths in run.files.values() for path in paths]
        files = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        content = json.dumps([asdict(run), self._parent_tag(run), files])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def _parent_tag(self, run: Run) -> dict[str, str]:
        return {} if run.parent is None else {PARENT: self.run_ids[run.parent]}

    def _find_experiment(self, name: str, artifact_location: str | None) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            return self.client.create_experiment(name, artifact_location=artifact_location)
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return experiment.experiment_id

    def _remember(self, run: Any) -> None:
        key = run.data.tags["key"]
        if key in self.run_ids:  # created twice, because the server's first answer came too late
            self.client.delete_run(run.info.run_id)
            return
        self.run_ids[key] = run.info.run_id
        self._finished[key] = run.data.tags.get("content", "")

    def _create(self, run: Run) -> str:
        tags = {"study_id": self.study_id, "key": run.key, **self._parent_tag(run)}
        created = self.client.create_run(self.experiment_id, start_time=run.started, tags=tags, run_name=run.name)
        run_id: str = created.info.run_id
        self.run_ids[run.key] = run_id
        return run_id

    def _send_batches(self, run: Run, run_id: str, digest: str) -> None:
        """Send new metric values, parameters and tags; the tag `content` comes last and marks the run as complete."""
        from mlflow.entities import Metric, Param, RunTag

        sent = self._sent.setdefault(run.key, set())
        new = [point for point in run.points if point not in sent]
        metrics = [Metric(point.name, point.value, point.time, point.step) for point in new]
        while len(metrics) > POINTS_PER_BATCH:
            self.client.log_batch(run_id, metrics=metrics[:POINTS_PER_BATCH])
            metrics = metrics[POINTS_PER_BATCH:]
        tags = [RunTag(name, value) for name, value in {**run.tags, **self._parent_tag(run), "content": digest}.items()]
        params = [Param(name, value) for name, value in run.params.items()]
        assert len(params) <= TAGS_PER_BATCH and len(tags) <= TAGS_PER_BATCH, "more than a batch of parameters or tags"
        self.client.log_batch(run_id, metrics=metrics, params=params, tags=tags)
        sent.update(new)
        if run.ended is not None:
            del self._sent[run.key]  # frees memory: an ended run rarely gets more points
