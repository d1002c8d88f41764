"""How much of a GPU a trial gets: pytest tests/study/decisions/test_packing.py"""

from __future__ import annotations

import pytest
from helpers.journals import MadeJournal, failure_of, report_of, row_of
from helpers.shared_gpu import SharedGpu
from msgspec.structs import replace

from study import profiles
from study.decisions.packing import gpu_share, measured_rates, memory_share, trials_at_once
from study.facts.events import EpochReported, TrialRetried
from study.facts.study_facts import StudyFacts
from study.plans.resolution import resolve

SMALL, LARGE = {"batch_size": 16}, {"batch_size": 32}
SIXTEEN, THIRTY_TWO = (16, "float32"), (32, "float32")  # batch size, precision


@pytest.fixture
def journal() -> MadeJournal:
    """With two trials of one batch size, and one of a larger one."""
    journal = MadeJournal()
    journal.begin()
    for trial, (key, config) in enumerate({"one": SMALL, "other": SMALL, "large": LARGE}.items()):
        journal.start(key, trial=trial, config=config)
    return journal


def say(
    journal: MadeJournal,
    key: str,
    epoch: float,
    *,
    seconds: float = 10.0,
    share: float = 1.0,
    memory: float = 0.1,
    gpu: str | None = "0",
) -> None:
    """The trial reports an epoch that took `seconds`, and 3 more to start or save, and held `share` of the GPU."""
    last = journal.facts.trials[key].last
    nothing = replace(row_of(1, 0.5), train_seconds=0.0, eval_seconds=0.0)
    before = last.report if last else report_of(nothing, wall_seconds=0.0)
    training = before.row.train_seconds + 0.75 * seconds
    row = replace(row_of(epoch, 0.5), train_seconds=training, eval_seconds=before.row.eval_seconds + 0.25 * seconds)
    costs = {"wall_seconds": 3 + seconds, "gpu_seconds": share * (3 + seconds)}
    totals = {name: getattr(before, name) + cost for name, cost in costs.items()}
    report = report_of(row, **totals, gpu_share=memory, gpu=gpu)
    journal.append(EpochReported(time=journal.now(), key=key, report=report))


def times(journal: MadeJournal) -> dict[tuple, list[float]]:
    """By batch size and number of trials."""
    found = journal.facts.arm("palbert/rte").epoch_seconds
    return {(size, number): seconds for ((size, _), number), seconds in found.items()}


def test_a_trial_needs_the_memory_that_was_measured_on_its_batch_size_or_the_next_larger_one(journal):
    trials, arm = journal.facts.trials, journal.facts.arm("palbert/rte")
    assert memory_share(trials["one"], arm) == 1.0
    say(journal, "one", 1, memory=0.1)
    assert memory_share(trials["one"], arm) == pytest.approx(0.15) and memory_share(trials["large"], arm) == 1.0
    say(journal, "large", 1, memory=0.3)
    assert memory_share(trials["large"], arm) == pytest.approx(0.4)
    say(journal, "large", 2, memory=0.4)
    assert memory_share(trials["large"], arm) == pytest.approx(0.5)


def test_what_trials_of_another_precision_have_held_or_taken_says_nothing():
    journal = MadeJournal()
    journal.begin()
    configs = {name: SMALL | {"precision": name} for name in ("bfloat16", "float32")}
    for trial, (key, config) in enumerate(configs.items()):
        journal.start(key, trial=trial, config=config)
    trials, arm = journal.facts.trials, journal.facts.arm("palbert/rte")
    say(journal, "bfloat16", 1, memory=0.1)
    assert memory_share(trials["float32"], arm) == 1.0
    assert memory_share(trials["bfloat16"], arm) == pytest.approx(0.15)
    assert list(arm.epoch_seconds) == [((16, "bfloat16"), 1)]


def test_an_epoch_counts_for_the_trials_that_were_on_its_gpu(journal):
    say(journal, "one", 1, seconds=10)
    assert times(journal) == {(16, 1): [10]}
    journal.retry("one", "lost")
    journal.clock = 100
    say(journal, "one", 2, seconds=16, share=0.5)  # its neighbour has not been heard of
    assert times(journal) == {(16, 1): [10]}
    say(journal, "other", 1, seconds=16, share=0.5)
    assert times(journal) == {(16, 1): [10], (16, 2): [16]}
    say(journal, "large", 1, seconds=40, share=1.0, gpu="1")
    assert times(journal) == {(16, 1): [10], (16, 2): [16], (32, 1): [40]}


def test_a_trial_with_a_larger_share_from_before_is_counted_as_the_neighbour_that_it_is(journal):
    say(journal, "one", 1, seconds=20, share=0.5)
    say(journal, "other", 1, seconds=20, share=0.3333)
    assert times(journal) == {(16, 2): [20]}


@pytest.mark.parametrize("gone", ["broken off", "ended", "of the launch before"])
def test_a_trial_that_does_not_run_is_no_neighbour(journal, gone):
    say(journal, "other", 1, share=0.5)
    if gone == "broken off":
        journal.append(TrialRetried(time=journal.now(), key="other", failure=failure_of("machine")))
    elif gone == "ended":
        journal.finish("other", score=0.5, epoch=1)
    else:
        journal.begin(2)
    say(journal, "one", 1, share=0.5)
    assert times(journal) == {}


def test_an_epoch_during_which_a_neighbour_came_is_not_counted(journal):
    journal.clock = 100
    say(journal, "other", 1, seconds=17, share=0.5)
    say(journal, "one", 1, seconds=77, share=0.5)
    assert times(journal) == {}
    journal.clock = 180
    say(journal, "one", 2, seconds=77, share=0.5)
    assert times(journal) == {(16, 2): [77]}


def test_epochs_on_a_cpu_are_not_counted(journal):
    say(journal, "one", 1, gpu=None)
    assert times(journal) == {}


def facts_of(**arms: dict[int, list[float]]) -> StudyFacts:
    """With these seconds of epochs, by trials on a GPU, all of one batch size."""
    facts = StudyFacts()
    for name, seconds in arms.items():
        facts.arm(name).epoch_seconds = {(SIXTEEN, number): own for number, own in seconds.items()}
    return facts


@pytest.mark.parametrize(
    ("seconds", "rates", "at_once"),
    [
        ({}, [], 1),
        ({1: [10] * 7}, [], 1),  # too few
        ({1: [10] * 8}, [1], 2),
        ({1: [10] * 8, 2: [10] * 7}, [1], 2),
        ({1: [10] * 8, 2: [10] * 8}, [1, 2], 3),  # room for all
        ({1: [10] * 8, 2: [10] * 8, 3: [15] * 8}, [1, 2, 2], 2),  # full with two
        ({1: [10] * 8, 2: [20] * 8}, [1, 1], 1),
        ({1: [10] * 8, 2: [25] * 8}, [1, 0.8], 1),  # they hinder each other
        ({1: [10] * 8, 2: [19.2] * 8}, [1, 1.04], 1),
        ({1: [10] * 8, 2: [18.75] * 8}, [1, 1.07], 3),
        ({1: [10] * 8, 2: [25] * 8, 3: [10] * 8}, [1, 0.8], 1),
    ],
)
def test_a_trial_is_added_while_trials_per_hour_rise(seconds, rates, at_once):
    facts = facts_of(arm=seconds)
    assert measured_rates(facts) == pytest.approx(rates, abs=0.01) and trials_at_once(facts) == at_once


def test_one_slow_epoch_decides_nothing():
    assert trials_at_once(facts_of(arm={1: [10, 11, 9, 60] * 2, 2: [12, 11, 90, 12] * 2})) == 3
    assert trials_at_once(facts_of(arm={1: [10, 10, 10, 10] * 2, 2: [20, 2, 21, 19] * 2})) == 1


def test_an_arm_is_compared_with_itself_alone():
    short, long = {1: [1.0] * 8, 2: [2.0] * 8}, {1: [100.0] * 8}
    assert measured_rates(facts_of(short=short, long=long)) == [1, 1]
    assert measured_rates(facts_of(short={2: [1.0] * 8}, long=long)) == [1]


def test_batch_sizes_are_compared_with_themselves_alone():
    facts = facts_of(arm={1: [10.0] * 8})
    facts.arm("arm").epoch_seconds[(THIRTY_TWO, 2)] = [2.0] * 8
    assert measured_rates(facts) == [1] and trials_at_once(facts) == 2


def test_numbers_of_trials_that_were_measured_on_different_arms_can_be_compared():
    arms = {"short": {1: [1.0] * 4, 2: [1.0] * 8}, "long": {1: [100.0] * 4, 3: [150.0] * 8}}
    assert measured_rates(facts_of(**arms)) == [1, 2, 2]


def test_several_arms_together_suffice_and_their_median_counts():
    alone, together = [10.0] * 3, {"a": [12.0] * 3, "b": [16.0] * 3, "c": [40.0] * 3}
    assert measured_rates(facts_of(**{arm: {1: alone, 2: own} for arm, own in together.items()})) == [1, 1.25]


def test_a_share_is_never_below_what_memory_needs_and_as_many_fit_as_are_meant_to(journal):
    say(journal, "one", 1, memory=0.3)
    trial = journal.facts.trials["other"]
    assert gpu_share(trial, journal.facts) == 1.0
    journal.facts.arm("palbert/rte").epoch_seconds = {(SIXTEEN, 1): [10] * 8, (SIXTEEN, 2): [10] * 8}
    assert trials_at_once(journal.facts) == 3 and gpu_share(trial, journal.facts) == pytest.approx(0.4)
    say(journal, "one", 2, memory=0.01)
    assert gpu_share(trial, journal.facts) == 0.3333


PLAN = replace(profiles.load("mini"), methods=("albert", "palbert"), tasks=("rte", "cola"), samples=36, seeds=3)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_study_settles_on_as_many_trials_as_the_gpu_has_room_for(most):
    study = SharedGpu(resolve(PLAN), saturated_at=most)
    study.launch()
    assert trials_at_once(study.journal.facts) == most
    assert study.at_once[-1] == most and max(study.at_once) <= most + 1


@pytest.mark.slow
def test_a_study_never_packs_more_than_memory_allows():
    study = SharedGpu(resolve(PLAN), saturated_at=9, memory=0.3)
    study.launch()
    assert max(study.at_once) == 2


def test_a_launch_that_goes_on_knows_what_was_measured():
    study = SharedGpu(resolve(PLAN), saturated_at=3)
    study.launch(epochs=200)
    before = trials_at_once(study.journal.facts)
    study.launch()
    assert before == 3 and study.at_once[-1] == 3
    replayed = StudyFacts()
    for event in study.journal.events:
        replayed.apply(event)
    assert measured_rates(replayed) == measured_rates(study.journal.facts)
