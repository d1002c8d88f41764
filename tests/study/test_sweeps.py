"""Sweeps: the values of a field as rows of one study (--vary): pytest tests/study/test_sweeps.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.launches import WITHOUT_RAY
from helpers.launches_here import launching_here
from helpers.messages import says
from helpers.plan_files import plan_from

import analysis
from study import launch
from study.plans.plan import Plan
from study.plans.resolution import resolve
from study.plans.sweeps import describe_sweeps
from trainables.configuration.schema import to_plain

VALUES = ("palbert:beta=0.1", "palbert:beta=0.3", "palbert:beta=0.5")
MINI = ("--profile", "mini", "--task", "rte")


def planned(*arguments: str) -> Plan:
    return plan_from(*MINI, *arguments)


def test_each_value_is_a_method_with_all_seeds_and_no_search():
    plan = resolve(planned("--vary", "PALBERT:beta=0.1,.3, 5e-1"))
    assert plan.request.methods == VALUES and plan.request.baseline == VALUES[0] and plan.request.samples == 0
    assert [(arm.fixed["beta"], arm.samples, len(arm.seeds)) for arm in plan.arms] == [
        (0.1, 0, 5),
        (0.3, 0, 5),
        (0.5, 0, 5),
    ]
    others = [{name: value for name, value in arm.fixed.items() if name != "beta"} for arm in plan.arms]
    assert others[0] == others[1] == others[2]
    assert describe_sweeps(plan) == [
        "palbert:beta has the values 0.1, 0.3 and 0.5, each with all seeds and without a search"
    ]


def test_other_fields_are_searched_on_request_and_named():
    plan = resolve(planned("--vary", "palbert:beta=0.1,0.3", "--samples", "3", "--search-only", "learning_rate"))
    assert [(arm.samples, [*arm.space]) for arm in plan.arms] == [(3, ["learning_rate"])] * 2
    assert describe_sweeps(plan)[0].endswith("each with all seeds and a search of learning_rate")


def test_values_beside_other_methods_and_another_baseline():
    plan = resolve(planned("--method", "albert", "--vary", "palbert:beta=0.1,0.3", "--vary", "pabee:patience=2,4"))
    assert plan.request.methods == ("albert", *VALUES[:2], "pabee:patience=2", "pabee:patience=4")
    assert plan.request.baseline == "albert"
    assert planned("--vary", "palbert:beta=0.1,0.3", "--baseline", "palbert:beta=.3").baseline == VALUES[1]


def test_settings_of_the_method_hold_for_each_value():
    plan = resolve(planned("--vary", "palbert:beta=0.1,0.3", "--set", "palbert:q=0.7", "--set", "palbert/rte:epochs=2"))
    assert {(arm.fixed["q"], arm.epochs) for arm in plan.arms} == {(0.7, 2)}


def test_range_of_a_profile_gives_way_to_the_values(tmp_path):
    asked = [*MINI[2:], "--profile", "small", "--backbone", "mini-albert", "--data", "mini"]
    small = plan_from(*asked, "--vary", "palbert:beta=0.1,0.3")
    assert [arm.fixed["beta"] for arm in resolve(small).arms] == [0.1, 0.3]


def test_search_of_a_plan_file_stays_for_values_of_the_command(tmp_path):
    file = tmp_path / "plan.toml"
    lines = 'profile = "mini"\nmethods = ["albert"]\ntasks = ["rte"]\nsearch_only = ["learning_rate"]\n'
    for more in ("samples = 8\n", "[search]\nlearning_rate = { low = 3e-4, high = 3e-3, log = true }\n"):
        file.write_text(lines + more)
        plan = resolve(plan_from("--plan", str(file), "--method", "albert", "--vary", "palbert:beta=0.1,0.3"))
        assert all(arm.samples and [*arm.space] == ["learning_rate"] for arm in plan.arms)


def test_plan_file_has_a_table_of_values(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text('profile = "mini"\ntasks = ["rte"]\n[vary]\npalbert.beta = [0.1, 0.3, 0.5]\n')
    plan = plan_from("--plan", str(file))
    assert to_plain(plan) == to_plain(planned("--vary", "palbert:beta=0.1,0.3,0.5"))


@pytest.mark.parametrize(("method", "is_kept"), [("albert", False), ("palbert:beta=0.3", True)])
def test_settings_of_a_plan_file_follow_the_values_that_are_kept(method, is_kept, tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(
        'profile = "mini"\nmethods = ["albert"]\ntasks = ["rte"]\n[vary]\npalbert.beta = [0.1, 0.3]\n'
        "[set.palbert]\nq = 0.7\n"
    )
    plan = plan_from("--plan", str(file), "--method", method)
    assert ("palbert:q" in plan.settings) == is_kept and [arm.method for arm in resolve(plan).arms] == [method]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--vary", "beta=0.1,0.3"], ["--vary beta=0.1,0.3: ", "allowed: METHOD:FIELD=A,B,C"]),
        (["--vary", "palbert/rte:beta=0.1,0.3"], ["--vary palbert/rte:beta", "allowed: METHOD:FIELD=A,B,C"]),
        (["--vary", "palbert:a:beta=0.1,0.3"], ["--vary palbert:a:beta", "allowed: METHOD:FIELD=A,B,C"]),
        (["--vary", "palbert:beta=0.1"], ["palbert:beta has one value", "two or more, or --set"]),
        (["--vary", "palbert:beta=0.1,.1"], ["palbert:beta repeats a value"]),
        (["--vary", "palbert:bet=0.1,0.3"], ["no field of palbert named 'bet'", "did you mean beta?"]),
        (["--vary", "palbert:beta=a,b"], ["palbert:beta", "a number"]),
        (["--vary", "palbert:beta=0.1..0.3,0.5"], ["palbert:beta", "0.1..0.3", "allowed"]),
        (["--vary", "palbert:beta=-1,0.3"], ["beta", "-1"]),
        (["--vary", "palbrt:beta=0.1,0.3"], ["no method named 'palbrt'", "did you mean palbert?"]),
        (
            ["--vary", "palbert:beta=0.1,0.3", "--set", "beta=0.2"],
            ["--set beta: palbert:beta=0.1 already has a value of beta; leave out one of the two"],
        ),
    ],
)
def test_invalid_sweep_is_refused_in_one_line(arguments, parts, tmp_path, capsys):
    assert launch.main([*MINI, *arguments, "--out", str(tmp_path), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert says(error, *parts) and error.count("\n") == 1, error


@pytest.mark.long
@pytest.mark.slow
def test_every_value_has_a_row_and_a_test_against_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = ["--seeds", "2", "--epochs", "1", "--tracking-uri", "none", *WITHOUT_RAY]
    asked = [*MINI, "--vary", "palbert:beta=0.1,0.3,0.5", *small, "--out", str(tmp_path), "--name", "s"]
    with launching_here():
        assert launch.main(asked) == 0
    assert says(capsys.readouterr().err, "palbert:beta has the values 0.1, 0.3 and 0.5, ", "without a search")
    table = (tmp_path / "s" / "tables" / "dev.md").read_text()
    assert all(f"| {name} " in table for name in VALUES)
    study = analysis.load(tmp_path / "s")
    assert {*study.records[study.records.counts].method} == {*VALUES} and len(study.records) == 6
    picture = next((tmp_path / "s" / "pictures").glob("score-against-layers*.svg"), None)
    assert picture is None or all(name in picture.read_text() for name in VALUES)
