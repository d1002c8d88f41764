"""pytest tests/study/decisions/test_optuna_journal.py"""

import os
import warnings

import optuna
import pytest
from helpers.simulation import Simulation
from msgspec.structs import replace

from study import profiles
from study.decisions.optuna_journal import OptunaJournal
from study.plans.plan import EarlyStopping
from study.plans.resolution import resolve


@pytest.fixture(scope="module")
def study():
    plan = replace(profiles.load("mini"), methods=("albert",), tasks=("rte",), samples=6)
    return Simulation(resolve(plan)).launch()


def write(path, study):
    OptunaJournal(path, study.facts).add_ended(study.plan.arm("albert/rte"))


def test_what_a_part_of_the_first_epoch_scored_stands_before_all_epochs(tmp_path):
    rule = EarlyStopping(first_epoch_parts=3)
    small = {"methods": ("albert",), "tasks": ("qqp",), "samples": 9, "sampler": "random", "early_stopping": rule}
    scheduler = Simulation(resolve(replace(profiles.load("mini"), **small))).launch()
    OptunaJournal(tmp_path / "optuna.journal", scheduler.facts).add_ended(scheduler.plan.arm("albert/qqp"))
    trials = trials_of(tmp_path / "optuna.journal", "albert/qqp")
    steps = {(trial.state.name, tuple(trial.intermediate_values)) for trial in trials}
    assert ("PRUNED", (0,)) in steps and ("COMPLETE", (0, 1, 2, 3, 4, 5, 6)) in steps


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
