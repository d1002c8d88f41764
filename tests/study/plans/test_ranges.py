"""Fields set and searched by hand, on the command line and in files: pytest tests/study/plans/test_ranges.py"""

from __future__ import annotations

import json
import tomllib

import pytest
from helpers.messages import shown
from helpers.plan_files import plan_from
from msgspec.structs import replace

from study import launch
from study.facts.plan_file import compare_plans, format_plan, read_toml
from study.launching import reading
from study.plans import profiles
from study.plans.plan import Plan
from study.plans.resolution import Resolution, resolve, resolve_configuration
from study.plans.settings import find_keys, override_settings
from trainables.configuration.ranges import Interval, format_range
from trainables.configuration.schema import from_plain, to_plain

EVERY_SCOPE = [
    *("--method", "albert,palbert,palbert:a", "--task", "rte,cola", "--search", "learning_rate=3e-5..3e-4:log"),
    *("--search", "batch_size=16,32", "--set", "palbert:a:beta=0.2", "--set", "palbert/rte:epochs=10"),
    *("--search", "palbert/cola:num_lambda_layers=1..3", "--set", "epochs=3", "--set", "palbert:sample_draws=null"),
    *("--search-only", "learning_rate,batch_size,num_lambda_layers"),
]


def found(plan: Plan, arm: str = "palbert/rte") -> Resolution:
    return resolve_configuration(plan, *arm.split("/"))


def fault_of(capsys, *arguments: str) -> str:
    profile = [] if "--profile" in arguments else ["--profile", "mini"]
    assert launch.main([*profile, "--task", "rte", *arguments, "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.removeprefix("study.launch: ").strip()


@pytest.mark.parametrize(
    "options",
    [
        "--search batch_size=16,32 --search-only learning_rate",
        "--set learning_rate=0.001 --search-only learning_rate",
        "--search learning_rate=1e-4..1e-3 --samples 0",
        "--search-only palbert:beta",
        "--epochs 3 --set epochs=5",
        "--epochs 3 --search epochs=2..5",
        "--set attention=nystrom --set attention=softmax",
        "--set epochs=3 --set epochs=5",
        "--search beta=0.1..0.2 --search beta=0.1..0.3",
        "--set learning_rate=3e-4..3e-3",
        "--set batch_size=16,32",
        "--search learning_rate=",
        "--search learning_rate=3e-5..3e-4:lgo",
        "--set palbert:beta",
    ],
)
def test_options_that_contradict_each_other_are_refused_in_one_line(capsys, options, snapshot):
    assert fault_of(capsys, "--method", "palbert", *options.split()) == snapshot


def test_plan_file_is_cut_to_named_methods_and_tasks(tmp_path):
    path = tmp_path / "plan.toml"
    words = ["--profile", "mini", "--method", "albert,palbert", "--task", "rte", "--set", "albert/rte:epochs=2"]
    path.write_text(format_plan(plan_from(*words, "--set", "palbert/rte:epochs=3")))
    plan = plan_from("--plan", str(path), "--method", "palbert")
    assert plan.methods == ("palbert",) and "albert/rte:epochs" not in plan.settings
    assert plan.settings["palbert/rte:epochs"] == 3


def test_range_replaces_method_range_or_fixed_field():
    plan = plan_from(
        "--search", "learning_rate=3e-5..3e-4:log", "--search", "batch_size=16,8", "--search", "epsilon=0.01..0.1"
    )
    names = ("learning_rate", "batch_size", "epsilon")
    searched = {name: format_range(found(plan).tuned[name].value) for name in names}
    assert searched == {"learning_rate": "3e-05 to 0.0003 log", "batch_size": "16 | 8", "epsilon": "0.01 to 0.1"}
    assert not {"batch_size", "epsilon"} & {*found(plan).fixed}
    assert found(plan).tuned["epsilon"].origin == "--search epsilon"


def test_a_setting_of_a_method_leaves_other_methods_and_variants_alone():
    plan = plan_from("--method", "albert,palbert,palbert:a", "--set", "palbert:beta=0.1", "--set", "prior_lambda=0.3")
    assert found(plan).fixed["beta"].value == 0.1 and found(plan).fixed["beta"].origin == "--set palbert:beta"
    assert "beta" in found(plan, "palbert:a/rte").tuned
    assert "prior_lambda" not in {**found(plan, "albert/rte").fixed, **found(plan, "albert/rte").tuned}
    assert found(plan, "palbert:a/rte").fixed["prior_lambda"].value == 0.3


def test_an_arm_goes_before_its_method_and_that_before_all_methods():
    settings = {"palbert/rte:epochs": 1, "epochs": 3, "palbert:epochs": 2, "palbert:a:epochs": 4}
    arms = ("palbert/rte", "palbert/cola", "albert/rte", "palbert:a/rte")
    assert [settings[find_keys(settings, arm)["epochs"]] for arm in arms] == [1, 2, 3, 4]


def test_later_setting_replaces_its_scope():
    base = {"epochs": 3, "palbert:epochs": 2, "palbert/rte:epochs": 1, "albert/rte:epochs": 4, "palbert:beta": 0.1}
    assert override_settings(base, {"epochs": 9}) == {"palbert:beta": 0.1, "epochs": 9}
    assert {*override_settings(base, {"palbert:epochs": 9})} == {
        "epochs",
        "albert/rte:epochs",
        "palbert:beta",
        "palbert:epochs",
    }


def test_setting_of_a_method_replaces_those_of_its_values():
    base = {"palbert:beta=0.1:epochs": 3, "palbert:beta=0.1/rte:epochs": 4, "palbert:a:epochs": 5}
    assert override_settings(base, {"palbert:epochs": 9}) == {"palbert:a:epochs": 5, "palbert:epochs": 9}


def test_profile_gives_way_to_what_a_variant_fixes():
    plan = plan_from("--method", "palbert:a,palbert:b", "--profile", "small", "--backbone", "mini-albert")
    assert found(plan, "palbert:a/rte").fixed["lambda_learning_rate"].value is None
    assert "lambda_learning_rate" not in found(plan, "palbert:a/rte").tuned
    with pytest.raises(ValueError, match="palbert:a already has a value of lambda_learning_rate; leave out one"):
        found(plan_from("--method", "palbert:a", "--set", "lambda_learning_rate=1e-4"), "palbert:a/rte")
    own = plan_from("--method", "palbert:a", "--set", "palbert:a:lambda_learning_rate=1e-4")
    assert found(own, "palbert:a/rte").fixed["lambda_learning_rate"].value == 1e-4


def test_winner_of_a_method_leaves_the_field_of_its_values_alone():
    """As in a plan of winners, which repeats a study of a method and of some of its values."""
    plan = replace(
        plan_from("--method", "palbert", "--vary", "palbert:beta=0.1,0.3"), settings={"palbert/rte:beta": 0.2}
    )
    betas = [found(plan, f"{method}/rte").fixed["beta"].value for method in plan.methods]
    assert betas == [0.2, 0.1, 0.3]


def test_whole_numbers_stay_whole_where_the_field_is_and_only_there():
    plan = plan_from("--search", "num_lambda_layers=1..2", "--search", "beta=1..2")
    are_whole = {name: found(plan).tuned[name].value.is_whole for name in ("num_lambda_layers", "beta")}
    assert are_whole == {"num_lambda_layers": True, "beta": False}


def test_published_points_outside_of_a_range_are_not_tried():
    asked = ["--profile", "paper", "--sampler", "tpe", "--samples", "4", "--method", "albert"]
    assert found(plan_from(*asked), "albert/cola").first == [{"learning_rate": 1e-5, "batch_size": 16}]
    assert found(plan_from(*asked, "--search", "learning_rate=3e-5..3e-4"), "albert/cola").first == []


def test_fields_that_are_not_searched_have_the_paper_s_value():
    plan = plan_from("--profile", "paper", "--search-only", "learning_rate")
    fixed = {name: (layered.value, layered.origin) for name, layered in found(plan).fixed.items()}
    assert [*found(plan).tuned] == ["learning_rate"]
    assert fixed["batch_size"] == (32, "search_spaces/palbert.py PUBLISHED['rte'], not searched")
    (value, origin) = resolve_configuration(plan, "palbert", "cola").fixed["batch_size"].value, "PAPER_GRID"
    assert value == 16 and origin in resolve_configuration(plan, "palbert", "cola").fixed["batch_size"].origin


def test_searched_epochs_and_layers_count_their_maximum(capsys):
    asked = ["--profile", "mini", "--method", "albert", "--task", "rte", "--search"]
    (arm,) = resolve(plan_from(*asked, "epochs=2..5", "--search", "num_hidden_layers=3,6")).arms
    assert arm.epochs == 5 and arm.find_most("num_hidden_layers") == 6
    assert "has 6 layers" in fault_of(capsys, "--method", "albert", "--search", "num_hidden_layers=3..12")


def test_without_search_trials_nothing_is_searched():
    (arm,) = resolve(plan_from("--profile", "mini", "--task", "rte", "--samples", "0")).arms
    assert not arm.space and arm.samples == 0 and arm.seeds


def test_search_has_at_most_as_many_trials_as_points():
    asked = ("--method", "albert", "--task", "rte", "--search", "batch_size=16,32", "--samples", "8")
    (arm,) = resolve(plan_from(*asked, "--search-only", "batch_size")).arms
    assert (arm.samples, arm.can_search_more) == (2, False)
    (arm,) = resolve(plan_from(*asked)).arms  # and a continuous learning rate
    assert (arm.samples, arm.can_search_more) == (8, True)


def test_values_of_a_range_do_not_exceed_its_end():
    assert Interval(low=0.1, high=0.3, step=0.1).values == [0.1, 0.2, 0.3]


def test_a_grid_has_choices_and_whole_numbers():
    asked = ["--profile", "paper", "--search", "num_lambda_layers=1..3", "--search", "learning_rate=1e-4,2e-4"]
    assert len(found(plan_from(*asked)).first) == 2 * 3 * 3 * 3


@pytest.mark.parametrize(
    "arguments",
    [
        "--search learning_rate=-1..3",
        "--search palbert:q=0.5..2",
        "--search batch_size=16,1.5",
        "--search schedule=constant,lineer",
        "--search exit=1..3",
        "--search-only lr",
        "--search beta=3..1",
        "--search beta=0..1:log",
        "--search beta=0.1...1",
        "--search beta=3e-5...3e-4:log",
        "--set palbert/rte:epochs=ten",
        "--search beta=x..1",
        "--search batch_size=16,16",
        "--search batch_size=16",
        "--search batch_size",
        "--search max_length=8,32 --set attention=nystrom --set num_landmarks=16",
        "--set palbert:lr=1",
        "--method albert,pabee --set lr=1",
        "--set plabert:beta=1",
        "--set palbert/cola:beta=1",
        "--set palbert:a:beta=1",
        "--search pabee:patience=1..3",
        "--set beta=1 --search beta=1..2",
        "--sampler grid --search beta=0.1..2",
        "--search-only learing_rate",
        "--search-only batch_size",
        "--search-only learning_rate --set palbert:learning_rate=0.001",
    ],
)
def test_what_cannot_be_searched_is_answered_in_one_line(capsys, arguments, snapshot):
    assert fault_of(capsys, *arguments.split()) == snapshot


@pytest.mark.parametrize(
    "arguments",
    [
        "--method albert,palbert --search-only beta",
        "--method pabee --samples 3 --set learning_rate=0.001",
        "--method palbert --search-only q --search q=0.3..0.7 --samples 3",
        "--method palbert --samples 0",
    ],
)
def test_arm_without_search_trials_is_named(capsys, arguments, snapshot):
    assert launch.main(["--profile", "mini", "--task", "rte", *arguments.split(), "--dry-run"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("--")] == snapshot


@pytest.mark.parametrize("arguments", ["--method albert --samples 3", "--method albert", "--method pabee --samples 0"])
def test_search_as_asked_is_not_noted(capsys, arguments):
    assert launch.main(["--profile", "mini", "--task", "rte", *arguments.split(), "--dry-run"]) == 0
    assert "no search trials" not in capsys.readouterr().out


def test_plan_with_every_scope_round_trips(tmp_path, capsys, snapshot):
    asked = plan_from("--profile", "mini", *EVERY_SCOPE)
    assert launch.main(["--profile", "mini", *EVERY_SCOPE, "--dry-run", "--toml", "--out", str(tmp_path)]) == 0
    path = tmp_path / "plan.toml"
    path.write_text(capsys.readouterr().out)
    assert read_toml(path) == asked == plan_from("--plan", str(path))
    assert from_plain(Plan, json.loads(json.dumps(to_plain(asked))), where="plan") == asked
    assert path.read_text() == snapshot
    tables = tomllib.loads(path.read_text())
    assert tables["set"] == {
        "epochs": 3,
        "palbert": {"sample_draws": "none"},
        "palbert:a": {"beta": 0.2},
        "palbert/rte": {"epochs": 10},
    }
    assert tables["search"]["learning_rate"] == {"low": 3e-5, "high": 3e-4, "log": True}
    assert tables["search"]["palbert/cola"] == {"num_lambda_layers": {"low": 1, "high": 3}}


def test_options_override_file_by_field(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text("[search]\nbeta = [0.1, 0.5]\n[set]\nepochs = 3\n[set.palbert]\nq = 0.3\n")
    plan = plan_from("--plan", str(path), "--set", "beta=0.2", "--search", "q=0..1")
    assert plan.settings == {"epochs": 3, "beta": 0.2, "q": Interval(low=0, high=1)}


def test_older_plan_file_keeps_epochs_in_settings():
    older = to_plain(profiles.load_profile("mini")) | {"epochs": 4, "settings": {"batch_size": 8}}
    assert from_plain(Plan, older, where="plan").settings == {"epochs": 4, "batch_size": 8}
    assert plan_from("--epochs", "4").settings == plan_from("--set", "epochs=4").settings == {"epochs": 4}


def test_no_toml_of_a_default_plan_has_tables_or_epochs():
    assert not {"set", "search", "epochs", "settings"} & {*tomllib.loads(format_plan(profiles.load_profile("paper")))}


@pytest.mark.parametrize(
    "text",
    [
        "[search]\nbeta = 0.5",
        "[search]\nbeta = { low = 1, hihg = 2 }",
        "[search.palbert]\nbeta = { low = 3, high = 2 }",
        "[search.palbert]\nbeta = { low = -3, high = 2 }",
        "[search]\nbatch_size = [16, 1.5]",
        "[set]\nbeta = [1, 2]",
        '[set."palbert/rtee"]\nbeta = 1',
        "[set.pabee]\npatience = 1",
        "[set.palbert]\nlerning_rate = 1",
        "[set]\nbeta = 1\n[search]\nbeta = [1, 2]",
        'search_only = ["lr"]',
        'samples = "none"',
        "search_repeats = 2\nseeds = 9000",
        "set = 3",
        "epochs = 3",
    ],
)
def test_wrong_value_in_file_names_table_and_key(tmp_path, capsys, text, snapshot):
    path = tmp_path / "plan.toml"
    path.write_text(f'tasks = ["rte"]\n{text}' if not text.startswith(("set", "epochs")) else text)
    assert launch.main(["--plan", str(path), "--dry-run", "--out", str(tmp_path / "runs")]) == 2
    assert shown(capsys.readouterr().err, tmp_path) == snapshot


@pytest.mark.parametrize(
    "range_",
    [
        "low = 1, high = 4, step = 0.5",
        "low = 0.1, high = 0.4, step = 0.5",
        "low = 0.1, high = 0.4, step = 0.0",
        "low = 1, high = 4, log = true, step = 1",
    ],
)
def test_step_must_fit_its_range(tmp_path, capsys, range_, snapshot):
    (tmp_path / "plan.toml").write_text(f'tasks = ["rte"]\n[search]\nbeta = {{ {range_} }}')
    assert launch.main(["--plan", str(tmp_path / "plan.toml"), "--dry-run", "--out", str(tmp_path / "runs")]) == 2
    assert shown(capsys.readouterr().err, tmp_path) == snapshot


def test_step_of_a_plan_file_is_kept(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('tasks = ["rte"]\n[search]\nbeta = { low = 0.1, high = 0.5, step = 0.2 }')
    plan = read_toml(path)
    path.write_text(format_plan(plan))
    assert read_toml(path) == plan
    assert plan.settings["beta"].values == pytest.approx([0.1, 0.3, 0.5])


def test_small_profile_ranges_can_be_reverted():
    plan = plan_from("--profile", "small", "--backbone", "mini-bert", "--search", "palbert:beta=0.1..1")
    ranges = {name: format_range(layered.value) for name, layered in found(plan, "palbert/cola").tuned.items()}
    assert ranges["learning_rate"] == "5e-05 to 0.0002 log" and ranges["beta"] == "0.1 to 1.0"
    assert found(plan, "albert/cola").tuned["learning_rate"].origin == "study/plans/profiles.py SMALL"
    fixed = {name: layered.value for name, layered in found(plan, "pabee/cola").fixed.items()}
    asked = ("batch_size", "schedule", "warmup_ratio", "gradient_clip", "stop_after", "select")
    assert [fixed[name] for name in asked] == [32, "linear", 0.1, 1.0, 0, "last"]
    assert found(plan_from(*EVERY_SCOPE, "--profile", "small", "--backbone", "mini-bert")).fixed["epochs"].value == 10


def test_small_profile_takes_any_method_with_backbone(capsys):
    asked = ["--profile", "small", "--method", "albert", "--data", "mini"]
    (arm, _) = resolve(plan_from(*asked, "--backbone", "mini-bert")).arms
    assert {*arm.space} == {"learning_rate"}
    assert fault_of(capsys, *asked).startswith("--profile small names no backbone; ")


def test_a_continued_study_keeps_its_settings_and_takes_more():
    earlier = plan_from("--profile", "mini", "--set", "epochs=3", "--search", "palbert:beta=0.1..0.5")
    more = launch.main.parser().options(["--continue", "runs/x", "--method", "albert", "--set", "albert:epochs=2"])
    plan, _ = reading.plan_from(more, earlier)
    assert plan.settings == {"epochs": 3, "palbert:beta": Interval(low=0.1, high=0.5), "albert:epochs": 2}


def test_change_of_an_exit_setting_by_another_option_says_why(snapshot):
    searched, fixed = (
        resolve(plan_from("--profile", "mini", "--method", "pabee", "--task", "rte", *words))
        for words in ([], ["--set", "learning_rate=0.001"])
    )
    assert [*compare_plans(searched, fixed), *compare_plans(fixed, searched)] == snapshot
