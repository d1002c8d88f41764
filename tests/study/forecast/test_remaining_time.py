"""pytest tests/study/forecast/test_remaining_time.py"""

from itertools import pairwise
from statistics import median

import pytest
from helpers.journals import MadeJournal
from helpers.simulation import Simulation
from msgspec.structs import replace

from study import profiles
from study.decisions.progress import StudyProgress
from study.facts.events import EpochReported
from study.forecast.remaining_time import remaining_seconds
from study.plans.resolution import resolve

PAIRS_OF_TASKS = list(pairwise(("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")))


def simulated(tasks):
    plan = replace(profiles.load("mini"), methods=("albert", "palbert"), tasks=tasks, samples=8)
    simulation = Simulation(resolve(plan))
    simulation.launch()
    return simulation


@pytest.fixture(scope="module")
def simulation():
    return simulated(("rte", "cola"))


@pytest.fixture(scope="module")
def simulations():
    return [simulated(tasks) for tasks in PAIRS_OF_TASKS]


def progress_after(simulation, events):
    journal = MadeJournal()
    for event in events:
        journal.append(event)
    return StudyProgress(simulation.resolved, journal.facts, max_gpu_hours=None)


def test_it_is_unknown_before_an_epoch_was_measured(simulation):
    assert remaining_seconds(progress_after(simulation, simulation.journal.events[:3])) is None


def test_nothing_is_left_of_a_finished_study(simulation):
    assert remaining_seconds(progress_after(simulation, simulation.journal.events)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("part", "tolerance"), [(0.1, 0.25), (0.3, 0.12), (0.5, 0.12), (0.8, 0.12)])
def test_it_is_close_to_the_epochs_that_follow(simulations, part, tolerance):
    """An epoch of the simulation counts one second, so what is left is the number of epochs to come."""
    assert median(abs(error_after(simulation, part)) for simulation in simulations) < tolerance


def error_after(simulation, part):
    """How far the forecast is from the truth when so much of the events have happened, in shares of all epochs."""
    events = simulation.journal.events
    cut = int(part * len(events))
    epochs = [isinstance(event, EpochReported) for event in events]
    left = remaining_seconds(progress_after(simulation, events[:cut]))
    return (left - sum(epochs[cut:])) / sum(epochs)
