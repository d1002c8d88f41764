"""python -m pytest tests/analysis/test_verify_journal.py"""

import json
import shutil
from typing import get_args

import pytest
from helpers.edited_studies import edit_events, has, without, write_events
from helpers.launched_studies import eventful_study, launch, launched_study, mini_plan
from msgspec.structs import replace

from analysis.tables import write_tables
from analysis.verify import verify
from study.facts.events import (
    FILE,
    AshaDecided,
    EpochReported,
    Event,
    LaunchBegan,
    LaunchEnded,
    SearchClosed,
    StartChosen,
    TrialEnded,
    read_events,
)

pytestmark = pytest.mark.slow

LIMIT = 0.019  # GPU hours: closes searches of which some trials were run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return launched_study(tmp_path_factory.mktemp("runs") / "s")


@pytest.fixture
def study(made, tmp_path):
    return shutil.copytree(made, tmp_path / "s")


@pytest.fixture(scope="module")
def eventful_made(tmp_path_factory):
    return eventful_study(tmp_path_factory.mktemp("runs") / "eventful")


@pytest.fixture
def eventful(eventful_made, tmp_path):
    return shutil.copytree(eventful_made, tmp_path / "eventful")


def test_a_study_that_was_killed_extended_and_short_of_time_verifies(eventful):
    assert {type(event) for event in read_events(eventful)} == set(get_args(Event))
    assert verify(eventful) == []


def test_a_launch_that_is_under_way_verifies(tmp_path):
    launch(tmp_path / "s", mini_plan(), killed_after=30)
    write_tables([tmp_path / "s"], tmp_path / "s" / "tables")
    assert verify(tmp_path / "s") == []


def test_a_broken_event_is_a_drift_and_the_rest_is_checked(study):
    path = study / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b'{"event":"epoch\n', *lines[3:]]))
    assert has(verify(study), f"{FILE}:3: not a JSON object")


def test_what_follows_from_a_broken_event_is_one_line_each(study):
    path = study / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    broken = next(number for number, line in enumerate(lines, start=1) if b'"asha_decided"' in line)
    path.write_bytes(b"".join([*lines[: broken - 1], lines[broken - 1][:-2] + b"\n", *lines[broken:]]))
    fault, later, numbers = verify(study)
    assert fault.startswith(f'{FILE}:{broken}: not a JSON object: \'{{"event":"asha_decided"')
    assert later.startswith(f"what may follow from that line {broken} of {FILE} cannot be read: {FILE}:")
    assert numbers == f"models, tables and report cannot be checked: see {FILE}:{broken} above"


def test_a_record_that_the_reports_do_not_give_is_found(study):
    edit_events(study, TrialEnded, lambda event: event["record"].update(selection_score=0.875))
    assert has(verify(study), "trial_ended: record selection_score is 0.875; should be ")


def test_another_code_than_the_launchs_is_found(study):
    edit_events(study, TrialEnded, lambda event: event["record"].update(git_commit="beef"))
    assert has(verify(study), 'record git_commit is "beef"; should be "0123abc4", as in its launches')


def test_a_decision_of_asha_that_the_rungs_do_not_give_is_found(study):
    stopped = [event.decision for event in read_events(study) if isinstance(event, AshaDecided)].index("stop")
    edit_events(study, AshaDecided, lambda event: event.update(decision="continue"), number=stopped)
    assert has(verify(study), 'asha_decided: decision is "continue"; should be "stop"')


def test_a_missing_decision_of_asha_is_found(study):
    without(study, AshaDecided)
    assert has(verify(study), "ASHA did not decide about", "at rung 1")


def test_a_start_that_is_not_the_best_is_found(eventful):
    edit_events(eventful, StartChosen, lambda event: event.update(model="/models/other"))
    assert has(verify(eventful), 'start_chosen: model is "/models/other"; should be ')


def test_a_search_that_was_not_closed_is_found(eventful):
    without(eventful, SearchClosed)
    assert has(verify(eventful), "launch_ended: status is complete; trials are left")


def test_a_confirm_trial_while_the_search_goes_on_is_found(tmp_path):
    launch(tmp_path / "s", mini_plan(), max_gpu_hours=LIMIT)
    without(tmp_path / "s", SearchClosed)
    assert has(verify(tmp_path / "s"), "a confirm trial of ", "while its search goes on")


def test_a_trial_that_the_limit_does_not_pay_for_is_found(tmp_path):
    launch(tmp_path / "s", mini_plan(), max_gpu_hours=LIMIT)
    edit_events(tmp_path / "s", LaunchBegan, lambda event: event.update(max_gpu_hours=LIMIT / 2))
    assert has(verify(tmp_path / "s"), f"the limit of {LIMIT / 2} GPU hours had nothing left for it")


def test_a_search_that_was_closed_for_nothing_is_found(eventful):
    edit_events(eventful, SearchClosed, lambda event: event.update(arms=["albert/rte"]))
    assert has(verify(eventful), "search_closed: arms")


def test_time_that_runs_backwards_is_found(study):
    edit_events(study, AshaDecided, lambda event: event.update(time="2020-01-01T00:00:00.000000+00:00"))
    assert has(verify(study), "asha_decided: time is 2020-01-01T00:00:00.000000+00:00; should be ")


def test_events_outside_of_a_launch_are_found(study):
    without(study, LaunchBegan)
    assert has(verify(study), f"{FILE}:1 trial_started: no launch is running")


def test_a_launch_that_left_nothing_to_do_was_complete(study):
    edit_events(study, LaunchEnded, lambda event: event.update(status="drained"))
    assert has(verify(study), "launch_ended: status is drained; trials are all done")


def test_an_epoch_after_the_trials_end_is_found(study):
    lines = (study / FILE).read_bytes().splitlines()
    last = next(line for line in reversed(lines) if b'"event":"epoch_reported"' in line)
    write_events(study, [*lines[:-1], last, lines[-1]])
    assert has(verify(study), "epoch_reported: trial ", "has ended before")


def test_an_epoch_that_improved_nothing_is_found(study):
    edit_events(study, EpochReported, lambda event: event["report"]["row"].update(improved=False))
    assert has(verify(study), "epoch_reported: report row improved is false; should be true")


def test_events_in_another_order_are_found(study):
    lines = (study / FILE).read_bytes().splitlines()
    write_events(study, [*lines[:1], lines[2], lines[1], *lines[3:]])
    assert verify(study)


OTHERS = {
    "backbone_fingerprint": "report attested: backbone mini-bert@0123, not mini-albert@",
    "data_fingerprint": "report attested: data mini-bert@0123, not ",
    "code_digest": "report attested: code mini-bert@0123, not c0de",
    "tokens_digest": "report attested: tokenised data mini-bert@0123, not beef",
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_trial_that_was_made_of_something_else_is_found(study, field):
    lines = [json.loads(line) for line in (study / FILE).read_bytes().splitlines()]
    attested = [line["report"]["attested"] for line in lines if line["event"] == "epoch_reported"]
    last = max(number for number, found in enumerate(attested) if found)
    other = {field: "mini-bert@0123"}
    edit_events(study, EpochReported, lambda event: event["report"]["attested"].update(other), number=last)
    assert has(verify(study), OTHERS[field])


def test_a_cell_of_two_backbones_is_found(study):
    edit_events(study, TrialEnded, lambda event: event["record"].update(backbone_fingerprint="mini-bert@0123"))
    drift = verify(study)
    assert has(drift, 'record backbone_fingerprint is "mini-bert@0123"; should be "mini-albert@')
    assert has(drift, "numbers of different content never share a cell")


def test_a_trial_that_attested_nothing_is_found(study):
    edit_events(study, EpochReported, lambda event: event["report"].update(attested=None))
    assert has(verify(study), "report attested is null; should come with the first epoch")


# ---- what an arm is made of, from launch to launch


@pytest.mark.parametrize(("arm", "drift"), [(0, True), (1, False)])
def test_what_an_arm_is_made_of_may_change_only_until_a_trial_of_it_was_started(tmp_path, arm, drift):
    plan = mini_plan(methods=("albert", "palbert"), tasks=("rte",), seeds=1)
    arms = [*plan.arms]
    before = [*arms]
    before[arm] = replace(arms[arm], data_fingerprint="0123456789abcdef")
    launch(tmp_path / "s", replace(plan, arms=tuple(before)), killed_after=0)  # two trials of the first arm
    launch(tmp_path / "s", plan)
    found = [line for line in verify(tmp_path / "s") if "data_fingerprint of" in line]
    assert bool(found) is drift, found
