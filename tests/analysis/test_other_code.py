"""Numbers of another code than the study began with are marked: pytest tests/analysis/test_other_code.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import launched_studies
from helpers.launched_studies import launch, mini_plan
from msgspec.structs import replace

from analysis.verify import verify
from study.facts.plan_on_disk import require_plan
from study.mlflow_mirror.follower import Mirror
from study.mlflow_mirror.run_content import StudyRuns

TOLD = "trained with other code than the study's first launch (commit 0123abc4, sources c0de): "


@pytest.fixture
def extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of one arm, extended by another after the code was changed."""
    folder = tmp_path / "mine"
    launch(folder, mini_plan(methods=("albert",), tasks=("rte",)))
    assert TOLD not in (folder / "tables" / "dev.md").read_text()
    other = replace(launched_studies.PROVENANCE, git_commit="beef", code_digest="f00d")
    monkeypatch.setattr(launched_studies, "PROVENANCE", other)
    launch(folder, mini_plan(methods=("albert", "pondernet"), tasks=("rte",)))
    return folder


def test_the_caption_names_the_arms(extended: Path) -> None:
    (line,) = [line for line in (extended / "tables" / "dev.md").read_text().splitlines() if TOLD in line]
    assert line.endswith(f"{TOLD}pondernet/rte (commit beef, sources f00d)")
    assert [drift for drift in verify(extended) if "events.jsonl" in drift or "dev." in drift] == []


def test_runs_in_mlflow_have_a_tag(extended: Path) -> None:
    mirror = Mirror(extended, uri="")
    mirror.read()
    runs = StudyRuns("mine", require_plan(extended), mirror.facts, mirror.reports)
    tags = {run.key: run.tags.get("other_code") for run in (runs.arm("albert/rte"), runs.arm("pondernet/rte"))}
    assert tags == {"albert/rte": None, "pondernet/rte": "commit beef, sources f00d"}
    trials = mirror.facts.trials.values()
    marked = {trial.started.arm for trial in trials if "other_code" in runs.trial(trial.key).tags}
    assert marked == {"pondernet/rte"}
