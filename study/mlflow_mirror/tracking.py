"""Writes runs to MLflow, and models to MLflow's registry. Writing the same content again creates no duplicates.

The tags `study_id` and `key` identify a run. MLflow stores equal metric values once, so values may be sent again after
a killed process or a lost server.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shlex
import sqlite3
import ssl
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import urlopen

from study.decisions.progress import StudyProgress
from study.facts.record import Record
from study.mlflow_mirror.run_content import MLFLOW_STATUS, DataSet, Point, Run
from study.plans.resolved_plan import format_file_name
from study.storage.models import local_model, locate_model, model_exists
from study.terminal.text import masked
from trainables import base_method
from trainables.configuration.error_text import take_first_line
from trainables.files.method_files import included
from trainables.files.sources import hash_now

# MLflow's limits for one log_batch request: mlflow/utils/validation.py of 3.17.
POINTS_PER_BATCH = 800
TAGS_PER_BATCH = 100
RUNS_PER_PAGE = 1000

PARENT = "mlflow.parentRunId"
ARTIFACT_PLACES = (  # tables and columns of MLflow's database: mlflow/store of 3.17
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
ANSWER_SECONDS = 3.0  # timeout of the health check

# Codes of errors that a retry cannot fix: a wrong address, password or value.
FATAL_ERRORS = (
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "CUSTOMER_UNAUTHORIZED",
)


def build_default_uri(folder: Path) -> str:
    """Return the SQLite URI of the MLflow store in the study's folder. `%` and `?` in the path are encoded."""
    path = str(_default_database(folder))
    return f"sqlite:///{path.replace('%', '%25').replace('?', '%3F')}"


def _default_database(folder: Path) -> Path:
    return folder.resolve() / "mlflow.db"


def skip_disk_flushes(folder: Path) -> None:
    """Write the database in the study's folder without a wait for the disk after each change.

    MLflow makes several changes for a trial, and waits longer for the disk than it computes. If the power fails
    meanwhile, the database may be damaged; the journal has all that is needed to make it again.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    database = str(_default_database(folder))

    @event.listens_for(Engine, "connect")
    def skip(connection: Any, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            files = [file for _, _, file in connection.execute("PRAGMA database_list")]
            if database in files:
                connection.execute("PRAGMA synchronous = OFF")


def unreachable_reason(uri: str) -> str | None:
    """Return the reason why no web server answers at `uri`.

    Return None if a web server answers, or if `uri` is not a web address.

    A certificate error counts as an answer, because MLflow and Python may trust different certificates.
    """
    if not uri.startswith(("http://", "https://")):
        return None
    try:
        urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_SECONDS).close()
    except HTTPError:
        return None
    except HTTPException:
        return "its answer is not HTTP"
    except OSError as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):
            return getattr(reason, "strerror", None) or str(reason)
    return None


def find_lasting_fault(uri: str, error: BaseException | None, *, has_answered: bool) -> str | None:
    """Explain a fault of the store that a retry cannot fix, and what mends it; return None if a retry may help.

    Args:
        error: one of `outages()`, which a call to the store raised; None before the first call.
        has_answered: True if a call to the store has succeeded before; so it is MLflow's.
    """
    if uri.startswith("sqlite:///"):
        path = Path(unquote(uri.removeprefix("sqlite:///").partition("?")[0]))
        if path.is_dir():
            return f"{path} is a folder, but the file of a database belongs there; move or delete the folder"
    if error is None:
        return None
    text = reason(error)
    if getattr(error, "error_code", None) in FATAL_ERRORS:
        return f"{masked(uri)} refuses the runs: {text}"
    if schema := _SCHEMA.search(text):
        found = schema["found"] or schema["unknown"]
        versions = f"(found version {found}{schema['expected'] or ''})"
        upgrade = f"after a backup: {sys.executable} -m mlflow db upgrade {shlex.quote(masked(uri))}, or "
        return (
            f"the database {masked(uri)} has the schema of another version of MLflow {versions}; "
            f"{upgrade if _is_older_schema(found) else ''}install the MLflow that wrote it"
        )
    if "file is not a database" in text or "database disk image is malformed" in text:
        return f"{masked(uri)} is damaged, or not a database; move or delete the file, or give another --tracking-uri"
    if has_answered or not uri.startswith(("http://", "https://")):
        return None
    if found := _find_foreign_answer(uri, error):
        remedy = "correct --tracking-uri, or start a server with: mlflow server"
        return f"the server at {masked(uri)} is not a working MLflow ({found}); {remedy}"
    return None


# MLflow's error for a database that another version wrote, or Alembic's if tables are missing as well.
_SCHEMA = re.compile(
    r"out-of-date database schema \(found version (?P<found>\w+)(?P<expected>[^)]*)\)"
    r"|(Can't locate revision identified by|No such revision or branch) '(?P<unknown>\w+)'"
)
_NO_JSON = "not in a valid JSON format. Response body: "  # in MLflow's error


def _is_older_schema(version: str) -> bool:
    """Check if the installed MLflow knows the version of a schema, so that it can upgrade the database."""
    import mlflow

    migrations = Path(mlflow.__file__).parent / "store" / "db_migrations" / "versions"
    return any(migrations.glob(f"{version}_*.py"))


def _find_foreign_answer(uri: str, error: BaseException) -> str | None:
    """Describe an answer of the web server at `uri` that MLflow never gives; None if a retry may help.

    A hosted MLflow may have no health check, and a proxy answers 502 to 504 while MLflow starts. MLflow's own health
    check does not read its database, so an error 500 there comes from another program.
    """
    if _NO_JSON in str(error):
        body = str(error).partition(_NO_JSON)[2].strip("' \n")
        return f"answers {body.splitlines()[0][:40]!r}" if body else "answers nothing"
    if getattr(error, "error_code", None) == "ENDPOINT_NOT_FOUND":
        return "answers with the error 404"
    try:
        urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_SECONDS).close()
    except HTTPError as refused:
        return "answers with the error 500, also to /health" if refused.code == 500 else None
    except (OSError, HTTPException):
        return None
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
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, CommandError, OSError  # the errors of `requests` are OSErrors


def reason(error: BaseException) -> str:
    """Return the first line of the error's innermost cause, without passwords."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return masked(take_first_line(error))


def count_experiments(uri: str) -> int:
    """Count the store's experiments, up to 1000. Raise one of `outages()` if the store is unreachable."""
    from mlflow.tracking import MlflowClient

    return len(MlflowClient(tracking_uri=uri).search_experiments(max_results=1000))


def read_runs(uri: str, study_id: str, *, name: str) -> dict[str, Any]:
    """Return the tags and latest metrics of a study's runs by key, from the experiment called `name`.

    If it has no run of the study, return those of all experiments: the folder was renamed. A copy of the study in
    another folder has the same `study_id`, and its own experiment.
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    pages = [client.search_experiments()]  # of at most 1000 each
    while token := pages[-1].token:
        pages.append(client.search_experiments(page_token=token))
    names = {experiment.experiment_id: experiment.name for page in pages for experiment in page}
    runs = list(_search(client, list(names), study_id))
    own = [run for run in runs if names[run.info.experiment_id] == name]
    return {run.data.tags["key"]: run.data for run in own or runs}


def _search(client: Any, experiments: list[str], study_id: str) -> Iterator[Any]:
    """Yield the study's runs in `experiments`, in order of start."""
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
        """Find the study's runs in the store. `artifacts` is the artifact folder if the store is not a server."""
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self.study_id = study_id
        self.experiment_id = self._find_experiment(experiment, None if uri.startswith("http") else artifacts.as_uri())
        if uri == build_default_uri(artifacts.parent):
            _move_artifacts(uri, self.client.get_experiment(self.experiment_id).artifact_location, artifacts.as_uri())
        self.run_ids: dict[str, str] = {}  # run key -> MLflow's id
        self._finished: dict[str, str] = {}  # run key -> digest of the content that MLflow has
        self._sent: dict[str, set[Point]] = {}  # run key -> points sent so far, until the run has ended
        self._restarts: dict[str, str] = {}  # trial key -> restarts of the trial before the points in its run
        self._with_data = set[str]()  # keys of the runs that have their data set
        for run in _search(self.client, [self.experiment_id], study_id):
            key = run.data.tags["key"]
            if key in self.run_ids:  # created twice, because the server's first answer came too late
                self.client.delete_run(run.info.run_id)
            else:
                self.run_ids[key] = run.info.run_id
                self._finished[key] = run.data.tags.get("content", "")
                if run.info.status != MLFLOW_STATUS["completed"]:  # such a trial does not start again
                    self._restarts[key] = run.data.tags.get("restarts", "")
                if run.inputs.dataset_inputs:
                    self._with_data.add(key)

    def write(self, run: Run) -> None:
        """Write the content of `run` to its MLflow run. Send nothing if MLflow already has this content."""
        self._delete_if_restarted(run)
        digest = self._compute_digest(run)
        if self._finished.get(run.key) == digest:
            return
        run_id = self.run_ids.get(run.key) or self._create(run)
        for folder, paths in run.files.items():
            for path in paths:
                self.client.log_artifact(run_id, path, folder or None)
        if run.data and run.key not in self._with_data:
            self.client.log_inputs(run_id, [_build_input(run.data)])
            self._with_data.add(run.key)
        status = MLFLOW_STATUS[run.status]
        if run.ended is None:
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status=status, end_time=run.ended)
        self._send_batches(run, run_id, digest)
        self._finished[run.key] = digest

    def _delete_if_restarted(self, run: Run) -> None:
        """Delete the MLflow run of a trial that has started again since, because MLflow deletes no single points."""
        restarts = run.tags.get("restarts", "")
        if self._restarts.setdefault(run.key, restarts) == restarts:
            return
        self.client.delete_run(self.run_ids.pop(run.key))
        self._restarts[run.key] = restarts
        self._finished.pop(run.key, None)
        self._sent.pop(run.key, None)
        self._with_data.discard(run.key)

    def _compute_digest(self, run: Run) -> str:
        """Hash the run's content, its parent's ID, and the bytes of its files."""
        paths = [Path(path) for paths in run.files.values() for path in paths]
        files = {str(path): hash_now(path) for path in paths}
        content = json.dumps([asdict(run), self._tag_parent(run), files])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def _tag_parent(self, run: Run) -> dict[str, str]:
        return {} if run.parent is None else {PARENT: self.run_ids[run.parent]}

    def _find_experiment(self, name: str, artifact_location: str | None) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            return self.client.create_experiment(name, artifact_location=artifact_location)
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return experiment.experiment_id

    def _create(self, run: Run) -> str:
        tags = {"study_id": self.study_id, "key": run.key, **self._tag_parent(run)}
        created = self.client.create_run(self.experiment_id, start_time=run.started, tags=tags, run_name=run.name)
        run_id: str = created.info.run_id
        self.run_ids[run.key] = run_id
        return run_id

    def _send_batches(self, run: Run, run_id: str, digest: str) -> None:
        """Send new metric values, parameters and tags. The last batch sets the tag `content` to `digest`."""
        from mlflow.entities import Metric, Param, RunTag

        sent = self._sent.setdefault(run.key, set())
        new = [point for point in run.points if point not in sent]
        metrics = [Metric(point.name, point.value, point.time, point.step) for point in new]
        while len(metrics) > POINTS_PER_BATCH:
            self.client.log_batch(run_id, metrics=metrics[:POINTS_PER_BATCH])
            metrics = metrics[POINTS_PER_BATCH:]
        tags = [RunTag(name, value) for name, value in {**run.tags, **self._tag_parent(run), "content": digest}.items()]
        params = [Param(name, value) for name, value in run.params.items()]
        assert len(params) <= TAGS_PER_BATCH and len(tags) <= TAGS_PER_BATCH, "more than a batch of parameters or tags"
        self.client.log_batch(run_id, metrics=metrics, params=params, tags=tags)
        sent.update(new)
        if run.ended is not None:
            del self._sent[run.key]  # frees memory: an ended run rarely gets more points


def _move_artifacts(uri: str, before: str, now: str) -> None:
    """Change the folder of all artifacts in the database of a study that was moved or copied.

    MLflow stores absolute paths, and has no function that changes them. It would write to the former folder.
    """
    if before == now:
        return
    from sqlalchemy import create_engine, text

    with create_engine(uri).begin() as database:
        for table, column in ARTIFACT_PLACES:
            moved = f"UPDATE {table} SET {column} = :now || substr({column}, length(:before) + 1)"
            is_there = f"substr({column}, 1, length(:before)) = :before"
            database.execute(text(f"{moved} WHERE {is_there}"), {"before": before, "now": now})


def _build_input(data: DataSet) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    profile = json.dumps({"num_rows": data.rows})
    made = Dataset(data.name, data.digest, data.source_type, data.source, profile=profile)
    return DatasetInput(made, [InputTag("mlflow.data.context", "training")])


# ---- the registry of trained models

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = (REPOSITORY / "trainables", REPOSITORY / "search_spaces")  # each method has a file in both folders
SERVED_MODEL = Path(__file__).with_name("served_model.py")
REQUIREMENTS = ("torch", "transformers", "safetensors", "numpy", "pandas", "scipy", "scikit-learn", "msgspec")


def register(tracking: Tracking, progress: StudyProgress, folder: Path) -> Iterator[str]:
    """Register the models of completed confirm trials. Yield a line for each new version.

    Each arm (a method on a task) is one registered model, `STUDY.METHOD.TASK`. Repeated searches are not registered.
    Each completed confirm trial is one version. The alias `best` names the version with the highest score. If a longer
    search finds a better configuration, the old versions get the tag `superseded=true`.

    Raises:
        ValueError: if the stored model of a trial no longer exists.
    """
    for arm in progress.arms:
        if arm.confirmed and not arm.planned.repeat:
            name = format_file_name(f"{folder.resolve().name}.{arm.planned.method}.{arm.planned.task}")
            name = name.replace('"', "'")  # MLflow's filters cannot search for a name with both quotation marks
            yield from _register_arm(tracking, name, [locate_model(record, folder) for record in arm.confirmed])


def _register_arm(tracking: Tracking, name: str, confirmed: list[Record]) -> Iterator[str]:
    client, is_named = tracking.client, f'name = "{name}"'
    registered = [v for v in client.search_model_versions(is_named) if v.tags.get("study_id") == tracking.study_id]
    versions = {version.tags["key"]: version.version for version in registered}
    for record in confirmed:
        if record.key not in versions:
            if not client.search_registered_models(is_named):
                client.create_registered_model(name)
            versions[record.key] = _create_version(tracking, name, record)
            yield f"registered {name} version {versions[record.key]} (trial {record.key})"
    keys = {record.key for record in confirmed}
    for key, version in versions.items():
        client.set_model_version_tag(name, version, "superseded", str(key not in keys).lower())
    best = max(confirmed, key=lambda record: record.score or 0.0)
    client.set_registered_model_alias(name, "best", versions[best.key])


def _create_version(tracking: Tracking, name: str, record: Record) -> str:
    """Upload a trial's model to its MLflow run, and return the number of the new version."""
    run = tracking.client.get_run(tracking.run_ids[record.key])
    with tempfile.TemporaryDirectory() as folder:
        save_model(record, Path(folder) / "model")
        tracking.client.log_artifacts(run.info.run_id, str(Path(folder) / "model"), "model")
    tags = {"key": record.key, "seed": str(record.seed), "score": f"{record.score:.4f}"}
    source, tags = f"{run.info.artifact_uri}/model", {"study_id": tracking.study_id, **tags}
    return tracking.client.create_model_version(name, source, run.info.run_id, tags=tags).version


def save_model(record: Record, folder: Path) -> None:
    """Write a trial's model to `folder` in MLflow's format, with the model's signature and code."""
    import mlflow.pyfunc

    if record.model is None or not model_exists(record.model):
        raise ValueError(f"the model of record {record.key} is gone: {record.model}")
    versions = {name: version.rpartition(", ")[2] for name, version in record.versions.items()}
    with (
        local_model(record.model, record.model_digest) as model,
        tempfile.TemporaryDirectory() as methods,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", ".*input example was not provided")  # not needed, as we pass a signature
        artifacts, included_methods = {"model": str(model)}, included()
        files = included_methods.for_method(base_method(record.method)) if included_methods else {}
        for name, content in files.items():
            (Path(methods) / name).write_bytes(content)
            artifacts["methods"] = methods
        mlflow.pyfunc.save_model(
            folder,
            python_model=str(SERVED_MODEL),
            artifacts=artifacts,
            code_paths=[str(path) for path in CODE],
            signature=_build_signature(record),
            pip_requirements=[f"{name}=={versions[name]}" for name in REQUIREMENTS if name in versions],
        )


def _build_signature(record: Record) -> Any:
    """Build the model's signature: text columns of the task as inputs, `prediction` and `exit_layer` as outputs."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    from trainables.data.tasks import find_task

    task = find_task(record.task)
    answer = DataType.double if task.is_regression else DataType.string
    return ModelSignature(
        inputs=Schema([ColSpec(DataType.string, column) for column in task.text_columns]),
        outputs=Schema([ColSpec(answer, "prediction"), ColSpec(DataType.long, "exit_layer")]),
    )
