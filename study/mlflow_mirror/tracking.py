"""Writing runs to MLflow: each run, parameter and curve point exactly once, however often it is tried.

A run is found again by its tags `study_id` and `key`, and MLflow's own primary key (run, name, time, step, value) makes
a point that is sent twice one point. So a writer that lost its server, or its life, starts over with a new `Tracking`
and loses and doubles nothing. A parameter never changes in MLflow: a run of other parameters than it had is made anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from study.mlflow_mirror.run_content import MLFLOW_STATUS, Point, Run
from study.storage.addresses import masked

# MLflow's limits for one log_batch request: mlflow/utils/validation.py of 3.17.
POINTS_PER_BATCH = 800
TAGS_PER_BATCH = 100
RUNS_PER_PAGE = 1000

PARENT = "mlflow.parentRunId"

# What trying again does not mend: a wrong address, password or value.
FATAL_ERRORS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "PERMISSION_DENIED", "UNAUTHENTICATED", "ENDPOINT_NOT_FOUND")


def default_uri(folder: Path) -> str:
    """The tracking store inside the study folder."""
    return sqlite_uri(folder.resolve())


def sqlite_uri(folder: Path) -> str:
    """The URI of the store in `folder`, of which a path in a URI may not have everything: `what?`, `100%25`."""
    path = str(folder / "mlflow.db")
    return f"sqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def prepare_environment() -> None:
    """Settings of this process that MLflow reads when it is imported; those that the user has set stay."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "ERROR",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # a repeated "create run" would double it: `Tracking` repeats by itself
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "GIT_PYTHON_REFRESH": "quiet",
    }.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.ERROR)


def outages() -> tuple[type[Exception], ...]:
    """What MLflow raises when its store is away, or refuses."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError  # requests' errors are OSErrors


def is_fatal(error: Exception) -> bool:
    """True for an error that trying again does not mend."""
    return getattr(error, "error_code", None) in FATAL_ERRORS


def reason(error: BaseException) -> str:
    """The first line of what was at the bottom of `error`, without passwords."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return masked(str(error) or type(error).__name__).splitlines()[0]


def count_experiments(uri: str) -> int:
    """How many experiments the store at `uri` holds (1000 at most); raises `outages()` when it is away."""
    from mlflow.tracking import MlflowClient

    return len(MlflowClient(tracking_uri=uri).search_experiments(max_results=1000))


class Tracking:
    """The runs of one study in one tracking store. Any method may raise `outages()` when the store is away."""

    def __init__(self, uri: str, *, experiment: str, study_id: str, artifacts: Path) -> None:
        """`artifacts` is the folder for files, used where no tracking server decides about them."""
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        self._study_id = study_id
        self.experiment_id = self._find_experiment(experiment, None if uri.startswith("http") else artifacts.as_uri())
        self._run_ids: dict[str, str] = {}
        self._parents: dict[str, str] = {}  # key of each run that has one -> run id of the one above
        self._params: dict[str, Mapping[str, str]] = {}  # key of each run -> those it has
        self._finished: dict[str, str] = {}  # key of each run that is as it should be -> digest of its content
        self._sent: dict[str, set[Point]] = {}
        for run in self._search_runs():
            self._remember(run)

    def write(self, run: Run) -> None:
        """Brings the MLflow run of `run` to its content. Free of requests where it has it already."""
        digest = run.digest()
        is_below_its_parent = run.parent is None or self._parents.get(run.key) == self._run_ids[run.parent]
        if self._finished.get(run.key) == digest and is_below_its_parent:
            return
        if self._has_other_params(run):
            self._replace(run)
        run_id = self._run_ids.get(run.key) or self._create(run)
        for folder, paths in run.files.items():
            for path in paths:
                self._client.log_artifact(run_id, path, folder or None)
        self._set_status(run, run_id)
        self._send_batches(run, run_id, digest)
        self._finished[run.key] = digest

    def tag_experiment(self, tags: Mapping[str, str]) -> None:
        """Gives the experiment those of the tags that it lacks, or has with another value."""
        present = self._client.get_experiment(self.experiment_id).tags
        for name, value in tags.items():
            if present.get(name) != value:
                self._client.set_experiment_tag(self.experiment_id, name, value)

    def model_versions(self, name: str) -> dict[str, str]:
        """The versions of a registered model that this study made: key of the trial -> version."""
        versions = self._client.search_model_versions(_is_named(name))
        ours = [version for version in versions if version.tags.get("study_id") == self._study_id]
        return {version.tags["key"]: version.version for version in ours}

    def register_model(self, name: str, key: str, folder: Path, tags: dict[str, str]) -> str:
        """The version that a trial's model, in MLflow's format in `folder`, got under `name`."""
        if not self._client.search_registered_models(_is_named(name)):
            self._client.create_registered_model(name)
        run = self._client.get_run(self._run_ids[key])
        self._client.log_artifacts(run.info.run_id, str(folder), "model")
        source = f"{run.info.artifact_uri}/model"
        tags = {"study_id": self._study_id, **tags}
        return self._client.create_model_version(name, source, run.info.run_id, tags=tags).version

    def tag_model_version(self, name: str, version: str, tag: str, value: str) -> None:
        self._client.set_model_version_tag(name, version, tag, value)

    def set_alias(self, name: str, alias: str, version: str) -> None:
        self._client.set_registered_model_alias(name, alias, version)

    def _find_experiment(self, name: str, artifact_location: str | None) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            return self._client.create_experiment(name, artifact_location=artifact_location)
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
        return experiment.experiment_id

    def _search_runs(self) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id],
                f"tags.study_id = '{self._study_id}'",
                max_results=RUNS_PER_PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    def _remember(self, run: Any) -> None:
        tags = run.data.tags
        if tags["key"] in self._run_ids:  # its creation was repeated: the server answered the first one too late
            self._client.delete_run(run.info.run_id)
            return
        self._run_ids[tags["key"]] = run.info.run_id
        self._params[tags["key"]] = run.data.params
        if PARENT in tags:
            self._parents[tags["key"]] = tags[PARENT]
        self._finished[tags["key"]] = tags.get("content", "")

    def _create(self, run: Run) -> str:
        tags = {"study_id": self._study_id, "key": run.key}
        tags |= self._parent_tag(run)
        created = self._client.create_run(self.experiment_id, start_time=run.started, tags=tags, run_name=run.name)
        self._run_ids[run.key] = created.info.run_id
        return created.info.run_id

    def _parent_tag(self, run: Run) -> dict[str, str]:
        return {} if run.parent is None else {PARENT: self._run_ids[run.parent]}

    def _has_other_params(self, run: Run) -> bool:
        present = self._params.get(run.key, {})
        return any(present.get(name, value) != value for name, value in run.params.items())

    def _replace(self, run: Run) -> None:
        """Makes a run anew and puts those below the former one below it."""
        former = self._run_ids[run.key]
        self._client.delete_run(former)
        self._sent.pop(run.key, None)
        created = self._create(run)
        for key in [key for key, parent in self._parents.items() if parent == former]:
            self._client.set_tag(self._run_ids[key], PARENT, created)
            self._parents[key] = created

    def _send_batches(self, run: Run, run_id: str, digest: str) -> None:
        """Sends what is new. The tag `content` goes last: where it stands, all the rest stands too."""
        from mlflow.entities import Metric, Param, RunTag

        sent = self._sent.setdefault(run.key, set())
        new = [point for point in run.points if point not in sent]
        batches = list(_chunks(new, POINTS_PER_BATCH))
        for batch in batches[:-1]:
            self._client.log_batch(run_id, metrics=[Metric(p.name, p.value, p.time, p.step) for p in batch])
        last = [Metric(p.name, p.value, p.time, p.step) for p in (batches[-1] if batches else ())]
        tags = [RunTag(name, value) for name, value in {**run.tags, **self._parent_tag(run), "content": digest}.items()]
        params = [Param(name, value) for name, value in run.params.items()]
        assert len(params) <= TAGS_PER_BATCH and len(tags) <= TAGS_PER_BATCH, (
            "more than one batch of parameters or tags"
        )
        self._client.log_batch(run_id, metrics=last, params=params, tags=tags)
        sent.update(new)
        self._params[run.key] = {**self._params.get(run.key, {}), **run.params}
        self._parents |= {run.key: self._run_ids[run.parent]} if run.parent else {}
        if run.ended is not None:
            del self._sent[run.key]  # no more to come, as a rule

    def _set_status(self, run: Run, run_id: str) -> None:
        status = MLFLOW_STATUS[run.status]
        if run.ended is None:
            self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status=status, end_time=run.ended)


def _is_named(name: str) -> str:
    """A filter of MLflow's, in the quotation mark that the name does not have."""
    mark = '"' if "'" in name else "'"
    return f"name = {mark}{name}{mark}"


def _chunks(items: Sequence[Point], size: int) -> Iterator[list[Point]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
