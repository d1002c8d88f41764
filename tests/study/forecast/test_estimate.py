"""pytest tests/study/forecast/test_estimate.py"""

import pytest
from helpers.simulation import Simulation
from msgspec.structs import replace

from study import launch, profiles
from study.decisions import asha
from study.forecast.estimate import estimate, expected_epochs, in_words, measured_in
from study.plans.plan import EarlyStopping
from study.plans.resolution import resolve

STOPPING = EarlyStopping(grace=1, factor=3)


def test_asha_saves_most_of_a_long_search():
    assert expected_epochs(1, 9, STOPPING) == 9
    assert 36 * 1 < expected_epochs(36, 9, STOPPING) < 36 * 9 / 2


def test_expected_epochs_of_a_long_search_cost_no_more_than_its_trials(monkeypatch):
    """Work of a constant number per trial: no list of scores is gone through."""
    looked_at = []
    monkeypatch.setattr(asha, "cutoff_of", lambda recorded, stopping: looked_at.append(1) or recorded[-1])
    expected_epochs.__wrapped__(5000, 9, STOPPING)
    assert len(looked_at) <= 2 * 30_000


def test_the_share_of_a_search_that_runs_hardly_depends_on_its_length():
    shares = [expected_epochs(samples, 9, STOPPING) / (9 * samples) for samples in (2000, 10_000, 40_000)]
    assert max(shares) < 1.02 * min(shares)


def test_expected_epochs_are_those_of_a_simulated_study():
    mini = profiles.load("mini")
    tasks = ("sst2", "rte", "cola", "mrpc")
    plan = replace(mini, methods=("albert",), tasks=tasks, samples=27, seeds=2, sampler="random", epochs=9)
    simulation = Simulation(resolve(plan), slots=1)
    simulation.launch()
    records = simulation.journal.records
    expected = estimate(simulation.resolved, {})
    assert sum(item.epochs for item in expected) == pytest.approx(sum(record.epochs for record in records), rel=0.25)
    measured = measured_in(records)
    assert measured["albert/rte"].epoch_seconds == pytest.approx(1)  # a simulated epoch counts one second
    known = estimate(simulation.resolved, measured)
    assert all(item.slot_seconds == pytest.approx(item.epochs) for item in known)


def test_a_dry_run_says_that_it_does_not_know_the_time(tmp_path, capsys):
    assert launch.main(["--task", "rte", "--dry-run", "--out", str(tmp_path)]) == 0
    assert "time and disk are not known for 1 of 1 arm: --probe measures them" in capsys.readouterr().out


def test_a_dry_run_says_one_epoch_as_one(tmp_path, capsys):
    one = ["--samples", "1", "--seeds", "1", "--epochs", "1", "--early-stopping", "none"]
    assert launch.main(["--profile", "mini", "--task", "rte", "--dry-run", "--out", str(tmp_path), *one]) == 0
    assert "1 search (at most 1 epoch) " in capsys.readouterr().out


def test_a_probe_measures_time_and_disk_and_creates_no_study(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = tmp_path / "runs"
    assert launch.main(["--task", "rte", "--dry-run", "--probe", "--out", str(runs)]) == 0
    printed = capsys.readouterr()
    assert "probed palbert/rte:" in printed.err and "by probe" in printed.out and "kB of models" in printed.out
    assert not runs.exists()


def test_a_probe_without_a_dry_run_is_refused(capsys):
    assert launch.main(["--probe"]) == 2
    assert "--probe says something of a plan and is ignored without --dry-run" in capsys.readouterr().err


@pytest.mark.parametrize(("size", "words"), [(0, "0 B"), (1_500, "1.5 kB"), (47_000_000, "47 MB"), (3e12, "3 TB")])
def test_sizes_in_words(size, words):
    assert in_words(size) == words
