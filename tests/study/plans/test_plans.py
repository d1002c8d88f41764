"""Plans: variants, what the profiles run, what tells trials apart: pytest tests/study/plans/test_plans.py"""

from __future__ import annotations

import json

import pytest
from helpers.departures import join_departures
from helpers.launched_studies import mini_plan
from helpers.messages import says
from helpers.places import ROOT
from helpers.plan_files import plan_from, with_lines
from helpers.simulation import Simulation
from msgspec.structs import replace

from analysis.layouts.evidence import gather
from analysis.layouts.paper_tables import dev_table
from analysis.studies.load import load_study
from study import launch
from study.facts.events import AshaDecided
from study.facts.plan_file import compare_plans
from study.plans import profiles, resolution
from study.plans.departures import describe_departures, does_hold
from study.plans.plan import EarlyStopping, Plan
from study.plans.resolution import explain, resolve, resolve_configuration
from study.plans.resolved_plan import Protocol, ResolvedPlan, describe_unlike_values
from trainables import Departure


def raising(error):
    def function(*_):
        raise error

    return function


def resolved_from(*arguments: str) -> ResolvedPlan:
    return resolve(plan_from(*arguments, "--task", "rte"))


def key_of(plan: ResolvedPlan) -> str:
    (arm,) = plan.arms
    return plan.trial_key(arm, phase="confirm", config=arm.any_configuration, seed=42, start=None)


@pytest.mark.parametrize(
    ("method", "points"),
    [
        ("albert:9-layers", 12),
        ("palbert:expectation", 12),
        ("palbert:a", 12),
        ("palbert:b", 36),
        ("palbert:c", 36),
        ("palbert:d", 36),
    ],
)
def test_a_variant_has_the_grid_of_what_it_does_not_fix(method, points):
    plan = plan_from("--profile", "paper")
    assert len(resolve_configuration(plan, method, "rte").first) == points


def test_variant_is_an_arm_with_own_fields():
    plan = plan_from("--profile", "ablation")
    found = {method: resolve_configuration(plan, method, "rte") for method in ("palbert", "palbert:c")}
    assert {method: found[method].fixed.get("num_lambda_layers") for method in found}["palbert"] is None
    assert found["palbert:c"].fixed["num_lambda_layers"].value == 3
    assert found["palbert:c"].fixed["num_lambda_layers"].origin == "search_spaces/palbert.py VARIANTS['c']"


@pytest.mark.parametrize(
    ("method", "family", "dropout"),
    [
        *(("pabee", "bert", 0.1), ("pabee", "albert", 0.0), ("pabee", "electra", 0.0)),
        *(("deebert", "bert", 0.1), ("deebert", "roberta", 0.1), ("berxit", "bert", 0.1), ("berxit", "roberta", 0.1)),
        *(("berxit", "distilbert", 0.1), ("deebert", "distilbert", 0.0)),
        *(("albert", "bert", 0.0), ("palbert", "bert", 0.0), ("pondernet", "roberta", 0.0)),  # --hidden-dropout-prob 0
    ],
)
def test_dropout_depends_on_the_family_as_in_the_original(method, family, dropout, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    plan = plan_from("--profile", "paper", "--method", method, "--backbone", str(tmp_path))
    found = resolve_configuration(plan, method, "rte").fixed["hidden_dropout"]
    origin = f"FIXED_BY_FAMILY[{family!r}]" if dropout else "FIXED"
    assert (found.value, found.origin) == (dropout, f"search_spaces/{method}.py {origin}")
    by_hand = plan_from("--profile", "paper", "--backbone", str(tmp_path), "--set", "hidden_dropout=0.2")
    assert resolve_configuration(by_hand, method, "rte").fixed["hidden_dropout"].value == 0.2


def test_values_that_differ_between_methods_without_a_search_are_named(capsys):
    words = ["--method", "albert,palbert,berxit", "--task", "rte", "--data", "mini"]
    words += ["--profile", "paper", "--backbone", "mini-bert"]
    plan = resolve(plan_from(*words))
    (line,) = describe_unlike_values(plan)
    assert says(line, 'schedule "constant" (albert, palbert) | "linear" (berxit); ') and "batch_size" not in line
    assert launch.main([*words, "--dry-run"]) == 0 and f"\n{line}\n" in capsys.readouterr().out
    alike = ("schedule=linear", "select=last", "epochs=3", "stop_after=0", "gradient_clip=1.0")
    assert describe_unlike_values(resolve(plan_from(*words, *(word for one in alike for word in ("--set", one))))) == []


@pytest.mark.parametrize("study", ["cpu-mean-sst2", "cpu-mean-mrpc"])
def test_the_tables_name_the_dropouts_of_the_kept_studies(study):
    evidence = gather([load_study(ROOT / "benchmarks" / "results" / "real" / "cpu" / study)])
    assert "hidden_dropout 0.0 (albert, palbert, pondernet) | 0.1 (pabee, berxit)." in dev_table(evidence).caption


@pytest.mark.parametrize("method", ["deebert", "berxit"])
@pytest.mark.parametrize(("family", "epochs"), [("roberta", 10), ("bert", 3)])
def test_epochs_depend_on_the_family_as_in_the_original(method, family, epochs, tmp_path):
    """scripts/train_highway.sh of castorini/DeeBERT at 563eac1 and of castorini/berxit at 1fb2162."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    plan = plan_from("--profile", "paper", "--method", method, "--backbone", str(tmp_path))
    assert resolve_configuration(plan, method, "rte").fixed["epochs"].value == epochs


@pytest.mark.parametrize("method", ["pabee", "deebert", "berxit"])
def test_values_of_a_family_replace_none_on_default_and_tiny_backbones(method):
    for options in ([], ["--backbone", "mini-bert"]):
        plan = plan_from("--profile", "paper", *options)
        assert resolve_configuration(plan, method, "rte").fixed["hidden_dropout"].value == 0.0


def test_values_of_a_family_come_from_the_commit_of_the_study(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--someone--tiny-bert" / "snapshots" / ("a" * 40)  # and no branch main
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"model_type": "bert"}))
    pins = {"someone/tiny-bert": f"someone/tiny-bert@{'a' * 40}"}
    plan = plan_from("--profile", "paper", "--backbone", "someone/tiny-bert")
    values = [resolve_configuration(plan, "pabee", "rte", pins=each).fixed for each in (pins, None)]
    assert [fixed["hidden_dropout"].value for fixed in values] == [0.1, 0.0]


def test_an_unreachable_hub_leaves_the_values_of_the_family_out(monkeypatch):
    monkeypatch.setattr(resolution, "find_family", raising(OSError("no connection")))
    plan = plan_from("--profile", "paper", "--backbone", "google-bert/bert-base-uncased")
    assert resolve_configuration(plan, "pabee", "rte").fixed["hidden_dropout"].value == 0.0


def test_changed_default_names_option_that_keeps_value():
    earlier = mini_plan(methods=("pabee",), tasks=("rte",))
    (arm,) = earlier.arms
    later = replace(earlier, arms=(replace(arm, fixed={**arm.fixed, "hidden_dropout": 0.1}),))
    advice = "--set pabee:hidden_dropout=0.0 keeps the study's value"
    assert compare_plans(earlier, later) == [f"hidden_dropout 0.0 -> 0.1 (a new default; {advice})"]
    by_hand = replace(later, request=replace(later.request, settings={"hidden_dropout": 0.1}))
    assert compare_plans(earlier, by_hand) == ["hidden_dropout 0.0 -> 0.1"]
    for_another = replace(later, request=replace(later.request, settings={"palbert:hidden_dropout": 0.1}))
    assert compare_plans(earlier, for_another) == [f"hidden_dropout 0.0 -> 0.1 (a new default; {advice})"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("palbert:z", "'palbert:z'; available: palbert:expectation, palbert:a, palbert:b"),
        ("pabee:a", "'pabee:a'; available: none"),
        ("bert:a", "no method named 'bert'; available: albert"),
    ],
)
def test_an_unknown_variant_is_refused_with_those_that_there_are(capsys, name, message):
    assert launch.main(["--method", name, "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("method", "field", "meant"),
    [
        ("palbert", "lr", "did you mean learning_rate?"),
        ("palbert", "lambda_lr", "did you mean lambda_learning_rate?"),
        ("palbert", "lambda-lr", "did you mean lambda_learning_rate?"),
        ("palbert", "threshold", "did you mean q?"),
        ("pabee", "pabee_patience", "did you mean patience?"),
        ("pondernet", "num_lambda_layers", "(paper: num_lambda_layers 1 with lambda_layer_arch linear (PALBERT))"),
    ],
)
def test_field_names_of_papers_code_are_translated(capsys, method, field, meant):
    assert launch.main(["--method", method, "--task", "rte", "--set", f"{field}=1", "--dry-run"]) == 2
    line = capsys.readouterr().err
    assert says(line, f"study.launch: --set {field}: {method} has no such field; ", "adam_epsilon, ")
    assert line.strip().endswith(meant)


def test_a_word_of_a_departure_is_no_hint_for_a_field(capsys):
    assert launch.main(["--method", "palbert", "--task", "rte", "--set", "metric=f1_macro", "--dry-run"]) == 2
    assert "selected epoch" not in capsys.readouterr().err


def explain_offline(plan: Plan, arm: str) -> str:
    return explain(resolve(plan, unchecked=[]), arm, origins={})


def test_an_explained_arm_tells_how_lambda_layers_are_counted():
    said = explain_offline(plan_from("--profile", "paper", "--set", "num_lambda_layers=1"), "palbert/rte")
    assert "differs: num_lambda_layers of a linear Λ: 0 (paper: 1)" in said


@pytest.mark.parametrize(
    ("words", "holds"),
    [([], True), (["--set", "pooling=mean"], False), (["--search", "pooling=pooler,mean"], False)],
)
def test_departure_about_a_default_holds_only_at_this_default(words, holds):
    (arm,) = resolved_from("--method", "pabee", "--profile", "mini", *words).arms
    assert does_hold(Departure("pooling", "the last layer's", "each layer's"), arm) == holds


def test_an_explained_arm_lists_only_departures_of_its_own_values():
    for profile, is_listed in (("paper", True), ("mini", False)):  # mini trains fewer epochs than the method's file
        text = explain_offline(plan_from("--profile", profile, "--task", "rte"), "palbert/rte")
        assert ("differs: epochs: at most 25" in text) == is_listed


def test_published_values_that_are_tried_first_are_printed():
    def lines(*asked):
        plan = plan_from("--method", "alectra-small", "--task", "rte", *asked)
        return [line for line in explain_offline(plan, "alectra-small/rte").splitlines() if "tries" in line]

    (first,) = lines("--profile", "electra", "--task", "mnli")
    assert says(first, "tries learning_rate 0.0001, batch_size 32 (PUBLISHED)")
    assert lines("--profile", "paper") == [first, "  the search then tries 8 grid points"]


@pytest.mark.parametrize("profile", ["mini", "paper", "ablation"])
def test_all_tasks_are_papers_eight_with_wnli_beside(profile):
    eight = ("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")
    assert plan_from("--profile", profile, "--task", "all").tasks == eight
    assert plan_from("--profile", profile, "--task", "wnli,all").tasks == ("wnli", *eight)


def test_linear_lambda_is_only_for_pretrained_backbones():
    found = [
        resolve_configuration(plan_from("--profile", profile, "--sampler", "tpe", "--samples", "4"), "palbert", "rte")
        for profile in ("mini", "paper")
    ]
    assert [one.tuned["num_lambda_layers"].value.low for one in found] == [1, 0]


def test_all_methods_of_the_paper_are_the_rows_of_its_table():
    assert plan_from("--profile", "paper", "--method", "all").methods == (
        "albert",
        "albert:9-layers",
        "pabee",
        "pondernet",
        "palbert",
    )


@pytest.mark.parametrize(("profile", "mini"), [("paper", "mini-albert"), ("electra", "mini-electra")])
def test_profile_is_tiny_unless_backbone_is_named(profile, mini):
    asked = ["--profile", profile, "--data", "mini"]
    assert {arm.backbone for arm in resolve(plan_from(*asked)).arms} == {mini}
    named = plan_from(*asked, "--backbone", "google/electra-small-discriminator", "--method", "electra-small")
    assert resolve_configuration(named, "electra-small", "rte").fixed["epochs"].value == 10


def test_a_profile_is_named_with_a_dash():
    for name in profiles.list_profiles():
        assert profiles.load_profile(name).profile == name and profiles.list_methods(name)


@pytest.mark.parametrize("profile", ["paper", "ablation"])
def test_the_paper_stops_no_trial_early(profile):
    assert profiles.load_profile(profile).early_stopping is None


def test_without_early_stopping_every_search_trial_runs_to_its_own_stop():
    asked = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=6)
    with_asha, without = Simulation(resolve(asked)), Simulation(resolve(replace(asked, early_stopping=None)))
    with_asha.launch()
    without.launch()
    assert with_asha.journal.of(AshaDecided) and not without.journal.of(AshaDecided)
    assert {record.status for record in without.journal.records} == {"completed"}


def test_early_stopping_is_a_rule_of_the_protocol():
    none, asha = resolved_from("--early-stopping", "none"), resolved_from("--early-stopping", "asha")
    assert (none.protocol.early_stopping, asha.protocol.early_stopping) == (None, EarlyStopping())
    patient = resolved_from("--early-stopping", "asha:grace=2,factor=4")
    assert patient.protocol.early_stopping == EarlyStopping(grace=2, factor=4)
    assert none.protocol_hash != asha.protocol_hash


def test_seeds_samples_tasks_and_place_are_no_rules():
    plans = [resolved_from(), resolved_from("--seeds", "2"), resolved_from("--samples", "9", "--epochs", "2")]
    assert len({plan.protocol_hash for plan in plans}) == 1


def test_trial_key_depends_on_content():
    plan = resolved_from()
    (arm,) = plan.arms
    others = [
        replace(arm, data_fingerprint="other"),
        replace(arm, backbone_fingerprint="other"),
        replace(arm, tokenizer_fingerprint="other"),
    ]
    assert len({key_of(replace(plan, arms=(one,))) for one in (arm, *others)}) == 4


def test_departures_are_those_of_this_plan(capsys):
    paper = resolve(plan_from("--profile", "paper", "--method", "palbert,pabee"), unchecked=[])
    assert paper.departures["protocol"] == ()
    assert paper.departures["palbert"] and paper.departures["pabee"]
    lines = join_departures(resolved_from("--seeds", "3", "--selection", "holdout").departures["protocol"])
    assert "seeds: 3 (paper: 5)" in lines and "ASHA" in lines
    assert says(lines, "selection: ", "slice of train (paper: on dev)") and "generated" in lines


def test_offline_dry_run_lists_unchecked_items(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    asked = ["--profile", "paper", "--method", "all", "--task", "all", "--dry-run"]
    assert launch.main(asked) == 0
    assert "ways; --departures lists them" in (output := capsys.readouterr().out) and output.count("\n") < 80
    assert launch.main([*asked, "--departures"]) == 0
    output = capsys.readouterr().out
    departures = output[output.index("differences from the papers") :]
    assert all(f"\n  {method}:\n" in departures for method in ("albert", "pabee", "pondernet", "palbert"))
    assert "paper: h_i in the paper" not in departures and "(h_i in the paper)\n" in departures
    assert departures.count("\n") < 70, "more than two screens"


def test_what_all_methods_share_is_said_once():
    plan = resolved_from("--method", "albert,pabee")
    clip, order = Departure("gradient_clip", "norm 1", "none"), Departure("order", "", "drawn anew")
    shared = replace(plan, departures={"protocol": (), "albert": ("a sentence", clip), "pabee": (clip, order)})
    assert describe_departures(shared)[1:] == [
        "  all methods:",
        "    gradient_clip: none (paper: norm 1)",
        "  albert:",
        "    a sentence",
        "  pabee:",
        "    order: drawn anew",
    ]


def test_one_seed_is_said_as_one():
    plan = resolve(replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), seeds=1))
    assert Departure("seeds", "5", "1") in plan.departures["protocol"]


PABEE_ON_PAPER = ("--profile", "paper", "--method", "pabee", "--task", "rte")


def departures_of(name, *asked):
    return {one.what for one in resolve(plan_from(*asked), unchecked=[]).departures[name]}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--set", "schedule=linear"), "schedule"),
        (("--epochs", "5"), "epochs, stop_after"),
        (("--set", "pabee/rte:gradient_clip=1.0"), "gradient_clip"),
        (("--set", "select=last", "--set", "stop_after=0"), "select"),
        (("--search", "precision=bfloat16,tensorfloat32"), "precision"),
        (("--data", "mini", "--backbone", "mini-albert"), "gradient_clip"),
    ],
)
def test_a_departure_that_a_value_makes_untrue_is_left_out(options, what):
    assert what in departures_of("pabee", *PABEE_ON_PAPER)
    assert what not in departures_of("pabee", *PABEE_ON_PAPER, *options)
    assert "speed-up" in departures_of("pabee", *PABEE_ON_PAPER, *options)


@pytest.mark.parametrize(("samples", "is_cut"), [("11", True), ("12", False), ("20", False), ("0", False)])
def test_grid_without_all_points_is_a_departure(samples, is_cut):
    assert ("grid" in departures_of("protocol", *PABEE_ON_PAPER, "--samples", samples)) == is_cut


def test_departures_stay_that_are_true_of_one_of_the_arms():
    asked = ("--profile", "paper", "--method", "pabee", "--task", "rte,stsb", "--set", "pabee/rte:schedule=linear")
    assert {"schedule", "regression_threshold"} <= departures_of("pabee", *asked)
    assert "regression_threshold" not in departures_of("pabee", *asked, "--set", "pabee/stsb:regression_threshold=0.1")
    assert "regression_threshold" not in departures_of("pabee", *PABEE_ON_PAPER)


def test_a_value_of_the_paper_s_grid_makes_no_departure_untrue():
    asked = ("--profile", "paper", "--method", "pondernet,albert", "--task", "rte", "--set")
    assert "beta" in departures_of("pondernet", *asked, "pondernet:beta=0.5")
    assert "beta" not in departures_of("pondernet", *asked, "pondernet:beta=0.01")
    assert "learning_rate, batch_size" in departures_of("albert", *asked, "pondernet:learning_rate=1e-5")
    assert "learning_rate, batch_size" not in departures_of("albert", *asked, "learning_rate=1e-5")


def test_a_variant_with_another_original_has_its_own_departures():
    both = ("--profile", "electra", "--method", "electra-small,electra-small:lmtuners")
    assert "layer_decay_convention" in departures_of("electra-small", *both)
    assert "fine-tuning script" in departures_of("electra-small:lmtuners", *both)
    assert "variants" not in departures_of("protocol", *both)


def test_what_is_set_by_hand_is_named_among_the_departures():
    asked = ["--set", "weight_decay=0.01", "--epochs", "5", "--search", "palbert:beta=1..2", "--search-only", "beta"]
    lines = join_departures(resolved_from(*asked).departures["protocol"])
    assert "set by hand: epochs, weight_decay; " in lines
    assert "ranges by hand: palbert:beta; " in lines
    assert "papers tune: one value (paper: searched)" in lines
    assert "variants: " in join_departures(resolved_from("--method", "palbert,palbert:a").departures["protocol"])


def test_the_settings_of_a_profile_are_named_as_the_profile_s():
    asked = ["--profile", "small", "--data", "mini", "--backbone", "mini-albert", "--samples", "6"]
    profile, by_hand = map(str, resolved_from(*asked, "--set", "epochs=3").departures["protocol"][:2])
    assert profile.startswith("set by profile small: batch_size, schedule")
    assert "beta" in profile and by_hand == "set by hand: epochs"
    assert "by hand" not in join_departures(resolved_from(*asked).departures["protocol"])


def test_a_tokenizer_that_is_not_there_is_called_a_tokenizer(tmp_path, capsys):
    lines = with_lines(tmp_path, 'tokenizer = "/nowhere"')
    assert launch.main(["--task", "rte", *lines, "--dry-run"]) == 2
    assert says(capsys.readouterr().err, f"--plan {lines[1]}: tokenizer: ", "tokenizer '/nowhere' ")


def test_protocol_has_marked_fields_of_plan():
    own = {"metric", "aggregate"}
    assert {*profiles.load_profile("mini").protocol_fields} == {*Protocol.__struct_fields__} - own


def test_only_paper_protocols_select_on_dev():
    on_dev = {name for name in profiles.list_profiles() if profiles.load_profile(name).selection == "dev"}
    assert on_dev == {"ablation", "electra", "paper", "sharebert"}


def test_extended_plan_has_what_both_asked_for():
    earlier, later = (
        profiles.load_profile("mini"),
        replace(profiles.load_profile("paper"), samples=9, seeds=3, include="there"),
    )
    both = later.extend(earlier)
    assert (both.methods, both.tasks) == (("palbert",), tuple(dict.fromkeys([*earlier.tasks, *later.tasks])))
    assert (both.samples, both.seeds, both.data, both.include) == (9, 5, later.data, "there")
    assert earlier.extend(both).include == "there"


def test_whole_grid_is_more_than_any_number_of_samples():
    assert profiles.load_profile("paper").extend(profiles.load_profile("mini")).samples is None
