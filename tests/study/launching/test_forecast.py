"""What a plan will cost, and how long the rest of it takes: pytest tests/study/launching/test_forecast.py"""

import json
import re
from itertools import pairwise
from statistics import median

import pytest
import torch
from helpers.glue_folders import write_glue
from helpers.journals import MadeJournal
from helpers.launched_studies import launched_study, mini_plan
from helpers.messages import says
from helpers.simulation import Simulation
from msgspec.structs import replace

from study import launch
from study.decisions import asha
from study.decisions.progress import StudyProgress, compute_progress
from study.facts.events import ConfirmClosed, EpochReported, TrialEnded
from study.facts.study_facts import read_facts
from study.launching.forecast import (
    MeasuredCost,
    describe_backbones,
    describe_time_limit,
    estimate,
    estimate_space,
    expected_epochs,
    forecast_plan,
    measure_costs,
    remaining_seconds,
)
from study.plans import profiles
from study.plans.plan import EarlyStopping, format_columns
from study.plans.resolution import resolve
from study.storage.study_storage import StudyStorage

STOPPING = EarlyStopping(grace=1, factor=3)
PAIRS_OF_TASKS = list(pairwise(("sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb")))


def test_asha_saves_most_of_a_long_search():
    assert expected_epochs(1, 9, STOPPING) == 9
    assert 36 * 1 < expected_epochs(36, 9, STOPPING) < 36 * 9 / 2


def test_expected_epochs_cost_at_most_all_trials(monkeypatch):
    """Work of a constant number per trial: no list of scores is gone through."""
    looked_at = []
    monkeypatch.setattr(asha, "compute_cutoff", lambda recorded, stopping: looked_at.append(1) or recorded[-1])
    expected_epochs.__wrapped__(5000, 9, STOPPING)
    assert len(looked_at) <= 2 * 30_000


def test_running_share_hardly_depends_on_search_length():
    shares = [expected_epochs(samples, 9, STOPPING) / (9 * samples) for samples in (2000, 10_000, 40_000)]
    assert max(shares) < 1.02 * min(shares)


def test_expected_epochs_are_those_of_a_simulated_study():
    mini = profiles.load_profile("mini")
    tasks = ("sst2", "rte", "cola", "mrpc")
    plan = replace(mini, methods=("albert",), tasks=tasks, samples=27, seeds=2, sampler="random", epochs=9)
    simulation = Simulation(resolve(plan), slots=1)
    simulation.launch()
    records = simulation.journal.records
    expected = estimate(simulation.resolved, {})
    assert sum(cost.epochs for cost in expected.values()) == pytest.approx(
        sum(record.epochs for record in records), rel=0.25
    )
    measured = measure_costs(simulation.journal.facts)
    assert measured["albert/rte"].epoch_seconds == pytest.approx(1)  # a simulated epoch counts one second
    known = estimate(simulation.resolved, measured)
    assert all(cost.slot_seconds == pytest.approx(cost.epochs) for cost in known.values())


def test_a_dry_run_says_that_it_does_not_know_the_time(tmp_path, capsys):
    assert launch.main(["--task", "rte", "--dry-run", "--out", str(tmp_path)]) == 0
    assert says(capsys.readouterr().out, "not known for 1 of 1 arm: ", "--probe ")


def test_a_dry_run_says_one_epoch_as_one(tmp_path, capsys):
    one = ["--samples", "1", "--seeds", "1", "--epochs", "1", "--early-stopping", "none"]
    assert launch.main(["--profile", "mini", "--task", "rte", "--dry-run", "--out", str(tmp_path), *one]) == 0
    assert "1 search (at most 1 epoch) " in capsys.readouterr().out


def test_dry_run_begins_with_the_caveat_and_ends_with_commands(tmp_path, capsys):
    asked = ["--profile", "mini", "--method", "albert", "--task", "rte", "--epochs", "2", "--seeds", "3"]
    assert launch.main([*asked, "--out", str(tmp_path), "--dry-run"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert says(first, "generated (mini-GLUE), ", "not comparable with GLUE scores")
    assert " 3 confirm (6 epochs) " in lines[1]
    assert re.fullmatch(r"  git tag (plan-\w{16}) && git push origin \1", lines[-3])
    assert lines[-2].endswith("--toml > plan.toml") and says(lines[-1], "nothing was run; ", "leave out --dry-run")


def test_a_probe_measures_time_and_disk_and_creates_no_study(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = tmp_path / "runs"
    assert launch.main(["--task", "rte", "--dry-run", "--probe", "--out", str(runs)]) == 0
    printed = capsys.readouterr()
    assert (
        "probed palbert/rte:" in printed.err
        and "estimated from a probe" in printed.out
        and "kB of models" in printed.out
    )
    assert not runs.exists()


def test_probe_runs_as_a_trial_does(tmp_path, monkeypatch, capsys):
    """Also where all rows of train are one batch."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    machine = ["--cpus-per-trial", "2", "--gpus-per-trial", "0"]
    asked = ["--method", "albert", "--task", "rte", "--set", "batch_size=1000", *machine]
    assert launch.main([*asked, "--dry-run", "--probe", "--out", str(tmp_path)]) == 0
    assert threads == [2] and "estimated from a probe" in capsys.readouterr().out


def test_dry_run_forecasts_the_arms_of_its_own_launch(tmp_path, capsys):
    folder = launched_study(tmp_path / "study", mini_plan(methods=("albert", "pabee"), tasks=("rte",)))
    left = []
    for more in ([], ["--method", "albert"]):
        capsys.readouterr()
        assert launch.main(["--continue", str(folder), "--seeds", "9", *more, "--dry-run", "--json"]) == 0
        left.append(json.loads(capsys.readouterr().out)["done"]["remaining_seconds"])
    assert 0 < left[1] < left[0]


def test_dry_run_forecasts_under_its_own_gpu_limit(tmp_path, capsys):
    """Not under that of the last launch, which closed the phase."""
    plan = mini_plan(methods=("albert",), tasks=("rte",))
    folder = launched_study(tmp_path / "study", plan)
    journal = MadeJournal(folder)
    journal.begin(launch=2, plan=plan, max_gpu_hours=1.0)
    journal.append(ConfirmClosed(time=journal.now(), arms=["albert/rte"], max_gpu_hours=1.0))
    journal.end(launch=2)
    capsys.readouterr()
    assert launch.main(["--continue", str(folder), "--seeds", "9", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"]["remaining_seconds"] > 0


def test_less_is_left_of_an_extended_study_than_the_whole_takes(tmp_path, capsys):
    plan = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=1, epochs=9)
    folder = launched_study(tmp_path / "study", resolve(plan))  # its only search trial runs to its end
    capsys.readouterr()
    assert launch.main(["--continue", str(folder), "--samples", "27", "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["done"]["remaining_seconds"] < facts["estimates"]["albert/rte"]["slot_seconds"]


def test_a_dry_run_prints_the_numbers_of_early_stopping(tmp_path, capsys):
    asked = ["--task", "rte", "--dry-run", "--out", str(tmp_path), "--early-stopping"]
    for rule in ("asha:grace=2,factor=4", "none"):
        assert launch.main([*asked, rule]) == 0
        assert f"\nearly stopping of search trials: {rule}\n" in capsys.readouterr().out


def test_time_is_given_for_one_slot_and_all(tmp_path):
    plan = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=1, epochs=9)
    folder = launched_study(tmp_path / "study", resolve(plan))
    more = resolve(replace(plan, seeds=9))
    by_slots = {
        slots: forecast_plan(compute_progress(more, read_facts(folder)), folder, slots=slots).lines for slots in (1, 2)
    }
    assert not any("or more with" in line for line in by_slots[1])
    said = [
        re.search(
            r"([\d:]+) if trials run one at a time \(([\d:]+) or more with 2 at a time, as on this machine\)", line
        )
        for line in by_slots[2]
    ]
    whole, left = [match.groups() for match in said if match]
    assert seconds_of(whole[0]) == pytest.approx(2 * seconds_of(whole[1]), abs=1) and left[0] < whole[0]


def seconds_of(clock):
    minutes, seconds = map(int, clock.split(":"))
    return 60 * minutes + seconds


def test_a_probe_without_a_dry_run_is_refused(capsys):
    assert launch.main(["--probe"]) == 2
    assert "--probe requires --dry-run" in capsys.readouterr().err


# ---- how long the rest takes


def simulated(tasks):
    plan = replace(profiles.load_profile("mini"), methods=("albert", "palbert"), tasks=tasks, samples=8)
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


def test_pace_is_of_the_rows_of_a_folder(tmp_path):
    """GLUE has 2,490 and 67,349."""
    for task, rows in (("rte", 40), ("sst2", 80)):
        write_glue(tmp_path, task=task, rows=rows)
    simulation = Simulation(mini_plan(methods=("albert",), tasks=("rte", "sst2"), data=str(tmp_path)), slots=1)
    simulation.launch()
    kinds = [type(event) for event in simulation.journal.events]
    progress = progress_after(simulation, simulation.journal.events[: kinds.index(EpochReported) + 1])
    assert [progress.count_examples_per_epoch(arm) for arm in progress.arms] == [40, 80]
    (measured,) = (arm for arm in progress.arms if arm.facts.epochs)
    pace = progress.compute_seconds_per_example(progress.arms, "wall_seconds")
    assert pace == pytest.approx(1 / progress.count_examples_per_epoch(measured))  # an epoch counts one second


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


def test_time_limit_says_what_is_lost():
    measured = {name: MeasuredCost(seconds, None, "records") for name, seconds in (("a/rte", 20), ("b/rte", 270))}
    said = describe_time_limit(10, measured, arms=measured)
    assert says(said, "--max-minutes 10: ", "b/rte takes 4:30, estimated from earlier trials") and said.endswith(
        "trials"
    )
    said = describe_time_limit(4, measured, arms=measured)
    assert says(said, "b/rte takes 4:30, ", "none of its epochs would ever end: ", "more minutes")
    assert says(describe_time_limit(0.5, {}, arms=measured), "not known yet: ", "--dry-run --probe ")


def test_time_limit_names_only_arms_of_the_launch_with_trials_left(simulation):
    events = simulation.journal.events
    cut = next(n for n, event in enumerate(events) if isinstance(event, TrialEnded))
    progress = progress_after(simulation, events[:cut])
    assert progress.list_arms_left([]) == {arm.name for arm in progress.arms}
    of_launch = StudyProgress(progress.plan, progress.facts, max_gpu_hours=None, launched=[progress.arms[1].name])
    assert of_launch.list_arms_left([]) == {progress.arms[1].name}
    ended = progress_after(simulation, events)
    assert ended.list_arms_left([]) == set()
    assert ended.list_arms_left([next(iter(ended.facts.trials))]) == {
        next(iter(ended.facts.trials.values())).started.arm
    }
    measured = {"a/rte": MeasuredCost(20, None, "records"), "b/mnli": MeasuredCost(600, None, "records")}
    assert describe_time_limit(4, measured, arms={"a/rte"}).endswith("a/rte takes 0:20, estimated from earlier trials")
    assert describe_time_limit(4, measured, arms=[]).endswith("the next launch repeats it")


def test_arm_whose_start_has_failed_needs_no_time(tmp_path):
    plan, journal = mini_plan(methods=("albert", "pondernet")), MadeJournal()
    journal.begin(plan=plan)
    for number in range(3):
        journal.start(f"a{number}", trial=number, arm="albert/rte")
        journal.finish(f"a{number}", error="loss is nan")
    journal.whole_trial("p0", [0.5, 0.6], arm="pondernet/rte")
    progress = StudyProgress(plan, journal.facts, max_gpu_hours=None)
    others = [arm.name for arm in progress.arms if arm.name != "albert/mrpc"]
    without = StudyProgress(plan, journal.facts, max_gpu_hours=None, launched=others)
    assert progress.total_trials == without.total_trials
    assert remaining_seconds(progress) == remaining_seconds(without)
    spaces = [estimate_space(each, StudyStorage(str(tmp_path)), slots=1) for each in (progress, without)]
    assert spaces[0].needed == spaces[1].needed


def test_long_backbone_is_named_once_and_widens_no_column():
    folder = f"/models/{'a' * 67}"
    assert format_columns([("epochs", "3", "--epochs"), ("backbone", folder, "--backbone")]) == [
        f"  backbone  {folder}",
        "               --backbone",
        "  epochs    3  --epochs",
    ]
    plan = mini_plan(methods=("albert", "pabee", "palbert"))
    arms = [replace(arm, backbone=folder if arm.method != "pabee" else arm.backbone) for arm in plan.arms]
    assert describe_backbones(replace(plan, arms=tuple(arms))) == [
        f"backbone of albert, palbert: {folder}",
        "backbone of pabee: mini-albert",
    ]
    assert describe_backbones(plan) == ["backbone mini-albert"]
