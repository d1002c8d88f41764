"""A plan as a file: pytest tests/study/plans/test_toml_file.py"""

import json

import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.plan_files import plan_from, with_lines
from msgspec.structs import replace

from study import launch
from study.facts.plan_file import format_plan, read_toml, require_plan
from study.plans import profiles
from study.plans.plan import Plan
from trainables.configuration.schema import from_plain


@pytest.mark.parametrize("profile", profiles.list_profiles())
def test_the_plan_of_a_profile_comes_back_from_its_file(tmp_path, profile):
    path = tmp_path / "plan.toml"
    path.write_text(format_plan(profiles.load_profile(profile)))
    assert read_toml(path) == profiles.load_profile(profile)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--method", "palbert:a,albert", "--task", "rte,mnli", "--set", "batch_size=8", "--start-from", "rte=mnli"],
        ["--early-stopping", "none", "--baseline", "albert", "--compare", "methods:2", "--epochs", "3"],
    ],
)
def test_requests_round_trip_and_launch(tmp_path, arguments):
    asked = plan_from("--profile", "mini", *arguments)
    path = tmp_path / "plan.toml"
    path.write_text(format_plan(asked))
    assert read_toml(path) == asked == plan_from("--plan", str(path))


MOVED = {
    "tokenizer": ("albert/albert-base-v2", 'tokenizer = "albert/albert-base-v2"'),
    "search_precision": ("bfloat16", 'search_precision = "bfloat16"'),
    "search_repeats": ("3", "search_repeats = 3"),
    "test_across": ("backbones", 'test_across = "backbones"'),
}


@pytest.mark.parametrize("field", MOVED)
def test_the_option_of_a_field_that_only_the_file_sets_names_its_line(tmp_path, capsys, field):
    value, line = MOVED[field]
    flag = f"--{field.replace('_', '-')}"
    assert launch.main(["--task", "rte", flag, value, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert f"; {flag} is a line of the --plan file now: {line}; see --help" in said and said.count("\n") == 1
    asked = plan_from("--profile", "mini", *with_lines(tmp_path, line))
    assert asked == replace(profiles.load_profile("mini"), **{field: int(value) if value.isdecimal() else value})


def test_a_file_without_profile_is_laid_over_that_of_the_command(tmp_path):
    lines = with_lines(tmp_path, "seeds = 3")
    assert plan_from("--profile", "paper", *lines) == replace(profiles.load_profile("paper"), seeds=3)
    assert plan_from(*lines).profile == plan_from().profile


def test_a_file_is_laid_over_the_continued_study(tmp_path, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",)))
    lines = with_lines(tmp_path, 'test_across = "backbones"', "seeds = 9")
    assert launch.main(["--continue", str(folder), *lines, "--dry-run", "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)["plan"]["asked"]
    had = require_plan(folder).plan.request
    assert from_plain(Plan, asked, where="") == replace(had, test_across="backbones", seeds=9)


@pytest.mark.parametrize("also", ["--profile", "--continue"])
def test_a_file_of_another_profile_is_refused(tmp_path, capsys, also):
    place = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",))) if "c" in also else "mini"
    assert launch.main([also, str(place), *with_lines(tmp_path, 'profile = "small"'), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert f"profile is small, but {also} {place} means mini; leave one of them out" in said and said.count("\n") == 1


def test_options_are_laid_over_the_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('methods = ["pabee"]\nsamples = 3\n')
    plan = plan_from("--plan", str(path), "--samples", "5", "--task", "RTE")
    assert (plan.profile, plan.methods, plan.samples, plan.tasks) == ("mini", ("pabee",), 5, ("rte",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("samples = ", "Invalid value"),
        ("sampels = 3", "no field named sampels; available: profile, methods, "),
        ("sampels = 3", "did you mean samples?"),
        (
            'include = "/nonexistent"',
            "plan.toml: include = /nonexistent: No such file or directory; allowed: a folder with",
        ),
        ('profile = "papr"', "plan.toml: no profile named 'papr'; available: auto, ablation"),
        ("profile = 3", "profile is 3; allowed: ablation, "),
        ('samples = "many"', "samples"),
        ('methods = ["bert"]', "no method named 'bert'; available: albert"),
        ('tasks = ["rtee"]', "no task named 'rtee'"),
        ('methods = ["plabert"]', "plan.toml: methods: no method named 'plabert'; available: albert"),
        ('baseline = "alber"', "plan.toml: baseline: no method named 'alber'; available: albert"),
        ("[set]\nlerning_rate = 1", "plan.toml: [set] lerning_rate: palbert has no such field; its fields are adam"),
        ("[set]\nq = 2", "plan.toml: [set] q is 2; allowed: a number >= 0 and <= 1"),
    ],
)
def test_what_a_file_cannot_say_is_answered_in_one_line(tmp_path, capsys, text, message):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    assert launch.main(["--plan", str(path), "--dry-run", "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_setting_that_was_typed_is_told_of_the_command_line(tmp_path, capsys):
    (tmp_path / "plan.toml").write_text("[set]\nq = 0.5\n")
    command = ["--plan", str(tmp_path / "plan.toml"), "--dry-run", "--set"]
    for setting, message in {"q=2": "--set q is 2; ", "lerning_rate=1": "--set lerning_rate: palbert has "}.items():
        assert launch.main([*command, setting]) == 2
        assert capsys.readouterr().err.startswith(f"study.launch: {message}")


def test_file_setting_is_attributed_to_the_file(tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text("[set]\nq = 2\n")
    typed = ["--task", "rte", "--samples", "2", "--set", "epochs=3"]
    assert launch.main(["--plan", str(path), "--dry-run", *typed]) == 2
    assert capsys.readouterr().err.startswith(f"study.launch: --plan {path}: [set] q is 2; ")
    assert launch.main(["--plan", str(path), "--dry-run", *typed, "--data", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("study.launch: there is no folder nowhere; ")


def test_a_file_that_is_gone_is_named(tmp_path, capsys):
    assert launch.main(["--plan", str(tmp_path / "gone.toml"), "--dry-run"]) == 2
    assert f"--plan {tmp_path / 'gone.toml'} cannot be read: " in capsys.readouterr().err


def test_a_dry_run_prints_the_file_of_its_plan(tmp_path, capsys):
    asked = ["--method", "pabee", "--task", "RTE", "--samples", "3"]
    assert launch.main([*asked, "--profile", "mini", "--dry-run", "--toml", "--out", str(tmp_path / "runs")]) == 0
    path = tmp_path / "plan.toml"
    path.write_text(capsys.readouterr().out)
    assert read_toml(path) == plan_from("--profile", "mini", *asked)


def test_starts_of_a_file_are_spelled_as_those_of_the_option(tmp_path, capsys):
    lines = with_lines(tmp_path, 'start_from = { RTE = "MNLI" }')
    assert plan_from("--profile", "mini", "--task", "rte,mnli", *lines).start_from == {"rte": "mnli"}
    assert launch.main([*with_lines(tmp_path, 'start_from = { rt = "mnli" }'), "--dry-run"]) == 2
    assert "lines.toml: start_from: no task named 'rt'" in capsys.readouterr().err


def test_default_rule_of_selection_in_a_file_is_the_default(tmp_path):
    asked = plan_from("--profile", "mini", *with_lines(tmp_path, 'select_by = "score"'))
    assert asked == profiles.load_profile("mini")
    assert plan_from("--profile", "mini", *with_lines(tmp_path, 'select_by = "at:3.0"')).select_by == "at:3"
