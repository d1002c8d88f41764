"""Optuna's samplers, and those of a person: pytest tests/study/decisions/test_samplers.py"""

from __future__ import annotations

import warnings

import pytest
from helpers.journals import MadeJournal
from helpers.simulation import Simulation, report, scheduler_of
from msgspec.structs import replace

from study.facts.events import TrialStarted
from study.plans import profiles
from study.plans.plan import EarlyStopping
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from study.plans.samplers import SAMPLERS, check_sampler, describe_sampler

OWN = "own_sampler:Reversed"
OWN_FILE = """
from optuna.samplers import RandomSampler

class Reversed(RandomSampler):
    def __init__(self, seed):
        super().__init__(seed)
        self.drawn = 0

    def after_trial(self, study, trial, state, values):
        self.drawn += 1

    def sample_independent(self, study, trial, name, distribution):
        if name == "learning_rate":
            return distribution.high - self.drawn * 1e-6
        return super().sample_independent(study, trial, name, distribution)

def no_sampler(seed):
    return seed
"""


@pytest.fixture
def own_sampler(tmp_path, monkeypatch):
    """A module with a sampler that counts trials, and so keeps something between them."""
    (tmp_path / "own_sampler.py").write_text(OWN_FILE)
    monkeypatch.syspath_prepend(tmp_path)


def planned(sampler: str, **changes) -> ResolvedPlan:
    if sampler == "cmaes":
        pytest.importorskip("cmaes")
    small = {"methods": ("palbert",), "tasks": ("rte",), "samples": 12, "seeds": 1, "early_stopping": None}
    return resolve(replace(profiles.load_profile("mini"), sampler=sampler, **(small | changes)))


def configurations(simulation: Simulation) -> list:
    return [event.config for event in simulation.journal.of(TrialStarted) if event.phase == "search"]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [*SAMPLERS, OWN])
@pytest.mark.parametrize("stopping", [None, EarlyStopping()])
def test_search_killed_four_times_equals_the_uninterrupted_one(sampler, stopping, own_sampler):
    plan = planned(sampler, early_stopping=stopping)
    whole, killed = Simulation(plan, slots=1), Simulation(plan, slots=1)
    whole.launch()
    for gap in (7, 13, 40, 3):
        killed.launch(kill_at=len(killed.journal.events) + gap)
    killed.launch()
    assert configurations(killed) == configurations(whole)
    assert len(configurations(whole)) == plan.arms[0].samples


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "gp"])
def test_sampler_learns_from_trials_before_a_restart(sampler):
    """The last proposal is not the one that random search would make at its place."""
    simulation, at_random = Simulation(planned(sampler), slots=1), Simulation(planned("random"), slots=1)
    simulation.launch(kill_at=60)
    simulation.launch()
    at_random.launch()
    assert configurations(simulation)[-1] != configurations(at_random)[-1]


def test_reordered_ranges_do_not_end_a_grid_early():
    fields, choices = ("weight_decay", "classifier_dropout"), (0.0, 0.1)
    plan, reordered = (
        planned("grid", methods=("albert",), settings=dict.fromkeys(order, choices)) for order in (fields, fields[::-1])
    )
    simulation = Simulation(plan, slots=1)
    simulation.launch(kill_at=15)  # within the second trial
    assert len(configurations(simulation)) == 2
    simulation.resolved = reordered
    simulation.launch()
    points = {tuple(sorted(config.items())) for config in configurations(simulation)}
    assert len(points) == len(configurations(simulation)) == plan.arms[0].samples == 12


def test_restarted_trial_reports_no_epoch_twice():
    scheduler = scheduler_of(planned("tpe"), MadeJournal())
    scheduler.begin_launch(command="", host="", pid=0)
    trial = scheduler.next_trial()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of Optuna
        for begin in (lambda: None, lambda: scheduler.restart(trial.key, "its state was damaged")):
            begin()
            scheduler.next_trial()
            scheduler.report(trial.key, report(trial, 1))
            scheduler.next_trial()


def test_qmc_fills_a_range_evenly():
    """Of a scrambled Sobol sequence, the first eight points lie in eight equal parts of each range."""
    plan = planned("qmc", samples=8, methods=("albert",))
    simulation = Simulation(plan, slots=3)
    simulation.launch()
    (arm,) = plan.arms
    low, high = arm.space["learning_rate"].low, arm.space["learning_rate"].high
    place = [(trial["learning_rate"] / low) ** 8 for trial in configurations(simulation)]
    edges = [(high / low) ** part for part in range(9)]
    parts = {next(part for part in range(8) if edges[part] <= value <= edges[part + 1]) for value in place}
    assert parts == {*range(8)}


def test_own_sampler_sees_all_earlier_trials(own_sampler):
    simulation = Simulation(planned(OWN, samples=4), slots=1)
    simulation.launch()
    rates = [config["learning_rate"] for config in configurations(simulation)]
    assert [round((rates[0] - rate) * 1e6) for rate in rates] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (
            "cma",
            "no sampler named 'cma'; available: tpe, random, grid, qmc, cmaes, gp, PACKAGE.MODULE",
        ),
        ("absent_package:Sampler", "ModuleNotFoundError: No module named 'absent_package'; allowed: an installed"),
        ("own_sampler:Missing", "AttributeError: module 'own_sampler' has no attribute 'Missing'"),
        ("own_sampler:no_sampler", "returned int for seed=0; allowed: a BaseSampler"),
        ("optuna.samplers:GridSampler", "TypeError: GridSampler.__init__() missing 1 required positional argument"),
    ],
)
def test_unusable_sampler_is_named_before_anything_runs(name, fault, own_sampler):
    with pytest.raises(ValueError) as raised:
        planned(name)
    assert fault in str(raised.value) and "\n" not in str(raised.value)


def test_missing_package_of_a_sampler_says_what_to_install(monkeypatch):
    monkeypatch.setattr("study.plans.samplers.find_spec", lambda package: None)
    with pytest.raises(ValueError, match="--sampler cmaes needs cmaes: pip install cmaes"):
        check_sampler("cmaes")


@pytest.mark.parametrize(
    ("sampler", "samples", "stopping", "words"),
    [
        ("tpe", 10, EarlyStopping(), "tpe (in effect a random search, because the first 10 trials are random)"),
        ("tpe", 11, EarlyStopping(), "tpe"),
        ("gp", 20, EarlyStopping(), "gp (learns only from trials that ASHA does not stop)"),
        ("gp", 20, None, "gp"),
        ("cmaes", 20, None, "cmaes (draws categorical fields at random)"),
        (OWN, 4, None, OWN),
    ],
)
def test_limits_of_a_sampler_are_described(sampler, samples, stopping, words):
    assert describe_sampler(sampler, samples, stopping) == words
