"""Registration of a study's trained models in MLflow's model registry.

Each arm (a method on a task) is one registered model, `STUDY.METHOD.TASK`; repeated searches are not registered. Each
completed confirm trial, which repeats the best configuration with a fresh seed, is one version. The alias `best` names
the version with the highest score. If a longer search finds a better configuration, old versions get `superseded=true`.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from study.decisions.progress import StudyProgress
from study.facts.record import Record
from study.mlflow_mirror.tracking import Tracking
from study.plans.resolved_plan import format_file_name
from study.storage.trial_places import local_model, locate_model, model_exists
from trainables import base_method
from trainables.method_files import included

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = (REPOSITORY / "trainables", REPOSITORY / "search_spaces")  # each method has a file in both folders
SERVED_MODEL = Path(__file__).with_name("served_model.py")
REQUIREMENTS = ("torch", "transformers", "safetensors", "numpy", "pandas", "scipy", "scikit-learn", "msgspec")


class Registered(NamedTuple):
    """A new version of a registered model."""

    name: str
    version: str
    key: str  # the trial's key


def register(tracking: Tracking, progress: StudyProgress, folder: Path) -> Iterator[Registered]:
    """Register the models of completed confirm trials that have no version yet; yield each new version.

    Raises:
        ValueError: the folder of a model no longer exists.
    """
    for arm in progress.arms:
        if arm.confirmed and not arm.arm.repeat:
            name = format_file_name(f"{folder.resolve().name}.{arm.arm.method}.{arm.arm.task}")
            yield from _register_arm(tracking, name, [locate_model(record, folder) for record in arm.confirmed])


def _register_arm(tracking: Tracking, name: str, confirmed: list[Record]) -> Iterator[Registered]:
    client, mark = tracking.client, '"' if "'" in name else "'"
    is_named = f"name = {mark}{name}{mark}"
    registered = [v for v in client.search_model_versions(is_named) if v.tags.get("study_id") == tracking.study_id]
    versions = {version.tags["key"]: version.version for version in registered}
    for record in confirmed:
        if record.key not in versions:
            if not client.search_registered_models(is_named):
                client.create_registered_model(name)
            versions[record.key] = _create_version(tracking, name, record)
            yield Registered(name, versions[record.key], record.key)
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
    with local_model(record.model) as model, tempfile.TemporaryDirectory() as methods, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*input example was not provided")  # not needed, as we pass a signature
        artifacts, included_methods = {"model": str(model)}, included()
        if included_methods is not None and included_methods.has(base_method(record.method)):
            for name, text in included_methods.sources.items():
                (Path(methods) / name).write_text(text, encoding="utf-8")
            artifacts["methods"] = methods
        mlflow.pyfunc.save_model(
            folder,
            python_model=str(SERVED_MODEL),
            artifacts=artifacts,
            code_paths=[str(path) for path in CODE],
            signature=_signature(record),
            pip_requirements=[f"{name}=={versions[name]}" for name in REQUIREMENTS if name in versions],
        )


def _signature(record: Record) -> Any:
    """Build the model's signature: the task's text columns as input, `prediction` and `exit_layer` as output."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    from trainables.data.tasks import find_task

    task = find_task(record.task)
    answer = DataType.double if task.is_regression else DataType.string
    return ModelSignature(
        inputs=Schema([ColSpec(DataType.string, column) for column in task.text_columns]),
        outputs=Schema([ColSpec(answer, "prediction"), ColSpec(DataType.long, "exit_layer")]),
    )
