"""Failed trials that run again, and what the machine breaks: pytest tests/study/decisions/test_reopened_trials.py"""

from __future__ import annotations

import io
import re

import pytest
from helpers.journals import MadeJournal, failure_of
from helpers.simulation import report
from msgspec.structs import replace

from study.decisions.machine_faults import PATIENCE_SECONDS, Faults
from study.decisions.scheduler import Scheduler
from study.facts.events import TrialReopened
from study.facts.provenance import Provenance
from study.launching.live_view import LiveView
from study.plans import profiles
from study.plans.resolution import resolve

OLD = Provenance(versions={"torch": "2.12"}, git_commit="aaaa", code_digest="aaaa")


def scheduler_of(journal: MadeJournal, provenance: Provenance = OLD, *, faults: Faults | None = None) -> Scheduler:
    """The scheduler of a launch of one arm with two search trials and a confirm trial."""
    small = {"methods": ("albert",), "tasks": ("rte",), "samples": 2, "seeds": 1, "sampler": "random", "epochs": 3}
    plan = resolve(replace(profiles.load_profile("mini"), **small))
    scheduler = Scheduler(plan, journal, provenance, faults=faults)
    scheduler.begin_launch(command="", host="", pid=0)
    return scheduler


@pytest.fixture
def journal() -> MadeJournal:
    """A launch in which the first search trial fails after an epoch, and the other two trials complete."""
    journal = MadeJournal()
    scheduler = scheduler_of(journal)
    first, second = scheduler.next_trial(), scheduler.next_trial()
    assert first is not None and second is not None
    run_to_the_end(scheduler, second)
    scheduler.report(first.key, report(first, 1))
    scheduler.end(first.key, failure=failure_of("method", error="loss is nan"))
    run_to_the_end(scheduler, scheduler.next_trial())
    assert scheduler.progress.is_finished
    return journal


def run_to_the_end(scheduler: Scheduler, trial) -> None:
    for epoch in range(1, trial.config["epochs"] + 1):
        if scheduler.report(trial.key, report(trial, epoch)) == "stop":
            break
    scheduler.end(trial.key)


def test_a_failure_is_final_under_the_same_code_and_versions(journal):
    scheduler = scheduler_of(journal)
    scheduler.reopen_failed(retry_failed=False)
    assert scheduler.progress.is_finished and journal.of(TrialReopened) == []


@pytest.mark.parametrize(
    ("provenance", "asked", "reason"),
    [
        (OLD, True, "asked"),
        (replace(OLD, code_digest="bbbb"), False, "code"),
        (replace(OLD, versions={"torch": "2.13"}), False, "versions"),
    ],
)
def test_failed_trial_reruns_on_request_or_new_code(journal, provenance, asked, reason):
    scheduler = scheduler_of(journal, provenance)
    scheduler.reopen_failed(retry_failed=asked)
    (event,) = journal.of(TrialReopened)
    trial = scheduler.next_trial()
    assert event.reason == reason and trial.key == event.key
    assert trial.epochs == 0 and trial.record is None
    assert not any(trial.key in scores for scores in scheduler.facts.arms["albert/rte"].rungs.values())


def test_failure_counts_for_the_code_that_failed():
    """Epochs of older code, from which the failed trial went on, do not reopen it."""
    journal, new = MadeJournal(), replace(OLD, code_digest="bbbb")
    trial = scheduler_of(journal).next_trial()
    scheduler_of(journal).report(trial.key, report(trial, 1))
    record = scheduler_of(journal, new).end(trial.key, failure=failure_of("method", error="loss is nan"))
    assert record.code_digest == "aaaa, bbbb"
    scheduler_of(journal, new).reopen_failed(retry_failed=False)
    assert journal.of(TrialReopened) == []
    scheduler_of(journal).reopen_failed(retry_failed=False)
    assert [event.reason for event in journal.of(TrialReopened)] == ["code"]


def test_a_reopened_trial_has_one_record_that_counts_its_last(journal):
    scheduler = scheduler_of(journal)
    scheduler.reopen_failed(retry_failed=True)
    trial = scheduler.next_trial()
    assert [record.key for record in scheduler.progress.failures] == []
    run_to_the_end(scheduler, trial)
    assert trial.record.status in ("completed", "stopped") and trial.record.epochs > 0
    both = [record.status for record in scheduler.facts.records if record.key == trial.key]
    assert both == ["failed", trial.record.status]
    assert scheduler.progress.total_trials == len(scheduler.facts.trials) + len(
        scheduler.progress.arm("albert/rte").missing_seeds
    )


def test_rerun_trial_is_counted_once(journal):
    scheduler, said = scheduler_of(journal), io.StringIO()
    scheduler.reopen_failed(retry_failed=True)
    view = LiveView(scheduler, slots=lambda without: 1, output=said)
    while trial := scheduler.next_trial():
        run_to_the_end(scheduler, trial)
        view._print_ended()
    places = [(int(n), int(of)) for n, of in re.findall(r"^\[(\d+)/(\d+)\]", said.getvalue(), re.MULTILINE)]
    trials = len(scheduler.facts.trials)
    assert places and len(scheduler.facts.records) == trials + 1
    assert all(n <= of for n, of in places) and places[-1] == (trials, trials)


def test_the_machines_faults_end_a_launch_and_no_trial():
    seconds = [0.0]
    scheduler = scheduler_of(MadeJournal(), faults=Faults(clock=lambda: seconds[0]))
    while not scheduler.has_given_up:
        trial = scheduler.next_trial()
        if trial is None:
            seconds[0] += 1
        else:
            scheduler.retry(trial.key, failure_of("machine", error="disk full"))
    assert PATIENCE_SECONDS <= seconds[0] < PATIENCE_SECONDS + 70
    assert len(scheduler.facts.trials) == 2 and scheduler.facts.records == []
    assert not scheduler.progress.failures
    retries = sum(len(trial.retries) for trial in scheduler.facts.trials.values())
    assert retries < 60  # a pause of a minute between the later ones


def test_faults_of_an_earlier_launch_are_forgotten():
    seconds = [0.0]
    journal = MadeJournal()
    scheduler = scheduler_of(journal, faults=Faults(max_failures=0, clock=lambda: seconds[0]))
    first, second = scheduler.next_trial(), scheduler.next_trial()
    scheduler.retry(first.key, failure_of("machine", node=None))
    scheduler.report(second.key, report(second, 1))
    seconds[0] += 60
    assert scheduler.next_trial() is None
    assert scheduler_of(journal, faults=Faults(max_failures=0)).next_trial().key == first.key
