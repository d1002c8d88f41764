"""What confirm trials left, predictions and models, against their records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.studies.load import Study
from analysis.studies.stored_predictions import disagreements, read_predictions
from analysis.verification.differences import differences
from analysis.verification.records_file import name_of
from study.decisions.specs import pretraining_spec, trial_spec
from study.facts.record import SIZES, Record, held_out_scores
from study.facts.study_folder import predictions_digest, predictions_file
from study.storage.addresses import is_uri
from study.storage.stored_models import lies_now
from trainables.encoders.backbones import backbone_fingerprint
from trainables.schema import to_plain

DESCRIPTION = "model.json"
_PLACES = ("data", "backbone", "tokenizer")  # of a spec: names, or paths from the folder that the launch stood in


def predictions_drift(study: Study) -> list[str]:
    """Where a predictions file is another than its record names, or gives other numbers."""
    folder = study.folder / "predictions"
    if not folder.is_dir():
        return []
    confirmed = _confirmed(study)
    expected = {predictions_file(study.folder, record.key) for record in confirmed}
    strangers = sorted(path for path in folder.glob("*.npz") if path not in expected)
    return [f"{path} belongs to no completed confirm record" for path in strangers] + [
        line for record in confirmed for line in _prediction_lines(study, record)
    ]


def models_drift(study: Study) -> list[str]:
    """Where the description of a model is not of its record's trial. Weights and models under a URI are not read."""
    lines, encoders = [], dict[str, tuple[Path, Any]]()
    for record in _confirmed(study):
        if record.model is None or is_uri(record.model):
            continue
        path = Path(lies_now(record.model, folder=study.folder, key=record.key)) / DESCRIPTION
        try:
            found = json.loads(path.read_text())
            first, encoder = encoders.setdefault(record.arm, (path, found["encoder"]))
            lines += differences(f"{path}:", _described(found), _expected_description(study, record, found))
            lines += differences(f"{path}: encoder", found["encoder"], encoder)  # one backbone and configuration
        except OSError:
            lines.append(f"{path} is missing: the model of {name_of(record)}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            lines.append(f"{path} describes no model: {type(error).__name__}: {error}")
    return lines + [line for record in study.pretrained for line in _pretrained_model_drift(study, record)]


def _pretrained_model_drift(study: Study, record: Record) -> list[str]:
    """Where the model that all trials start from is not described as its record says, or its files are others."""
    if record.model is None or is_uri(record.model):
        return []
    folder = Path(lies_now(record.model, folder=study.folder, key=record.key))
    try:
        found = json.loads((folder / DESCRIPTION).read_text())
        fingerprint = backbone_fingerprint(str(folder))
    except (OSError, ValueError) as error:
        return [f"{folder}: the model of {name_of(record)} is missing or broken: {error}"]
    metrics = record.metrics
    expected: dict[str, Any] = {"spec": found.get("spec"), "scores": held_out_scores(record)}
    expected |= {name: metrics[name] for name in SIZES}
    if record.key in study.facts.trials:
        trial = study.facts.trials[record.key]
        spec = to_plain(pretraining_spec(study.file.plan, trial))
        expected["spec"] = spec | {name: found["spec"].get(name) for name in ("corpus", "backbone", "tokenizer")}
        outcome = trial.last.report.outcome if trial.last else None
        wanted = outcome.model_fingerprint if outcome else None
        if fingerprint != wanted:
            return [f"{folder}: content is {fingerprint}; should be {wanted}, as its trial left it"]
    return differences(f"{folder / DESCRIPTION}:", found, expected)


def _confirmed(study: Study) -> list[Record]:
    return [record for record in study.records if record.phase == "confirm" and record.status == "completed"]


def _prediction_lines(study: Study, record: Record) -> list[str]:
    path = predictions_file(study.folder, record.key)
    try:
        predictions = read_predictions(study, record)
    except ValueError as error:
        return [str(error)]
    if predictions is None:
        return [f"{path} is missing: the predictions of {name_of(record)}"]
    lines = differences(f"{path}: SHA-256", predictions_digest(study.folder, record.key), record.predictions_digest)
    try:
        found = disagreements(record, predictions)
    except (ValueError, IndexError) as error:  # labels or settings that the task does not have
        found = [f"no numbers can be made of it: {error}"]
    return lines + [f"{path} does not belong to the record of {name_of(record)}: {'; '.join(found)}"] * bool(found)


def _described(description: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in description.items() if name != "encoder"}


def _expected_description(study: Study, record: Record, found: dict[str, Any]) -> dict[str, Any]:
    """What the description should say; of a path, as much as the plan says of it."""
    expected = {"spec": found["spec"], "epoch": record.epoch, "selection_score": record.selection_score}
    if record.key in study.facts.trials:
        facts = study.facts
        spec = to_plain(trial_spec(study.file.plan, facts, facts.trials[record.key]))
        asked, arm = study.file.plan.asked, study.file.plan.arm(record.arm)
        for name, value in zip(_PLACES, (asked.data, arm.backbone, arm.tokenizer), strict=True):
            if value is not None and spec[name] != value and str(found["spec"].get(name)).endswith(f"/{Path(value)}"):
                spec[name] = found["spec"][name]
        if spec["start"] and Path(str(found["spec"].get("start"))).parts[-2:] == Path(spec["start"]).parts[-2:]:
            spec["start"] = found["spec"]["start"]  # the study was moved before the trial began
        expected["spec"] = spec
    return expected
