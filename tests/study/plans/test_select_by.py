"""What trials are selected by, as part of the protocol: pytest tests/study/plans/test_select_by.py"""

from __future__ import annotations

import json

import pytest
from helpers.launched_studies import mini_plan
from helpers.plan_files import plan_from
from helpers.simulation import Simulation

from study.decisions.progress import compute_progress
from study.decisions.scheduler import specify_trial
from study.facts.plan_file import compare_plans, format_plan, read_toml
from study.facts.study_facts import StudyFacts
from study.launching.forecast import forecast_plan
from study.plans.plan import Plan
from study.plans.resolution import explain, resolve
from study.plans.samplers import read_select_by
from trainables.configuration.schema import to_plain

ONE_ARM = {"methods": ("pabee",), "tasks": ("rte",)}


def plan_of_pabee(*arguments: str) -> Plan:
    return plan_from("--method", "pabee", "--task", "rte", *arguments)


@pytest.mark.parametrize(("text", "rule"), [("at:6", "at:6"), ("at:6.0", "at:6"), ("at:4.5", "at:4.5"), ("area",) * 2])
def test_rule_is_a_field_of_plan_and_protocol(text, rule):
    plan = resolve(plan_of_pabee("--select-by", text))
    assert plan.request.select_by == plan.protocol.select_by == rule


@pytest.mark.parametrize("text", ["at", "at:", "at:0.5", "at:nan", "at:inf", "at:x", "speed"])
def test_unknown_rule_is_refused(text):
    with pytest.raises(ValueError, match=r"^--select-by is .*; allowed: score, area, at:LAYERS "):
        read_select_by(text)


@pytest.mark.parametrize(
    ("words", "most"), [(["--select-by", "at:40"], 6), (["--select-by", "at:6", "--set", "num_hidden_layers=4"], 4)]
)
def test_more_layers_than_every_model_has_are_refused(words, most):
    with pytest.raises(ValueError, match=f" at most {most} layers, .* allowed: at:1 to"):
        resolve(plan_of_pabee(*words))


@pytest.mark.parametrize("depths", ["0,3", "3,0", "2,6"])
def test_search_with_one_depth_that_suffices_is_allowed(depths):
    plan = resolve(plan_of_pabee("--select-by", "at:4", "--search", f"num_hidden_layers={depths}"))
    assert plan.protocol.select_by == "at:4"


@pytest.mark.parametrize(("depths", "most"), [("0,3", 6), ("2,3", 3)])
def test_searched_depths_that_all_have_too_few_layers_are_refused(depths, most):
    with pytest.raises(ValueError, match=f" at most {most} layers, "):
        resolve(plan_of_pabee("--select-by", "at:7", "--search", f"num_hidden_layers={depths}"))


def test_study_with_such_a_rule_can_still_be_continued():
    plan = plan_of_pabee("--select-by", "at:40")
    assert resolve(plan, pins={}).protocol.select_by == "at:40"


def test_select_at_names_the_option():
    with pytest.raises(ValueError, match=r"did you mean --select-by\?"):
        plan_of_pabee("--select-at", "6")


def test_study_by_score_keeps_hash_and_file():
    plain, other = mini_plan(**ONE_ARM), mini_plan(**ONE_ARM, select_by="at:6")
    assert resolve(plan_of_pabee("--select-by", "score")).protocol_hash == resolve(plan_of_pabee()).protocol_hash
    assert "select_by" not in json.dumps(to_plain(plain))
    assert compare_plans(plain, other) == ['protocol select_by null -> "at:6"']


def test_trials_of_both_phases_are_selected_by_it():
    simulation = Simulation(mini_plan(**ONE_ARM, select_by="at:6"))
    progress = simulation.launch().progress
    trials = progress.facts.trials.values()
    specs = [specify_trial(progress.plan, progress.facts, trial) for trial in trials]
    assert {trial.phase for trial in trials} == {"search", "confirm"}
    assert {spec.select_by for spec in specs} == {"at:6"}


def test_dry_run_and_explain_say_it(tmp_path):
    plan = plan_of_pabee("--select-by", "at:6")
    words = "best score within 6 mean layers"
    progress = compute_progress(resolve(plan), StudyFacts())
    assert any(words in line for line in forecast_plan(progress, tmp_path).lines)
    explained = explain(resolve(plan), "pabee/rte", origins={})
    assert explained.startswith("pabee/rte\n") and words in explained


def test_plan_files_keep_it(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(format_plan(plan_of_pabee("--select-by", "area")))
    assert read_toml(file).select_by == "area"
    file.write_text(file.read_text().replace('"area"', '"speed"'))
    with pytest.raises(ValueError, match="--select-by is 'speed'"):
        resolve(read_toml(file))
