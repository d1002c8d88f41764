"""Extra seeds where the ranking of two methods is undecided: pytest tests/study/decisions/test_claims.py"""

from __future__ import annotations

import json

import pytest
from helpers import simulation as simulated
from helpers.edited_studies import edit_events, has
from helpers.launched_studies import launch, mini_plan
from helpers.simulation import Simulation, unit
from msgspec.structs import replace
from scipy import stats

from analysis.verify import verify
from study import launch as command
from study import profiles
from study.decisions.claims import Claim, Rule, follow, pairs_of, welch
from study.facts.events import TrialStarted
from study.facts.record import Record
from study.plans.plan_file import check_same_study
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan

RULE = Rule(batch=2, extra=5, pairs=1)
APART, ALIKE = [0.90, 0.91, 0.90, 0.91, 0.90, 0.91, 0.90], [0.5, 0.7, 0.4, 0.8, 0.6, 0.5, 0.7]


def resolved(**changes) -> ResolvedPlan:
    small = {"methods": ("albert", "palbert", "pabee"), "tasks": ("rte",), "samples": 3, "seeds": 3}
    return resolve(replace(profiles.load("mini"), **(small | {"sampler": "random", "epochs": 3} | changes)))


def ended(plan: ResolvedPlan, phase: str) -> list[Record]:
    simulation = Simulation(plan)
    simulation.launch()
    return [record for record in simulation.journal.records if record.phase == phase]


def test_looks_are_a_batch_apart_up_to_the_most():
    assert RULE.looks == 4
    assert [RULE.extra_at(look) for look in range(4)] == [0, 2, 4, 5]
    assert Rule(batch=2, extra=5, pairs=3).level == pytest.approx(0.05 / 12)


def test_a_pair_is_decided_at_the_first_look_that_is_sure():
    scores = [0.1, 0.11, 0.1, 0.11, 0.1, 0.11, 0.1]
    found = follow(RULE, APART, scores, planned=(2, 2))
    assert (found.looks, found.is_decided, found.needed) == (1, True, 0)


def test_an_undecided_pair_needs_another_batch():
    assert follow(RULE, ALIKE[:2], ALIKE[1:3], planned=(2, 2)).needed == 2
    assert follow(RULE, ALIKE[:4], ALIKE[1:4], planned=(2, 2)).needed == 2
    assert follow(RULE, ALIKE[:4], ALIKE[1:5], planned=(2, 2)).needed == 4


def test_a_pair_is_undecided_once_all_is_spent():
    found = follow(RULE, ALIKE, ALIKE[::-1], planned=(2, 2))
    assert found == Claim(4, found.difference, found.p_value, False, 0)


def test_seeds_beyond_a_look_change_nothing_at_it():
    assert follow(RULE, [*APART[:2], 0.0, 0.0], [0.1, 0.11], planned=(2, 2)).is_decided


def test_before_the_planned_seeds_have_ended_nothing_more_is_needed():
    assert follow(RULE, ALIKE[:1], ALIKE, planned=(2, 2)) == Claim(0, None, None, False, 0)


def test_the_test_is_welchs():
    one, other = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0, 8.0]
    expected = stats.ttest_ind(one, other, equal_var=False).pvalue
    assert welch([*one, None], other) == (-3.0, pytest.approx(expected))
    assert welch([1.0, None], [2.0, 4.0]) == (None, None)


def test_pairs_are_with_the_baseline_where_there_is_one():
    assert [(one.method, other.method) for one, other in pairs_of(resolved(baseline="palbert"))] == [
        ("albert", "palbert"),
        ("pabee", "palbert"),
    ]
    assert len(pairs_of(resolved(baseline=None))) == 3


def test_only_arms_of_undecided_pairs_get_more_seeds(monkeypatch):
    levels = {"albert": 0.2, "palbert": 0.2, "pabee": 0.9}
    monkeypatch.setattr(
        simulated,
        "curve",
        lambda trial, epoch: levels[trial.started.method] + 0.02 * unit(trial.seed, trial.started.method),
    )
    claims = ended(resolved(spend_on_claims=4, baseline="palbert"), "claim")
    assert sorted((record.method, record.seed) for record in claims) == [
        (method, seed) for method in ("albert", "palbert") for seed in (45, 46, 47, 48)
    ]


def test_further_seeds_change_no_other_trial():
    for phase in ("search", "confirm"):
        plain, spending = ended(resolved(), phase), ended(resolved(spend_on_claims=4), phase)
        assert {record.key: record.score for record in spending} == {record.key: record.score for record in plain}


def test_a_study_that_is_killed_spends_on_the_same_seeds():
    plain = {record.key for record in ended(resolved(spend_on_claims=4), "claim")}
    simulation = Simulation(resolved(spend_on_claims=4))
    for kill_at in (30, 90, 120):
        assert simulation.launch(kill_at=kill_at) is None
    simulation.launch()
    assert {record.key for record in simulation.journal.records if record.phase == "claim"} == plain != set()


@pytest.mark.parametrize("changed", [{"seeds": 4}, {"spend_on_claims": 8}, {"baseline": "pabee"}, {"samples": 5}])
def test_the_rule_may_not_change(changed, tmp_path):
    before, now = resolved(spend_on_claims=4), resolved(**({"spend_on_claims": 4} | changed))
    with pytest.raises(ValueError, match=f"{next(iter(changed))} .* against .*Choose another --name"):
        check_same_study(now, before, tmp_path)


def test_what_the_rule_cannot_use_is_refused(capsys, tmp_path):
    with pytest.raises(ValueError, match="--spend-on-claims ranks methods, but albert is the only one"):
        resolved(methods=("albert",), spend_on_claims=4)
    with pytest.raises(ValueError, match="--seeds is 1; allowed: at least 2"):
        resolved(seeds=1, spend_on_claims=4)
    arguments = ["--spend-on-claims", "3", "--max-gpu-hours", "1", "--dry-run", "--address", "auto"]
    assert command.main([*arguments, "--profile", "mini", "--out", str(tmp_path)]) == 2
    assert "--spend-on-claims trains beyond what --max-gpu-hours plans for" in capsys.readouterr().err


def test_the_table_says_what_is_claimed_on_how_many_seeds_and_verify_agrees(tmp_path):
    study = tmp_path / "s"
    launch(study, mini_plan(tasks=("rte",), spend_on_claims=2, baseline="albert"))
    assert verify(study) == []
    table = (study / "tables" / "claims.md").read_text()
    assert "The number of seeds differs from cell to cell" in table and "A sequential rule" in table.replace("\n", " ")
    facts = json.loads((study / "tables" / "claims.json").read_text())
    assert [(claim["one"], claim["other"]) for claim in facts["claims"]] == [("pondernet/rte", "albert/rte")]
    started = [
        json.loads(line) for line in (study / "events.jsonl").read_text().splitlines() if "trial_started" in line
    ]
    number = next(place for place, event in enumerate(started) if event["phase"] == "claim")
    edit_events(study, TrialStarted, lambda plain: plain.update(seed=77), number=number)
    assert has(verify(study), "seed is 77; should be 44")
