"""pytest tests/study/decisions/test_optuna_journal.py"""

import os
import warnings

import optuna
import pytest
from helpers.launched_studies import launch, mini_plan
from helpers.simulation import Simulation
from msgspec.structs import replace

from study import profiles
from study.decisions.optuna_journal import OptunaJournal
from study.facts.study_facts import read_facts
from study.plans.resolution import resolve


@pytest.fixture(scope="module")
def study():
    plan = replace(profiles.load("mini"), methods=("albert",), tasks=("rte",), samples=6)
    return Simulation(resolve(plan)).launch()


def write(path, study):
    OptunaJournal(path, study.facts).add_ended(study.plan.arm("albert/rte"))


def trials_of(path, arm):
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    return optuna.load_study(study_name=arm, storage=storage).trials


def states(path):
    return [trial.state for trial in trials_of(path, "albert/rte")]


@pytest.fixture
def path(tmp_path, study):
    write(tmp_path / "optuna.journal", study)
    return tmp_path / "optuna.journal"


def test_opening_it_again_adds_nothing(path, study):
    before = states(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(path, study)
    assert states(path) == before and len(before) == 6


@pytest.mark.parametrize("lost", [1, 40, 400])
def test_a_torn_one_is_written_anew(path, study, lost):
    before = states(path)
    os.truncate(path, path.stat().st_size - lost)
    with pytest.warns(UserWarning, match="optuna.journal: broken, written anew"):
        write(path, study)
    assert states(path) == before


def test_one_with_a_broken_line_in_the_middle_is_written_anew(path, study):
    before = states(path)
    path.write_bytes(path.read_bytes().replace(b"{", b"?", 1))
    with pytest.warns(UserWarning, match="written anew"):
        write(path, study)
    assert states(path) == before


def test_the_lock_of_a_dead_process_is_not_waited_for(path, study):
    lock = path.with_name("optuna.journal.lock")
    lock.symlink_to(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(path, study)
    assert not lock.is_symlink()


def test_numbers_are_those_of_the_study_whatever_ends_first_is_killed_or_runs_again(tmp_path):
    folder, plan, waited = tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1, samples=6), 0
    slow = {"killed_after": 13, "broken": dict.fromkeys(range(0, 13, 2), "restart")}  # the first trial, all the while
    launches = [slow, {"killed_after": 2, "broken": {0: "method"}}, *[{"killed_after": 3}] * 9, {"retry_failed": True}]
    for options in launches:
        launch(folder, plan, **options)
        facts, trials = read_facts(folder), trials_of(folder / "optuna.journal", "albert/rte")
        assert [trial.number for trial in trials] == [trial.user_attrs["trial"] for trial in trials]
        waited += any(record.trial >= len(trials) for record in facts.arm("albert/rte").records)
    assert len(trials) == 6 and waited
    assert [trial.state.name for trial in trials].count("FAIL") == 0  # the first one ran again
