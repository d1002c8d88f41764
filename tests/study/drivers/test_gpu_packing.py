"""Trials that share a GPU under Ray: pytest tests/study/drivers/test_gpu_packing.py

There is no GPU: Ray is told that there is one, and trials only wait, so that one more on it slows nobody down.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import ray
from helpers.places import ROOT
from helpers.sharing_trial import SharingTrial
from helpers.simulation import NO_PROVENANCE
from msgspec.structs import replace

from benchmarks import synthetic_trials as synthetic
from study.cluster.ray_connection import RAY_SETTINGS
from study.cluster.ray_nodes import RayNodes
from study.cluster.resources import Resources
from study.decisions.packing import MEASURED_EPOCHS, trials_at_once
from study.decisions.scheduler import Scheduler
from study.drivers.tune_driver import TuneDriver
from study.drivers.watchdog import Watchdog
from study.facts.events import EpochReported
from study.facts.journal import MemoryJournal


def scheduler_of(samples: int, *, epoch_seconds: float = 0.0) -> tuple[Scheduler, MemoryJournal]:
    """Of a study of one arm, whose launch has begun."""
    plan = synthetic.resolved_plan(("rte",), samples=samples, seeds=1, epochs=3)
    arms = tuple(synthetic.with_fixed(arm, epoch_seconds=epoch_seconds) for arm in plan.arms)
    scheduler = Scheduler("shared", replace(plan, arms=arms), journal := MemoryJournal(), NO_PROVENANCE)
    scheduler.begin_launch(command="", host="", pid=0)
    return scheduler, journal


def driver_of(scheduler: Scheduler, folder: Path) -> TuneDriver:
    """That packs trials of half a CPU."""
    resources, watchdog = Resources(nodes=RayNodes(), cpus=0.5, gpus=None), Watchdog(say=print)
    where = {"folder": folder, "storage": str(folder), "resources": resources}
    return TuneDriver(scheduler, **where, on_progress=lambda driver: None, watchdog=watchdog, actor=SharingTrial)


@pytest.mark.long
@pytest.mark.slow
def test_trials_hold_a_gpu_alone_until_that_is_measured_and_then_share_it(tmp_path, monkeypatch):
    for name, value in {**RAY_SETTINGS, "PYTHONPATH": str(ROOT / "tests")}.items():  # where workers find helpers
        monkeypatch.setenv(name, value)
    for name in ("trials", "predictions"):
        (tmp_path / name).mkdir()
    scheduler, journal = scheduler_of(8, epoch_seconds=0.05)
    ray.init("local", num_cpus=8, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        driver_of(scheduler, tmp_path).run()
    finally:
        ray.shutdown()
    reports = [event.report for event in journal.events if isinstance(event, EpochReported)]
    assert scheduler.progress.is_finished and {report.gpu for report in reports} == {"0"}
    shares = [round(report.gpu_seconds / report.wall_seconds, 3) for report in reports]
    assert shares[:MEASURED_EPOCHS] == [1.0] * MEASURED_EPOCHS and shares[-1] <= 0.5


def test_so_many_trials_wait_as_the_gpus_have_room_for(tmp_path, monkeypatch):
    """So that actors are started for all of them, however short trials are."""
    node = {"NodeID": "a", "Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0}}
    monkeypatch.setattr("study.cluster.ray_nodes.ray.nodes", lambda: [node])
    monkeypatch.setattr("study.drivers.tune_driver.time.monotonic", count(step=2).__next__)
    scheduler, journal = scheduler_of(12)
    driver = driver_of(scheduler, tmp_path)
    assert [driver.suggest(str(number)) is not None for number in range(3)] == [True, True, False]
    for number, trial in enumerate(list(journal.facts.under_way.values())):
        driver.begun(str(number))
        epoch = synthetic.report(trial.config | {"epochs": 3}, 1, 10.0)
        scheduler.report(trial.key, replace(epoch, gpu_seconds=10.0, gpu_share=0.05, gpu=str(number)))
    journal.facts.arm("albert/rte").epoch_seconds = {
        ((32, "float32"), number): [10.0] * MEASURED_EPOCHS for number in (1, 2)
    }
    taken = [driver.suggest(str(number)) is not None for number in range(3, 9)]
    assert trials_at_once(journal.facts) == 3 and taken == [True] * 4 + [False] * 2
