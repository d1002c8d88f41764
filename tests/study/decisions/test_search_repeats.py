"""The search of an arm, repeated: pytest tests/study/decisions/test_search_repeats.py"""

from __future__ import annotations

import json

import pytest
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.messages import says
from helpers.plan_files import plan_from, with_lines
from helpers.simulation import Simulation
from msgspec.structs import replace

from analysis.verify import verify
from study import launch as command
from study.facts.record import Record
from study.launching.planned_study import build_default_name
from study.plans import profiles
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.configuration.ranges import list_extremes


def resolved(**changes) -> ResolvedPlan:
    small = {"methods": ("albert", "palbert"), "tasks": ("rte", "mrpc"), "samples": 6, "seeds": 2, "sampler": "random"}
    return resolve(replace(profiles.load_profile("mini"), **(small | {"epochs": 4} | changes)))


def launched(plan: ResolvedPlan) -> list[Record]:
    simulation = Simulation(plan)
    simulation.launch()
    return simulation.journal.records


def of(records: list[Record], arm: str, phase: str) -> list[Record]:
    chosen = [record for record in records if (record.arm, record.phase) == (arm, phase)]
    return sorted((replace(record, started="", ended="") for record in chosen), key=lambda record: record.trial)


def test_repeats_change_nothing_of_the_first_search():
    once, thrice = launched(resolved()), launched(resolved(search_repeats=3))
    for arm in ("albert/rte", "albert/mrpc", "palbert/rte", "palbert/mrpc"):
        for phase in ("search", "confirm"):
            assert of(thrice, arm, phase) == of(once, arm, phase)


def test_repeats_have_own_configurations_and_seeds():
    records = launched(resolved(search_repeats=3))
    names = ["albert/rte", "albert/rte@2", "albert/rte@3"]
    searches, confirms = ([of(records, name, phase) for name in names] for phase in ("search", "confirm"))
    assert [len(search) for search in searches] == [6, 6, 6]
    assert len({(str(record.config), record.seed) for search in searches for record in search}) == 18
    assert [[record.seed for record in confirm] for confirm in confirms] == [[42, 43], [142, 143], [242, 243]]
    for search, confirm in zip(searches, confirms, strict=True):
        completed = [record for record in search if record.status == "completed"]
        assert {str(record.config) for record in confirm} == {
            str(max(completed, key=lambda record: (record.selection_score, -record.trial)).config)
        }


def test_no_two_trials_are_one():
    records = launched(resolved(search_repeats=3))
    assert len({record.key for record in records}) == len(records) == 4 * 3 * (6 + 2)


def test_a_repeat_starts_from_the_same_repeat_of_its_source():
    arms = {arm.name: arm.start_from for arm in resolved(search_repeats=2, start_from={"mrpc": "rte"}).arms}
    assert (arms["albert/mrpc"], arms["albert/mrpc@2"]) == ("albert/rte", "albert/rte@2")


def test_where_nothing_is_searched_nothing_is_repeated():
    fixed = {"learning_rate": 1e-4, "batch_size": 16, "classifier_dropout": 0.1}
    once = resolved(methods=("albert",))
    everything = fixed | {name: list_extremes(allowed)[0] for arm in once.arms for name, allowed in arm.space.items()}
    settings = {name: everything[name] for name in once.arms[0].space}
    assert [arm.name for arm in resolved(methods=("albert",), settings=settings, search_repeats=3).arms] == [
        "albert/rte",
        "albert/mrpc",
    ]


def test_more_repeats_extend_a_study_under_the_same_name():
    once, twice = resolved(), resolved(search_repeats=2)
    assert build_default_name(once.request) == build_default_name(twice.request)
    assert once.request.extend(twice.request).search_repeats == 2
    assert once.protocol_hash == twice.protocol_hash


def test_a_study_that_is_killed_repeats_the_same_searches():
    simulation = Simulation(resolved(search_repeats=2, methods=("albert",)))
    for kill_at in (20, 70, 110):
        assert simulation.launch(kill_at=kill_at) is None
    simulation.launch()
    plain = launched(resolved(search_repeats=2, methods=("albert",)))
    # the seeds of trials, and the configurations of a random sampler, know nothing of the order of trials
    identities = [{(r.arm, r.phase, r.seed, str(r.config)) for r in own if r.phase == "search"}
                  for own in (simulation.journal.records, plain)]  # fmt: skip
    assert identities[0] == identities[1]


def test_repeats_beyond_their_seeds_are_refused():
    with pytest.raises(ValueError, match=r"--seeds is 101; .*: at most 100"):
        resolved(search_repeats=2, seeds=101)


def test_too_many_repeats_are_refused(tmp_path, capsys):
    for options in (["--compare", "methods:10"], ["--compare", "methods:1"], ["--compare", "methods:"]):
        assert command.main([*options, "--dry-run"]) == 2
        assert f"--compare is '{options[1]}'; allowed: methods, methods:2 to methods:9" in capsys.readouterr().err
    assert command.main([*with_lines(tmp_path, "search_repeats = 10"), "--dry-run"]) == 2
    assert says(capsys.readouterr().err, "lines.toml: search_repeats is 10; ", ">= 1 and <= 9")


def test_a_study_with_repeats_verifies(tmp_path):
    launch(tmp_path / "s", mini_plan(methods=("albert",), search_repeats=2))
    assert verify(tmp_path / "s") == []


METHODS = ["--profile", "mini", "--method", "albert,palbert", "--task", "rte", "--compare", "methods"]


def test_comparing_methods_is_a_word_for_searches_samples_and_seeds(tmp_path):
    asked = plan_from(*METHODS)
    spelt = [*METHODS[:-2], *with_lines(tmp_path, "search_repeats = 4"), "--samples", "4", "--seeds", "2"]
    assert asked == plan_from(*spelt)


def test_numbers_that_are_given_stand_over_those_of_comparing_methods():
    asked = plan_from(*METHODS[:-1], "methods:5", "--samples", "9")
    assert (asked.samples, asked.search_repeats, asked.seeds) == (9, 5, 2)


def test_a_plan_that_compares_methods_comes_back_from_its_file(tmp_path, capsys):
    assert command.main([*METHODS, "--out", str(tmp_path), "--dry-run", "--toml"]) == 0
    path = tmp_path / "plan.toml"
    path.write_text(capsys.readouterr().out)
    asked = plan_from("--plan", str(path))
    assert asked == plan_from(*METHODS)


def test_a_study_goes_on_to_compare_methods_with_what_it_has(tmp_path, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert", "palbert"), tasks=("rte",), seeds=3))
    assert command.main(["--continue", str(folder), "--compare", "methods", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert {arm["method"] + str(arm.get("repeat", 0)) for arm in plan["arms"]} == {
        f"{method}{repeat}" for method in ("albert", "palbert") for repeat in range(4)
    }
    assert {len(arm["seeds"]) for arm in plan["arms"]} == {3}


def test_a_dry_run_says_what_repeated_searches_cost(tmp_path, capsys):
    assert command.main([*METHODS, "--out", str(tmp_path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(says(line, "4 searches per arm; ", "about 56 epochs") for line in lines)
    assert any(line.startswith("8 arms, 32 search and 16 confirm trials, about 223 epochs") for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "1"], "--seeds is 1; allowed with --compare methods: 2"),
        (["--samples", "0"], "--samples is 0; allowed with --compare methods: 1"),
        (["--method", "albert"], "two methods, but the study has only albert"),
    ],
)
def test_what_compares_no_methods_is_refused(options, message, capsys):
    common = [*METHODS[:2], "--compare", "methods", "--dry-run"] if "--method" in options else [*METHODS, "--dry-run"]
    assert command.main([*common, *options]) == 2
    said = capsys.readouterr().err
    assert says(said, "study.launch: ", message) and said.count("\n") == 1
