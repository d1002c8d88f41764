"""The search of an arm, repeated: pytest tests/study/decisions/test_search_repeats.py"""

from __future__ import annotations

import pytest
from helpers.launched_studies import launch, mini_plan
from helpers.simulation import Simulation
from msgspec.structs import replace

from analysis.verify import verify
from study import launch as command
from study import profiles
from study.facts.record import Record
from study.launch import default_name
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan


def resolved(**changes) -> ResolvedPlan:
    small = {"methods": ("albert", "palbert"), "tasks": ("rte", "mrpc"), "samples": 6, "seeds": 2, "sampler": "random"}
    return resolve(replace(profiles.load("mini"), **(small | {"epochs": 4} | changes)))


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


def test_each_repeat_has_configurations_seeds_a_winner_and_confirm_trials_of_its_own():
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
    everything = fixed | {name: arm.any_value for arm in once.arms for name, arm in arm.space.items()}
    settings = {name: everything[name] for name in once.arms[0].space}
    assert [arm.name for arm in resolved(methods=("albert",), settings=settings, search_repeats=3).arms] == [
        "albert/rte",
        "albert/mrpc",
    ]


def test_more_repeats_extend_a_study_under_the_same_name():
    once, twice = resolved(), resolved(search_repeats=2)
    assert default_name(once.asked) == default_name(twice.asked)
    assert once.asked.extended_from(twice.asked).search_repeats == 2
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
    with pytest.raises(ValueError, match="--seeds is 101; allowed beside --search-repeats: at most 100"):
        resolved(search_repeats=2, seeds=101)


def test_too_many_repeats_are_refused(capsys):
    assert command.main(["--search-repeats", "10", "--dry-run"]) == 2
    assert "--search-repeats is 10; allowed: a whole number >= 1 and <= 9" in capsys.readouterr().err


def test_a_study_with_repeats_verifies(tmp_path):
    launch(tmp_path / "s", mini_plan(methods=("albert",), search_repeats=2))
    assert verify(tmp_path / "s") == []
