"""An extension finds a new winner: every place shows the same median. pytest tests/study/test_one_winner.py

The former winner was confirmed on five seeds with a median of 65, the new one with 80. A median over all ten would be
70 or so.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from statistics import median

import pytest
from helpers.journals import MadeJournal
from helpers.made_studies import CONFIG, record, write_study
from helpers.mlflow_stores import stored_runs
from helpers.trials import run_to_the_end, spec_of
from msgspec.structs import replace

from analysis import load
from analysis.studies.load import load_study
from analysis.tables import write_tables
from study.decisions.progress import read_progress
from study.facts.record import Record
from study.mirror import main as mirror
from study.mlflow_mirror.tracking import build_default_uri
from study.submit import choose_models
from study.submit import main as submit

pytestmark = pytest.mark.usefixtures("few_rows")

FORMER, NEW = CONFIG, CONFIG | {"learning_rate": 3e-5}
FORMER_SCORES, NEW_SCORES = [0.60, 0.62, 0.65, 0.70, 0.90], [0.78, 0.79, 0.80, 0.81, 0.82]  # the best model is former


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A really trained model, which every confirm trial left."""
    folder = tmp_path_factory.mktemp("trained")
    run = run_to_the_end(spec_of("albert", "rte", config={"epochs": 1}), folder / "cache")
    run.save(folder)
    return run.outcome().model


@pytest.fixture(scope="module")
def study(tmp_path_factory, model: str) -> Path:
    """A study of one arm, extended by a search trial that won."""
    folder = tmp_path_factory.mktemp("runs") / "extended"
    searched = [
        record("albert", "rte", score, phase="search", seed=trial, trial=trial, config=config)
        for trial, (score, config) in enumerate([(0.70, FORMER), (0.85, NEW)])
    ]
    confirmed = [
        record("albert", "rte", score, seed=42 + seed, trial=5 * number + seed, config=config, model=model)
        for number, (config, scores) in enumerate([(FORMER, FORMER_SCORES), (NEW, NEW_SCORES)])
        for seed, score in enumerate(scores)
    ]
    journal = MadeJournal(folder)
    write_study(folder, [], methods=["albert"], tasks=["rte"], data="mini")
    hash_of_plan = load_study(folder).protocol_hash
    journal.begin()
    for row in (searched[0], *confirmed[:5], searched[1], *confirmed[5:]):
        journal.take(replace(row, protocol_hash=hash_of_plan))
    journal.end()
    return folder


def by_config(study: Path, config: dict) -> list[Record]:
    records = load_study(study).records
    return [row for row in records if row.phase == "confirm" and dict(row.config) == config]


def test_the_study_has_two_medians_to_choose_from(study):
    assert median(row.score for row in by_config(study, FORMER)) == 0.65
    assert median(row.score for row in by_config(study, NEW)) == 0.80


def test_decisions_and_status(study):
    (arm,) = read_progress(study).arms
    assert arm.median == 0.80 and arm.missing == "" and dict(arm.winner.config) == NEW


def test_the_table(study, tmp_path):
    write_tables([study], tmp_path)
    cells = (tmp_path / "dev.csv").read_text().splitlines()
    assert dict(zip(cells[0].split(","), cells[1].split(","), strict=True))["rte"] == "80.0"


def test_the_frame_of_the_notebooks(study):
    frame = load(study).records
    assert frame.query("counts")["score"].median() == 0.80 and len(frame.query("counts")) == 5


@pytest.mark.slow
def test_mlflow(study, tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert mirror([str(study), "--tracking-uri", uri]) == 0
    runs = stored_runs(uri, study.name)
    assert runs["albert/rte"].data.metrics["score"] == 0.80
    superseded = {key for key, run in runs.items() if run.data.tags.get("superseded") == "true"}
    assert superseded == {row.key for row in by_config(study, FORMER)}


def test_the_submission(study):
    assert choose_models(read_progress(study), None, study)["rte"].score == 0.82
    assert submit([str(study)]) == 0
    with zipfile.ZipFile(study / "submission.zip") as archive:
        assert "RTE.tsv" in archive.namelist()


@pytest.mark.long
@pytest.mark.slow
def test_the_registry_and_the_model_it_serves(study, model):
    """First registered while the former configuration won, then after the extension."""
    from mlflow.tracking import MlflowClient

    uri = build_default_uri(study)
    lines = (study / "events.jsonl").read_bytes().splitlines(keepends=True)
    changed = NEW.items() - FORMER.items()
    first_new = next(n for n, line in enumerate(lines) if json.loads(line).get("config", {}).items() & changed)
    whole = b"".join(lines)
    (study / "events.jsonl").write_bytes(b"".join(lines[:first_new]))
    assert mirror([str(study), "--register"]) == 0
    (study / "events.jsonl").write_bytes(whole)
    assert mirror([str(study), "--register"]) == 0

    client, name = MlflowClient(tracking_uri=uri), f"{study.name}.albert.rte"
    versions = client.search_model_versions(f"name = '{name}'")
    keys = {tag: {v.tags["key"] for v in versions if v.tags["superseded"] == tag} for tag in ("true", "false")}
    assert keys == {
        "true": {row.key for row in by_config(study, FORMER)},
        "false": {row.key for row in by_config(study, NEW)},
    }
    best = client.get_model_version_by_alias(name, "best")
    assert best.tags["score"] == "0.8200"
    winner = max(by_config(study, NEW), key=lambda row: row.score)
    assert client.get_run(best.run_id).data.tags["key"] == best.tags["key"] == winner.key
    registered = [
        json.loads(path.read_text()) for path in Path(best.source.removeprefix("file://")).rglob("model.json")
    ]
    assert registered == [json.loads((Path(model) / "model.json").read_text())]
