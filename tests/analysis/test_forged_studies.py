"""Lies, and what of `analysis.verify` finds them: python -m pytest tests/analysis/test_forged_studies.py

docs/certainty.md has the same lies, one a line.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from helpers.edited_studies import has
from helpers.forged_studies import (
    confirm_records,
    copies_of_best_seed,
    forge_predictions,
    remove_method,
    rewrite_journal,
    right_answers,
)
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import write_records
from helpers.trained_studies import trained_study
from mlflow.tracking import MlflowClient

from analysis.verify import main, verify
from study.facts.events import FILE
from study.facts.plan_file import FILE as PLAN
from study.facts.study_folder import compute_journal_digest, compute_plan_digest
from study.mirror import main as mirror_command
from study.mirror import mirror
from study.plans.resolved_plan import digest

pytestmark = pytest.mark.slow

ARM = "palbert/rte"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two methods, which an MLflow beside it has heard of."""
    folder = tmp_path_factory.mktemp("runs")
    plan = mini_plan(methods=("palbert", "pondernet"), tasks=("rte", "stsb"))
    study = launched_study(folder / "study", plan)
    mirror(study, f"sqlite:///{folder / 'mlflow.db'}")
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "runs") / "study"


@pytest.fixture
def asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow is asked in this process, not in one that imports it first."""

    def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert module == "study.mirror"
        with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as told:
            status = mirror_command([*arguments])
        return subprocess.CompletedProcess(arguments, status, printed.getvalue(), told.getvalue())

    monkeypatch.setattr("analysis.verify._run", run)


def store_of(study: Path) -> str:
    """The MLflow that was told of the study."""
    return f"sqlite:///{study.with_name('mlflow.db')}"


def improve(study: Path) -> None:
    """Mends a third of the answers of every seed, and all else so that it agrees."""
    forge_predictions(study, [(row, right_answers(study, row, share=0.3)) for row in confirm_records(study, ARM)])


def remove(study: Path) -> None:
    remove_method(study, "pondernet", with_files=True)


@pytest.mark.long
def test_true_study_agrees_with_its_mlflow(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(study), "--against", store_of(study)]) == 0
    (study / FILE).write_text((study / FILE).read_text())
    assert mirror_command([str(study), "--tracking-uri", store_of(study), "--compare"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.long
def test_journal_that_went_on_agrees_with_what_mlflow_has_of_it(study: Path) -> None:
    before = compute_journal_digest(study)
    launched_study(study, mini_plan(methods=("palbert", "pondernet"), tasks=("rte", "stsb"), samples=4))
    assert compute_journal_digest(study).lines > before.lines
    drift = verify(study, against=store_of(study))
    assert drift and all(line.endswith(" is missing from MLflow") for line in drift), drift


def test_deleted_journal_is_found(study: Path) -> None:
    (study / FILE).unlink()
    assert verify(study) == [f"{study / FILE} is missing, so nothing shows where the numbers come from"]


def test_copies_of_the_best_seed_are_found(study: Path) -> None:
    first, second = confirm_records(study, ARM)
    copies_of_best_seed(study, ARM)
    (line,) = verify(study)
    assert line.startswith("the tables cannot be recomputed: ")
    assert f"{ARM}: seeds {first.seed} and {second.seed} have the same predictions to the last bit" in line


@pytest.mark.parametrize(
    "edited", [{"methods": ["palbert"]}, {"tasks": ["rte"]}, {"data": "hub"}], ids=lambda edited: next(iter(edited))
)
def test_plan_that_hides_rows_or_their_origin_is_found(study: Path, edited: dict[str, object]) -> None:
    path = study / PLAN
    content = json.loads(path.read_text())
    content["plan"]["asked"] |= edited
    del content["digest"]
    path.write_text(json.dumps(content | {"digest": digest(content)}))
    assert has(verify(study), "plan.json:", "asked")


def test_method_that_left_its_files_is_found(study: Path) -> None:
    (row, *_) = confirm_records(study, "pondernet/rte")
    remove_method(study, "pondernet", with_files=False)
    drift = verify(study)
    assert has(drift, f"{study}/predictions/{row.key}.npz belongs to no completed confirm trial")
    assert has(drift, f"{study}/trials/{row.key} belongs to no trial of the journal")


@pytest.mark.long
@pytest.mark.usefixtures("asked_here")
@pytest.mark.parametrize("lie", [improve, pytest.param(remove, marks=pytest.mark.long)], ids=lambda lie: lie.__name__)
def test_whole_forgery_is_found_by_mlflow_alone(study: Path, lie: Callable[[Path], None]) -> None:
    (row, _) = confirm_records(study, ARM)
    lie(study)
    assert verify(study) == []  # all of the folder agrees
    drift = verify(study, against=store_of(study))
    found = "MLflow has no copy of this study" if lie is remove else " lines was "
    assert has(drift, store_of(study), found), drift
    if lie is improve:
        (now, _) = confirm_records(study, ARM)
        assert has(drift, f"trial {row.key} of {ARM}: score is {row.score} in MLflow, but {now.score} in the journal")


@pytest.mark.long
def test_removed_trial_is_found_in_mlflow(study: Path) -> None:
    searched = next(key for key in (place.name for place in (study / "trials").iterdir()))
    rewrite_journal(study, lambda line: None if line.get("key") == searched else line)
    assert has(verify(study, against=store_of(study)), f"trial {searched} of ", "is missing from the journal")


@pytest.mark.long
def test_plan_that_was_changed_after_its_registration_is_found(study: Path) -> None:
    registered = {"event": "plan_registered", "time": "2026-01-01T00:00:00.000000+00:00", "place": "git tag plan-x"}
    lines = (study / FILE).read_text().splitlines(keepends=True)
    lines.insert(1, json.dumps(registered | {"digest": compute_plan_digest(study)}) + "\n")
    (study / FILE).write_text("".join(lines))
    assert not has(verify(study), "registered")
    remove(study)
    assert has(verify(study), "events.jsonl: plan registered as git tag plan-x is ")


@pytest.mark.long
def test_model_that_answers_otherwise_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = trained_study(tmp_path / "study", "pabee", "sst2", config={"num_hidden_layers": 3, "patience": 1})
    study = tmp_path / "study"
    write_records(study, [best])
    answered = verify(study, again=1)
    assert not has(answered, "stored model"), answered
    assert "pabee/sst2 confirm seed 43 " in capsys.readouterr().out
    arrays = right_answers(study, best, share=0.3)
    np.savez(study / "predictions" / f"{best.key}.npz", **arrays)
    assert has(verify(study, again=1), "differs from the predictions of the stored model of pabee/sst2 confirm seed 43")
    with pytest.raises(ValueError, match=f"--again 2: {study} has 1 stored model"):
        verify(study, again=2)


def test_comparison_that_fails_is_no_agreement(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "__init__.py").write_text("raise RuntimeError('half an upgrade')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ValueError, match="--against: RuntimeError: half an upgrade"):
        verify(study, against=store_of(study))


@pytest.mark.usefixtures("asked_here")
def test_run_that_mlflow_has_in_part_is_found(study: Path) -> None:
    client = MlflowClient(tracking_uri=store_of(study))
    key = confirm_records(study, ARM)[0].key
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()], f"tags.key = '{key}'")
    client.delete_tag(run.info.run_id, "level")
    assert verify(study, against=store_of(study)) == []
    client.delete_run(run.info.run_id)
    (line,) = verify(study, against=store_of(study))
    assert line.endswith(f"trial {key} of {ARM} is missing from MLflow")


@pytest.mark.usefixtures("asked_here")
def test_store_that_is_not_there_is_refused_and_not_made(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(study), "--against", f"sqlite:///{study}/typo.db"]) == 2
    assert "analysis.verify: --against: " in capsys.readouterr().err
    assert not (study / "typo.db").exists()
