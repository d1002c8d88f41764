"""What a study would have cost and chosen: pytest tests/study/test_study_replay.py"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.simulation import Simulation
from msgspec.structs import replace

from study import profiles
from study.counterfactual.audits import share_interval
from study.counterfactual.curves import epochs_of
from study.counterfactual.searches import Search, search_under
from study.decisions.progress import StudyProgress
from study.plans.plan import EarlyStopping, Plan
from study.plans.resolution import resolve
from study.replay import main


def asked(**changes) -> Plan:
    small = {"methods": ("albert",), "tasks": ("rte",), "samples": 12, "seeds": 2, "sampler": "random", "epochs": 9}
    return replace(profiles.load("mini"), **(small | changes))


def ended(plan: Plan) -> Simulation:
    simulation = Simulation(resolve(plan))
    simulation.launch()
    return simulation


def searched(simulation: Simulation, stopping: EarlyStopping | None, *, is_random: bool = False) -> Search:
    progress = StudyProgress(simulation.resolved, simulation.journal.facts, max_gpu_hours=None)
    epochs = epochs_of(simulation.journal.events)
    return search_under(progress.arms[0], epochs, stopping=stopping, is_random=is_random)


def test_the_studys_own_rule_gives_what_was():
    simulation = Simulation(resolve(asked()))
    for kill_at in (9, 31, 58):
        assert simulation.launch(kill_at=kill_at) is None
    simulation.launch()
    records = [record for record in simulation.journal.records if record.phase == "search"]
    found = searched(simulation, EarlyStopping())
    epochs = sum(record.epochs for record in records)
    assert (found.epochs.low, found.epochs.high, found.seconds.low) == (epochs, epochs, epochs)
    winner = StudyProgress(simulation.resolved, simulation.journal.facts, max_gpu_hours=None).arms[0].winner
    assert (found.chosen.trial, found.rivals, found.unknown) == (winner.search.trial, 0, 0)
    assert found.chosen.selection_score == winner.search.selection_score


def test_without_early_stopping_the_rest_of_stopped_trials_is_a_range():
    simulation = ended(asked())
    stopped = [record for record in simulation.journal.records if record.status == "stopped"]
    ran = sum(record.epochs for record in simulation.journal.records if record.phase == "search")
    found = searched(simulation, None)
    assert found.epochs.low == ran + len(stopped) > ran
    assert found.epochs.high == 12 * 9
    assert found.rivals == len(stopped)


def test_a_search_that_stopped_nothing_says_what_asha_would_have_saved():
    found = searched(ended(asked(early_stopping=None)), EarlyStopping(factor=4))
    assert found.epochs.low == found.epochs.high < 12 * 9
    assert found.rivals == 0


def test_with_every_stopped_trial_audited_nothing_is_unknown():
    simulation = ended(asked(audit_stopped=12))
    full = searched(ended(asked(early_stopping=None)), None)
    assert searched(simulation, None) == replace(full, chosen=searched(simulation, None).chosen)
    assert searched(simulation, None).chosen.selection_score == full.chosen.selection_score


def test_random_search_shares_the_first_ten_with_tpe():
    simulation = ended(asked(sampler="tpe", samples=14, early_stopping=None))
    found = searched(simulation, None, is_random=True)
    assert found.trials == 14 and 0 < found.unknown <= 4
    assert (found.epochs.low, found.epochs.high) == ((14 - found.unknown) * 9 + found.unknown, 14 * 9)
    assert found.rivals == found.unknown


@pytest.mark.parametrize(("found", "tried", "low", "high"), [(0, 5, 0.0, 0.5218), (2, 5, 0.0527, 0.8534)])
def test_the_share_has_the_interval_of_clopper_and_pearson(found, tried, low, high):
    assert share_interval(found, tried) == pytest.approx((low, high), abs=1e-4)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return launched_study(tmp_path_factory.mktemp("runs") / "s", mini_plan(methods=("albert",), tasks=("rte",)))


def test_the_command_says_what_is_not_known(study, capsys):
    assert main([str(study), "--early-stopping", "none"]) == 0
    said = capsys.readouterr().out
    assert "by no early stopping, sampler random" in said
    rival = "1 trial whose end by these rules is not known"
    assert f"albert/rte would have chosen: the same, unless {rival} would have been better" in said


def test_the_command_answers_in_json(study, capsys):
    assert main([str(study), "--asha-factor", "4", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["early_stopping"] == {"grace": 1, "factor": 4}
    assert answer["arms"][0]["was"]["trials"] == 3


def test_a_study_without_a_journal_is_refused(study, tmp_path, capsys):
    shutil.copy(study / "plan.json", tmp_path)
    assert main([str(tmp_path)]) == 2
    said = f"no events.jsonl in {tmp_path}, which has the scores of all epochs; allowed: the folder of a launch\n"
    assert capsys.readouterr() == ("", f"study.replay: {said}")


def test_a_rung_within_an_epoch_is_refused(tmp_path, capsys):
    in_parts = EarlyStopping(first_epoch_parts=3)
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("qqp",), early_stopping=in_parts))
    for options in ([], ["--early-stopping", "none"], ["--asha-factor", "4"]):
        assert main([str(folder), *options]) == 2
        assert "has a rung within the first epoch; allowed: a study whose rungs are whole" in capsys.readouterr().err


def test_a_rule_of_asha_without_asha_is_refused(study, capsys):
    assert main([str(study), "--early-stopping", "none", "--asha-factor", "4"]) == 2
    said = "study.replay: --asha-factor is of ASHA, which --early-stopping none leaves out\n"
    assert capsys.readouterr() == ("", said)


def test_what_asha_lost_is_told(tmp_path, capsys):
    launch(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), audit_stopped=1))
    assert main([str(tmp_path / "s"), "--json"]) == 0
    (arm,) = json.loads(capsys.readouterr().out)["arms"]
    assert (arm["audit"]["audited"], arm["audit"]["stopped"]) == (1, 1)
    assert main([str(tmp_path / "s")]) == 0
    assert "albert/rte: of 1 audited of 1 stopped trials" in capsys.readouterr().out
