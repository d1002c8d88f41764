"""What follows from faults, on a clock of the test's: pytest tests/study/decisions/test_machine_faults.py"""

from __future__ import annotations

import pytest
from helpers.journals import failure_of

from study.decisions.machine_faults import LEFT_OUT_SECONDS, LONGEST_PAUSE_SECONDS, PATIENCE_SECONDS, Faults
from study.facts.events import NodeLeftOut, StudyPaused

NOW = "2026-01-01T00:00:00.000000+00:00"


class Launch:
    """Trials on two nodes, `a` and `b`, of which a trial gets on first on each."""

    def __init__(self, max_failures: int = 3) -> None:
        self.seconds = 0.0
        self.faults = Faults(max_failures=max_failures, clock=lambda: self.seconds)
        self.faults.note_progress("first", "a")
        self.faults.note_progress("second", "b")

    def breaks(self, key: str, node: str | None, *, running: int = 1) -> list[type]:
        events = self.faults.add(key, failure_of("machine", node=node), running=running, time=NOW)
        return [type(event) for event in events]


def test_retry_wait_doubles_until_progress():
    launch = Launch()
    for seconds in (1, 2, 4, 8):
        launch.breaks("x", "a")
        launch.seconds += seconds - 0.5
        assert not launch.faults.is_due("x")
        launch.seconds += 0.5
        assert launch.faults.is_due("x")
    launch.faults.note_progress("x", "b")
    launch.breaks("x", "a")
    launch.seconds += 1
    assert launch.faults.is_due("x")


def test_trial_breaking_off_alone_is_set_aside():
    launch = Launch(max_failures=2)
    for number in range(1, 4):
        assert not launch.faults.is_set_aside("x")
        launch.breaks("x", None)
        launch.faults.note_progress(f"other {number}", "b")
    launch.seconds += 10 * LONGEST_PAUSE_SECONDS
    assert launch.faults.is_set_aside("x") and not launch.faults.is_due("x")


def test_the_faults_of_an_outage_count_once_however_many_they_are():
    launch = Launch(max_failures=1)
    for _ in range(10):
        launch.breaks("x", "a")
        launch.breaks("y", "b")
    launch.faults.note_progress("y", "b")
    launch.faults.note_progress("y", "b")
    assert not launch.faults.is_set_aside("x")


def test_node_failing_alone_is_left_out_for_stated_time():
    launch = Launch()
    assert launch.breaks("x", "a") == launch.breaks("y", "a") == []
    launch.faults.note_progress("second", "b")
    (event,) = launch.faults.add("x", failure_of("machine", error="no GPU", node="a"), running=1, time=NOW)
    assert event == NodeLeftOut(
        time=NOW, node="a", host="host-of-a", trials=2, seconds=LEFT_OUT_SECONDS, error="no GPU"
    )
    assert launch.faults.list_avoided_nodes("another") == {"a"}
    launch.seconds += LEFT_OUT_SECONDS - 1
    assert launch.faults.take_back_nodes(time=NOW) == []
    launch.seconds += 1
    (event,) = launch.faults.take_back_nodes(time=NOW)
    assert (event.node, event.host) == ("a", "host-of-a")
    assert launch.faults.list_avoided_nodes("another") == frozenset()


def test_break_off_on_left_out_node_is_not_counted():
    launch = Launch(max_failures=0)
    for key in ("x", "y", "x"):
        launch.breaks(key, "a")
        launch.faults.note_progress("second", "b")
    assert not launch.faults.is_set_aside("x")


def test_break_off_on_lost_node_is_not_counted():
    launch = Launch(max_failures=0)
    launch.breaks("x", "a")
    launch.faults.note_progress("second", "b")
    assert launch.faults.is_set_aside("x")
    launch.faults.forget(["a"])
    assert not launch.faults.is_set_aside("x")


@pytest.mark.parametrize("keys", [("x", "x", "x"), ("x", "y")])
def test_one_trial_or_one_outage_leaves_no_node_out(keys):
    launch = Launch(max_failures=9)
    for key in keys:
        launch.breaks(key, "a")
    launch.faults.note_progress("second", "b")
    assert NodeLeftOut not in (launch.breaks("x", "a") if len(set(keys)) == 1 else launch.breaks("z", "b"))
    assert launch.faults.list_avoided_nodes("second") == frozenset()


def test_a_trial_is_retried_elsewhere():
    launch = Launch()
    launch.breaks("x", "a")
    assert launch.faults.list_avoided_nodes("x") == {"a"} and launch.faults.list_avoided_nodes("y") == frozenset()


def test_fault_on_every_node_pauses_with_backoff():
    launch = Launch()
    assert launch.breaks("x", "a") == []
    assert launch.breaks("y", "b") == [StudyPaused]
    assert not launch.faults.has_room(running=0)
    assert launch.breaks("z", "a") == []  # of the same moment
    launch.seconds += 1
    assert launch.faults.has_room(running=5)
    (event,) = launch.faults.add("x", failure_of("machine", error="disk full"), running=0, time=NOW)
    assert event == StudyPaused(time=NOW, seconds=2, faults=4, error="disk full")
    launch.seconds += 2
    assert launch.faults.has_room(running=0) and not launch.faults.has_room(running=1)  # one shows the way
    launch.faults.note_progress("x", "a")
    assert launch.faults.has_room(running=1)


def test_one_node_at_fault_does_not_pause_the_other():
    launch = Launch()
    assert launch.breaks("x", "a") == launch.breaks("y", "a") == launch.breaks("x", "a") == []
    assert launch.faults.has_room(running=1)


def test_patience_ends_after_ten_minutes_without_progress():
    launch = Launch()
    launch.breaks("x", "a")
    launch.seconds += PATIENCE_SECONDS - 1
    assert launch.faults.give_up_reason is None
    launch.seconds += 1
    assert (
        launch.faults.give_up_reason
        == "no trial completed an epoch for 10 minutes; no trial was marked as failed; the last error was boom"
    )
    launch.faults.note_progress("y", "b")
    assert launch.faults.give_up_reason is None


def test_out_of_memory_is_final_after_retries():
    launch = Launch(max_failures=2)
    for _ in range(2):
        assert not launch.faults.is_final("x", failure_of("memory"))
        launch.faults.add("x", failure_of("memory"), running=1, time=NOW)
    assert launch.faults.is_final("x", failure_of("memory"))
    assert launch.faults.is_final("y", failure_of("method"))
    for _ in range(9):
        launch.breaks("z", "a")
    assert not launch.faults.is_final("z", failure_of("machine"))


def test_crash_at_one_step_is_final_after_limit():
    launch = Launch(max_failures=2)
    here, later = (failure_of("crash", error=f"ended by SIGSEGV in step {step}") for step in (3, 4))
    for failure in (here, later, here):
        assert not launch.faults.is_final("x", failure)
        launch.faults.add("x", failure, running=1, time=NOW)
    assert launch.faults.is_final("x", here) and not launch.faults.is_final("x", later)
    assert launch.faults.count_crashes("x") == 3
    launch.faults.note_progress("x", "a")
    assert not launch.faults.is_final("x", here) and launch.faults.count_crashes("x") == 0


SLOW = PATIENCE_SECONDS + 1


@pytest.mark.parametrize("failure", [failure_of("crash", error="hung in step 3"), failure_of("memory")])
def test_launch_does_not_give_up_before_a_slow_fault_is_counted(failure):
    launch = Launch(max_failures=2)
    for _ in range(2):
        assert not launch.faults.is_final("x", failure)
        launch.faults.add("x", failure, running=0, time=NOW)
        launch.seconds += SLOW
        assert launch.faults.give_up_reason is None
    assert launch.faults.is_final("x", failure)


def test_trial_is_not_set_aside_before_its_crash_is_counted():
    launch = Launch(max_failures=0)
    launch.faults.add("x", failure_of("crash"), running=1, time=NOW)
    launch.faults.note_progress("other", "b")
    assert not launch.faults.is_set_aside("x") and launch.faults.is_final("x", failure_of("crash"))
    launch.faults.add("x", failure_of("crash", error="another step"), running=1, time=NOW)
    launch.faults.note_progress("other", "b")
    assert launch.faults.is_set_aside("x")


def test_launch_gives_up_on_unlike_or_uncounted_crashes():
    here, later = (failure_of("crash", error=f"ended by SIGSEGV in step {step}") for step in (3, 4))
    for failures in ([here, later], [here, here, here]):
        launch = Launch(max_failures=2)
        for failure in failures:
            assert launch.faults.give_up_reason is None
            launch.faults.add("x", failure, running=0, time=NOW)
            launch.seconds += SLOW
        assert launch.faults.give_up_reason is not None


def test_patience_with_the_machine_begins_with_its_first_fault():
    launch = Launch()
    launch.faults.add("x", failure_of("crash"), running=0, time=NOW)
    launch.seconds += SLOW
    launch.breaks("y", "a")
    assert launch.faults.give_up_reason is None
    launch.seconds += PATIENCE_SECONDS
    assert launch.faults.give_up_reason is not None


def test_first_crash_is_never_final():
    launch = Launch(max_failures=0)
    assert not launch.faults.is_final("x", failure_of("crash"))
    launch.faults.add("x", failure_of("crash"), running=1, time=NOW)
    assert launch.faults.is_final("x", failure_of("crash"))


def test_node_with_other_code_is_left_out_and_rechecked():
    launch = Launch(max_failures=0)
    (event,) = launch.faults.add("x", failure_of("node", error="code f00d, not c0de", node="a"), running=1, time=NOW)
    assert (event.node, event.trials, event.error) == ("a", 1, "code f00d, not c0de")
    assert launch.faults.differing == {"a"} and launch.faults.list_avoided_nodes("y") == {"a"}
    launch.faults.note_progress("second", "b")
    assert not launch.faults.is_set_aside("x") and not launch.faults.is_final("x", failure_of("node"))
    launch.seconds += LEFT_OUT_SECONDS
    launch.faults.take_back_nodes(time=NOW)
    assert launch.faults.differing == set() and launch.breaks("y", "a") == []


LASTING = [
    "PermissionError: [Errno 13] Permission denied: '/data'",
    "OSError: [Errno 30] Read-only file system: '/home'",
]


@pytest.mark.parametrize("error", [*LASTING, "ImportError: libcuda.so: cannot open shared object file"])
def test_launch_surrenders_to_one_lasting_fault_before_any_trial_got_on(error):
    seconds, pauses = 0.0, []
    faults = Faults(clock=lambda: seconds)
    while faults.give_up_reason is None:
        assert seconds < 60
        pauses += faults.add("x", failure_of("machine", error=error), running=0, time=NOW)
        seconds += pauses[-1].seconds if pauses else 1
    assert faults.give_up_reason == f"every trial fails with the same error, which waiting cannot fix: {error}"
    assert len(pauses) == 4


@pytest.mark.parametrize("errors", [["OSError: [Errno 28] No space left on device"], LASTING])
def test_launch_waits_for_faults_that_may_pass_or_differ(errors):
    seconds = 0.0
    faults = Faults(clock=lambda: seconds)
    for number in range(8):
        seconds += LONGEST_PAUSE_SECONDS
        error = errors[number % len(errors)]
        assert faults.add("x", failure_of("machine", error=error), running=0, time=NOW) or number == 0
        assert faults.give_up_reason is None


def test_launch_waits_for_a_lasting_fault_once_a_trial_got_on():
    launch = Launch()
    for _ in range(8):
        launch.seconds += LONGEST_PAUSE_SECONDS
        for node in ("a", "b"):
            launch.faults.add("x", failure_of("machine", error=LASTING[0], node=node), running=0, time=NOW)
        assert launch.faults.give_up_reason is None
