"""What one driver can serve: 256 slots that train for 30 seconds a trial, and where the driver becomes the limit.

    python -m benchmarks.cluster                                    # the figures of docs/results.md
    python -m benchmarks.cluster --slots 32 --seconds 30 --real     # an actor for each slot, of about 120 MB

Real are Ray (a cluster of `--nodes` raylets on this machine, their CPUs logical), its Tune, the engine's driver,
journal with a sync to disk for each event, Optuna's TPE, ASHA and the screen. Simulated are the trials, which sleep and
report scores of a formula, and without `--real` their processes: trials are threads of one actor for each node
(`benchmarks.hosted_trials`), so that nothing is said of how long 256 actors take to start. The MLflow mirror, a process
of its own, is left out.

A run fills all slots, measures for `--window` seconds, and drains. There is one run for each value of `--seconds`, the
mean length of a trial. ASHA lets a third of the trials pass epoch 1, and a third of these pass epoch 3, so a trial has
2 of its 6 epochs on average. Busy is the share of the time of all slots in which a trial sleeps. Milliseconds for each
report are the driver's own handling (`TuneDriver.reported`: journal, ASHA, the ends of trials), in CPU time of its
thread, which is what is held against the limit, and by the clock, which waits for the disk too; `all` is the CPU time
of that thread for everything, Ray Tune and the proposals of new trials too. The limit is the most reports a second in
any run. On a machine with other work the clock says how busy that is: `chrt -r 1 python -m benchmarks.cluster` as root.
Results go to benchmarks/results/cluster.json.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray
from msgspec.structs import replace
from ray.cluster_utils import Cluster

from benchmarks import synthetic_trials as synthetic
from benchmarks.counts import count
from benchmarks.hosted_trials import hosted
from benchmarks.results_file import write_results
from study.cluster.ray_cluster import RAY_SETTINGS, RayNodes
from study.cluster.ray_internals import loopback_only
from study.cluster.resources import Resources
from study.decisions.scheduler import Scheduler
from study.drivers.driver import Driver, Watchdog
from study.drivers.messages import Message
from study.drivers.tune_driver import TuneDriver
from study.facts.journal import Journal
from study.facts.plan_file import write_plan
from study.facts.provenance import read_provenance
from study.launching.live_view import LiveView
from study.launching.planned_study import command_line, plan_file
from study.plans.resolved_plan import ResolvedPlan

LIMIT_REPORT_MS = 2.0
LIMIT_BUSY = 0.95
SCORE_SPREAD = 0.4  # of the best and worst trial, so that ASHA stops some
TASKS = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
EPOCHS = 6  # of a trial that ASHA does not stop
MEAN_EPOCHS = 2  # of a trial: rungs at 1 and 3, a third passes each
SAMPLES = 100_000  # of each arm: more than any window has time for
NO_WORKERS_AHEAD = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}

Figures = dict[str, float]


def main() -> int:
    options = build_parser().parse_args()
    runs = []
    for seconds in options.seconds:
        runs.append(figures_of_run(options, seconds))
        print(in_words(runs[-1]), flush=True)
    checks = dict(checks_of(runs))
    for check, held in checks.items():
        print(f"{'held  ' if held else 'MISSED'}  {check}")
    most = max(runs, key=lambda run: run["reports_per_second"])
    print("        the driver's limit: {reports_per_second:.0f} reports a second".format(**most))
    write_results("cluster", {**vars(options), "runs": runs, "checks": checks})
    return 0 if all(checks.values()) else 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slots", type=count, default=256, help="trials at a time (%(default)s)")
    parser.add_argument("--nodes", type=count, default=8, help="raylets that share the slots (%(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        nargs="+",
        default=[30.0, 10.0, 3.0],
        help="of the mean trial, a run for each (%(default)s)",
    )
    parser.add_argument("--window", type=float, default=90.0, help="seconds that are measured (%(default)s)")
    parser.add_argument("--real", action="store_true", help="an actor for each slot")
    return parser


def in_words(run: Figures) -> str:
    return (
        "{slots:.0f} slots, trials of {seconds:g} s: slots busy {busy:.3f}, {reports_per_second:.0f} reports, "
        "{decisions_per_second:.0f} decisions and {starts_per_second:.1f} new trials a second; a report "
        "{report_cpu_ms:.2f} ms of CPU ({report_ms:.2f} by the clock), a proposal {proposal_ms:.1f} ms, all "
        "{all_cpu_ms:.1f} ms for each report: {thread_share:.0%} of a core; load {load:.1f}"
    ).format(**run)


def checks_of(runs: list[Figures]) -> Iterator[tuple[str, bool]]:
    """What is wanted of the run of the longest trials, and whether it is so."""
    longest = max(runs, key=lambda run: run["seconds"])
    report, busy = longest["report_cpu_ms"], longest["busy"]
    where = f"at {longest['slots']:.0f} slots, trials of {longest['seconds']:g} s"
    yield f"a report on the driver {report:.2f} ms of CPU {where}, at most {LIMIT_REPORT_MS}", report <= LIMIT_REPORT_MS
    yield f"slots busy {busy:.3f} {where}, at least {LIMIT_BUSY}", busy >= LIMIT_BUSY


@dataclass
class Window:
    """What the driver's thread did while it was measured."""

    seconds: float  # to be measured
    began: float | None = None  # time.time(), once all slots have been filled
    ended: float | None = None
    thread_cpu: float = 0.0
    reports: list[tuple[float, float]] = field(default_factory=list)  # seconds by the clock, and of CPU
    proposals: list[float] = field(default_factory=list)  # seconds of CPU
    decisions: int = 0  # events of the journal that are no reports: starts, ASHA's, ends

    @property
    def is_open(self) -> bool:
        return self.began is not None and self.ended is None

    def look(self, *, is_full: bool, decisions: int) -> None:
        """Opens once all slots are filled, and closes when its time is over; so many decisions were taken so far."""
        if self.began is None and is_full:
            self.began, self.thread_cpu, self.decisions = time.time(), time.thread_time(), decisions
        elif self.began is not None and self.ended is None and time.time() >= self.began + self.seconds:
            self.ended, self.thread_cpu = time.time(), time.thread_time() - self.thread_cpu
            self.decisions = decisions - self.decisions


class WindowedDriver(TuneDriver):
    """The driver of a launch, timed within the window, and drained after it."""

    actor = synthetic.StudyTrial

    def __init__(self, scheduler: Scheduler, *, window: Window, slots: int, view: LiveView, **arguments: Any):
        super().__init__(scheduler, on_progress=self._look, **arguments)
        self._smoke.parts.clear()  # no smoke steps
        self._window, self._full_slots, self._view = window, slots, view

    def _look(self, driver: Driver) -> None:
        self._view.update(driver)
        facts = self.scheduler.facts
        asha = sum(len(scores) for arm in facts.arms.values() for scores in arm.rungs.values())
        decisions = len(facts.trials) + asha + len(facts.records)
        self._window.look(is_full=len(self._training) >= self._full_slots, decisions=decisions)
        self.scheduler.draining = self._window.ended is not None

    def reported(self, ray_id: str, message: Message) -> str:
        began, cpu = time.perf_counter(), time.thread_time()
        decision = super().reported(ray_id, message)
        if self._window.is_open:
            self._window.reports.append((time.perf_counter() - began, time.thread_time() - cpu))
        return decision

    def suggest(self, ray_id: str) -> dict[str, Any] | str | None:
        cpu = time.thread_time()
        suggestion = super().suggest(ray_id)
        if self._window.is_open and suggestion is not None:
            self._window.proposals.append(time.thread_time() - cpu)
        return suggestion


def figures_of_run(options: argparse.Namespace, seconds: float) -> Figures:
    """One study on a cluster of its own."""
    window = Window(options.window)
    plan = sleeping_arms(epoch_seconds=seconds / MEAN_EPOCHS)
    with tempfile.TemporaryDirectory(prefix="cluster-") as name, cluster(options.slots, options.nodes):
        processes = (
            nullcontext() if options.real else hosted(synthetic.StudyTrial, hosts=options.nodes, slots=options.slots)
        )
        with processes:
            run_study(plan, Path(name), slots=options.slots, window=window)
        spans = list(spans_of(Path(name) / "trials"))
    assert window.began is not None and window.ended is not None
    measured = window.ended - window.began
    asleep = sum(max(0.0, min(until, window.ended) - max(began, window.began)) for began, until in spans)
    walls, cpus = zip(*window.reports, strict=True)
    return {
        "slots": options.slots,
        "seconds": seconds,
        "measured_seconds": measured,
        "busy": asleep / (options.slots * measured),
        "reports_per_second": len(walls) / measured,
        "decisions_per_second": window.decisions / measured,
        "starts_per_second": len(window.proposals) / measured,
        "report_ms": 1000 * statistics.fmean(walls),
        "median_report_ms": 1000 * statistics.median(walls),
        "report_cpu_ms": 1000 * statistics.fmean(cpus),
        "proposal_ms": 1000 * statistics.fmean(window.proposals),
        "all_cpu_ms": 1000 * window.thread_cpu / len(walls),
        "thread_share": window.thread_cpu / measured,
        "load": os.getloadavg()[0],
    }


def sleeping_arms(*, epoch_seconds: float) -> ResolvedPlan:
    """ALBERT on eight tasks; an epoch sleeps for so long, 20 % more or less."""
    plan = synthetic.resolved_plan(TASKS, samples=SAMPLES, seeds=1, epochs=EPOCHS)
    fixed = {"epoch_seconds": epoch_seconds, "score_spread": SCORE_SPREAD}
    return replace(plan, arms=tuple(synthetic.with_fixed(arm, **fixed) for arm in plan.arms))


@contextmanager
def cluster(slots: int, nodes: int) -> Iterator[None]:
    """A Ray cluster on loopback with as many logical CPUs as slots, on so many nodes beside a head that has none."""
    with (
        patch.dict(os.environ, {**RAY_SETTINGS, **NO_WORKERS_AHEAD}),
        loopback_only(),
        patch("ray._private.utils.write_ray_address"),  # or it would become this machine's `--address auto`
        patch("ray._common.utils.reset_ray_address"),
    ):
        own = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        try:
            for number in range(nodes):
                own.add_node(num_cpus=slots // nodes + (number < slots % nodes))
            ray.init(own.address, log_to_driver=False, logging_level="ERROR")
            yield
        finally:
            ray.shutdown()
            own.shutdown()


def run_study(plan: ResolvedPlan, folder: Path, *, slots: int, window: Window) -> None:
    """One launch as `study.launch` does it, until the window is over; no smoke steps, mirror or tables."""
    code = read_provenance()
    write_plan(folder, plan_file(folder, plan, code))
    for name in ("trials", "predictions"):
        (folder / name).mkdir()
    resources = Resources(nodes=RayNodes(), cpus=1, gpus=0)
    with closing(Journal(folder)) as journal, Path(os.devnull).open("w") as nowhere:
        scheduler = Scheduler(plan, journal, code)
        scheduler.begin_launch(command=command_line(), host=socket.gethostname(), pid=os.getpid())
        with LiveView(scheduler, slots=resources.slots, output=nowhere) as view:
            driver = WindowedDriver(
                scheduler,
                window=window,
                slots=slots,
                view=view,
                folder=folder,
                storage=str(folder),
                resources=resources,
                watchdog=Watchdog(say=view.say),
            )
            driver.run()
        scheduler.end_launch("interrupted")


def spans_of(folder: Path) -> Iterator[tuple[float, float]]:
    """When trials began to sleep, and when they woke up."""
    for path in folder.glob("*.spans"):
        for line in path.read_text().splitlines():
            began, until = json.loads(line)
            yield began, until


if __name__ == "__main__":
    sys.exit(main())
