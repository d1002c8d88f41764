"""Searches that begin with the winners of another study: pytest tests/study/test_first_from.py"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from helpers import launched_studies
from helpers.launched_studies import launched_study
from helpers.simulation import Simulation

from analysis.layouts.search_notes import first_from_notes
from analysis.studies.cells import make_rows
from analysis.studies.load import load_study
from study import launch
from study.decisions.progress import compute_progress
from study.facts.plan_file import format_plan, read_toml, require_plan
from study.facts.study_facts import read_facts
from study.launching import planned_study
from study.plans.resolution import explain, resolve
from study.plans.resolved_plan import ResolvedPlan


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    """A finished study of ALBERT and PALBERT on RTE, which is only read."""
    return launched_study(tmp_path_factory.mktemp("runs") / "other", planned("albert,palbert", "rte"))


def planned(methods: str, tasks: str, *more: str) -> ResolvedPlan:
    what = ["--profile", "mini", "--method", methods, "--task", tasks, "--seeds", "2", "--samples", "3", *more]
    return planned_study.resolve_study(
        launch.main.parser().options([*what, "--out", "/nowhere", "--name", "new"])
    ).resolved


def won(study: Path, arm: str) -> dict:
    """The tuned values of an arm's winner."""
    plan = require_plan(study).plan
    winner = compute_progress(plan, read_facts(study)).arm(arm).winner
    return {name: winner.config[name] for name in plan.arm(arm).space}


def test_each_arm_tries_its_winner_of_the_other_study_first(other):
    plan = planned("albert,palbert", "rte", "--first-from", str(other))
    simulation = Simulation(plan, slots=1)
    scheduler = simulation.launch()
    for arm in scheduler.progress.arms:
        values = won(other, arm.name)
        first = arm.facts.search[0].config
        assert {name: first[name] for name in values} == values and len(arm.facts.search) == 3


def test_new_task_starts_with_winner_of_other_task(other):
    plan = planned("palbert", "cola", "--first-from", str(other))
    assert plan.arm("palbert/cola").first == (won(other, "palbert/rte"),)


def test_grid_begins_with_the_points_that_hold_a_winner(tmp_path):
    other = launched_study(tmp_path / "other", planned("palbert", "rte", "--search-only", "beta", "--sampler", "grid"))
    plan = planned("palbert", "rte", "--first-from", str(other), "--sampler", "grid")
    arm, values = plan.arm("palbert/rte"), won(other, "palbert/rte")
    assert list(values) == ["beta"] and len(arm.space) > 1
    holds = [values.items() <= point.items() for point in arm.first]
    assert holds[0] and holds == sorted(holds, reverse=True)
    (line, *_) = [line for line in explain(plan, "palbert/rte", origins={}).splitlines() if "first tries" in line]
    assert str(other) in line


def test_plan_keeps_values_and_origin_without_source_study(other, tmp_path):
    moved = shutil.copytree(other, tmp_path / "moved")
    plan = planned("palbert", "rte", "--first-from", str(moved))
    shutil.rmtree(moved)
    (tmp_path / "plan.toml").write_text(format_plan(plan.request))
    again = read_toml(tmp_path / "plan.toml")
    assert resolve(again).arms == plan.arms
    rate = won(other, "palbert/rte")["learning_rate"]
    told = explain(resolve(again), "palbert/rte", origins={})
    lines = [line for line in told.splitlines() if "search first tries" in line]
    assert len(lines) == 1 and f"learning_rate {rate}" in lines[0] and lines[0].endswith(f"({moved}, palbert/rte)")


def test_a_dry_run_names_the_winners_that_are_tried_first(other, tmp_path, capsys):
    asked = ["--profile", "mini", "--method", "palbert", "--task", "rte,cola", "--first-from", str(other)]
    assert launch.main([*asked, "--dry-run", "--out", str(tmp_path)]) == 0
    said = f"searches of palbert/rte, palbert/cola first try the winner of {other}, palbert/rte\n"
    assert said in capsys.readouterr().out


def test_values_outside_a_range_are_refused(other):
    with pytest.raises(ValueError, match=r", palbert/rte has \w+ \S+, which is outside the range of palbert/rte, "):
        planned("palbert", "rte", "--first-from", str(other), "--backbone", "mini-albert", "--sampler", "grid")


def test_a_study_without_a_winner_of_the_methods_is_refused(other):
    with pytest.raises(
        ValueError,
        match="the study has these winners: albert/rte, palbert/rte; allowed: a study with a winner of pabee",
    ):
        planned("pabee", "rte", "--first-from", str(other))


def test_arms_with_trials_are_not_begun_again(other, tmp_path):
    study = launched_study(tmp_path / "study", planned("palbert", "rte"))
    options = ["--continue", str(study), "--first-from", str(other)]

    def continued(*more: str) -> ResolvedPlan:
        return planned_study.resolve_study(launch.main.parser().options([*options, *more])).resolved

    with pytest.raises(ValueError, match=r"--first-from: palbert/rte of .* already has trials"):
        continued()
    plan = continued("--method", "albert")
    assert plan.arm("albert/rte").first == (won(other, "albert/rte"),) and not plan.arm("palbert/rte").first


def test_study_keeps_its_winners_from_another_path_and_with_a_new_method(other, tmp_path):
    began = planned("palbert", "rte", "--first-from", os.path.relpath(other))
    launched_studies.launch(tmp_path / "new", began, killed_after=1)
    what = ["--profile", "mini", "--task", "rte", "--seeds", "2", "--samples", "3", "--first-from", str(other)]
    for method in ("palbert", "albert"):
        options = launch.main.parser().options([*what, "--method", method, "--out", str(tmp_path), "--name", "new"])
        plan = planned_study.resolve_study(options).resolved
        assert plan.request.list_firsts("palbert/rte") == began.request.list_firsts("palbert/rte")
        assert plan.arm(f"{method}/rte").first == (won(other, f"{method}/rte"),)


def test_plan_is_the_same_however_the_other_study_is_named(other):
    """So the tag of a dry run is the tag of a launch that names it in another way."""
    named = [planned("palbert", "rte", "--first-from", name) for name in (str(other), os.path.relpath(other))]
    assert named[0] == named[1]


def test_winner_without_a_tuned_field_is_not_claimed_to_be_tried(tmp_path, capsys):
    other = launched_study(tmp_path / "other", planned("palbert", "rte", "--search-only", "learning_rate"))
    options = ["--profile", "mini", "--method", "palbert", "--task", "rte", "--first-from", str(other)]
    assert launch.main([*options, "--search-only", "beta", "--out", "/nowhere", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert f"searches of palbert/rte do not try the winner of {other}, palbert/rte: " in printed
    plan = planned("palbert", "rte", "--first-from", str(other), "--search-only", "beta")
    assert "the search first tries" not in explain(plan, "palbert/rte", origins={})
    assert first_from_notes(make_rows([load_study(launched_study(tmp_path / "own", plan))])) == []
