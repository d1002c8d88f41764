"""Numbers of another code than the study began with are marked: pytest tests/analysis/test_other_code.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import launched_studies
from helpers.launched_studies import launch, mini_plan
from msgspec.structs import replace

from analysis.verify import verify
from study import status
from study.facts.plan_file import require_plan
from study.mirror import Mirror
from study.mlflow_mirror.run_content import StudyRuns
from study.plans.resolved_plan import ResolvedPlan

pytestmark = pytest.mark.slow

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
    assert line.endswith(f"{TOLD}pondernet/rte used commit beef, sources f00d")
    assert [drift for drift in verify(extended) if "events.jsonl" in drift or "dev." in drift] == []


def test_runs_in_mlflow_have_a_tag(extended: Path) -> None:
    mirror = Mirror(extended, uri="")
    mirror.read()
    runs = StudyRuns("mine", require_plan(extended).plan, mirror.facts, mirror.reports)
    tags = {run.key: run.tags.get("other_code") for run in (runs.arm("albert/rte"), runs.arm("pondernet/rte"))}
    assert tags == {"albert/rte": None, "pondernet/rte": "commit beef, sources f00d"}
    trials = mirror.facts.trials.values()
    marked = {trial.started.arm for trial in trials if "other_code" in runs.trial(trial.key).tags}
    assert marked == {"pondernet/rte"}


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def note_of(folder: Path) -> str | None:
    lines = (folder / "tables" / "dev.md").read_text().splitlines()
    return next((line for line in lines if "trained with other code" in line), None)


def launch_with(monkeypatch: pytest.MonkeyPatch, folder: Path, plan: ResolvedPlan, **code: object) -> None:
    monkeypatch.setattr(launched_studies, "PROVENANCE", replace(launched_studies.PROVENANCE, **code))
    launch(folder, plan)


def test_included_or_edited_method_marks_own_trials_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    launch(folder, mini_plan(methods=("albert",), tasks=("rte",)))
    both = {"methods": ("albert", "pondernet"), "tasks": ("rte",)}
    launch_with(monkeypatch, folder, mini_plan(**both, seeds=3), included={"pondernet": "aaaa"})
    assert note_of(folder) is None
    launch_with(monkeypatch, folder, mini_plan(**both, seeds=4), included={"pondernet": "bbbb"})
    told = f"{TOLD}pondernet/rte (seed 45) used the method's own files bbbb"
    assert note_of(folder) is not None and str(note_of(folder)).endswith(told)
    assert [drift for drift in verify(folder) if "events.jsonl" in drift or "dev." in drift] == []


def test_cell_of_two_versions_lists_seeds_per_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, plan = tmp_path / "mine", {"methods": ("albert",), "tasks": ("rte",)}
    launch_with(monkeypatch, folder, mini_plan(**plan), git_commit=f"{COMMIT}-dirty", code_digest="c8b8" * 4)
    launch_with(monkeypatch, folder, mini_plan(**plan, seeds=4), code_digest="f00d" * 4)
    assert str(note_of(folder)).endswith(
        "first launch (commit 0123456789ab-dirty, sources c8b8c8b8c8b8): albert/rte (seeds 44, 45) used sources "
        "f00df00df00d"
    )


def test_another_engine_marks_nothing_and_status_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, plan = tmp_path / "mine", {"methods": ("albert",), "tasks": ("rte",)}
    with monkeypatch.context() as patch:
        patch.setattr(launched_studies, "PROVENANCE", replace(launched_studies.PROVENANCE, versions={"study": "aaaa"}))
        launch(folder, mini_plan(**plan), killed_after=3)  # two trials are under way, and then have an epoch in both
        launch(folder, mini_plan(**plan))
    launch_with(monkeypatch, folder, mini_plan(**plan, seeds=4), versions={"study": "bbbb"})
    assert note_of(folder) is None
    assert status.main([str(folder)]) == 0
    code = [line for line in capsys.readouterr().out.splitlines() if line.startswith("trained by ")]
    assert code == [
        "trained by launches 1 to 2 (5 trials): commit 0123abc4, sources c0de, study aaaa; format 3",
        "trained by launch 3 (2 trials): commit 0123abc4, sources c0de, study bbbb; format 3",
    ]


def test_a_launch_without_a_folder_is_written_as_ever(extended: Path) -> None:
    assert b'"included":' not in (extended / "events.jsonl").read_bytes()
