"""pytest tests/test_eta.py"""

import dataclasses

import pytest
from simulation import Simulation

from study import profiles
from study.eta import remaining_seconds
from study.plan import resolve
from study.state import StudyState


@pytest.fixture(scope="module")
def simulation():
    plan = dataclasses.replace(profiles.load("mini"), methods=("albert", "palbert"), tasks=("rte", "cola"), samples=8)
    simulation = Simulation(resolve(plan))
    simulation.launch()
    return simulation


def state_after(simulation, events):
    nothing = {"versions": {}, "git_commit": None}
    return StudyState("s", simulation.resolved, events=events, append=dict, provenance=nothing)


def test_it_is_unknown_before_an_epoch_was_measured(simulation):
    assert remaining_seconds(state_after(simulation, simulation.journal.events[:3])) is None


def test_nothing_is_left_of_a_finished_study(simulation):
    assert remaining_seconds(state_after(simulation, simulation.journal.events)) == 0


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.8])
def test_it_is_close_to_the_epochs_that_follow(simulation, part):
    """An epoch of the simulation counts one second, so what is left is the number of epochs to come."""
    events = simulation.journal.events
    cut = int(part * len(events))
    epochs = [event["event"] == "epoch_reported" for event in events]
    left = remaining_seconds(state_after(simulation, events[:cut]))
    assert left == pytest.approx(sum(epochs[cut:]), abs=0.12 * sum(epochs))
