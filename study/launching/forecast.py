"""Forecast the epochs, time and disk space that a plan needs, and the time that is left.

The time of an epoch and the size of a model are from a probe (a few training steps) or from the study's trials. Without
a probe, they are unknown until a trial has completed an epoch.
"""

from __future__ import annotations

import shutil
import sys
from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean
from types import MappingProxyType
from typing import Literal, get_args

from msgspec import UNSET
from msgspec.structs import replace
from rich.filesize import decimal

from study.cluster.resources import Resources
from study.decisions import asha
from study.decisions.progress import ArmProgress, StudyProgress
from study.decisions.scheduler import specify_arm
from study.drivers.messages import Steps
from study.facts.record import Phase, Record
from study.facts.study_facts import StudyFacts
from study.plans.plan import EarlyStopping
from study.plans.resolved_plan import Arm, ResolvedPlan
from study.plans.samplers import describe_sampler, describe_select_by
from study.storage.addresses import find_existing, is_uri, local_path
from study.storage.study_storage import StudyStorage, choose_storage
from study.storage.trial_places import trial_address
from study.terminal.text import clock, counted
from trainables.configuration.schema import Typed
from trainables.encoders.backbones import estimate_model_bytes
from trainables.files.sources import cache_folder
from trainables.runs.trial import Selection

PHASES: tuple[Phase, ...] = get_args(Phase)
_PROBE_STEPS = 5
_SOURCES = {"probe": "estimated from a probe", "records": "estimated from earlier trials"}
_SELECTION: Mapping[Selection, str] = {
    "dev": "are chosen by their scores on dev, whose rows the tables score as well",
    "holdout": "are chosen on a holdout, a tenth of train; dev is only for the tables",
}
# Expected epochs are the mean over this many simulated searches, or over fewer searches if each has many trials.
_STUDIES = 30
_SIMULATED_TRIALS = 30_000  # maximum number of trials in all simulated searches together
_LONGEST_SEARCH = 10_000  # maximum trials of a simulated search; estimates for longer searches are scaled up


# ---- a dry run


class Done(Typed, frozen=True, kw_only=True):
    """The progress of a study that has begun: the numbers of ended and unfinished trials, and the time left."""

    ended: int
    under_way: int
    remaining_seconds: float | None


@dataclass(frozen=True)
class Forecast:
    """The forecast of a plan, as data for programs and as lines to print."""

    estimates: dict[str, Cost]  # by arm
    measured: dict[str, MeasuredCost]  # by arm
    done: Done | None
    lines: list[str]


def forecast_plan(
    progress: StudyProgress,
    folder: Path,
    *,
    probe_on: Resources | None = None,
    slots: int = 1,
    storage: str | None = None,
) -> Forecast:
    """Estimate the cost of a plan from its study's trials, or from a few steps on this machine.

    Args:
        progress: the progress of the study, with the arms and the limit of the launch that is forecast.
        probe_on: resources of a trial on this machine, on which the steps run; None: they are not run.
        slots: number of trials that run at the same time on this machine; 1 if trials run on a cluster.
        storage: --storage, a folder or URI for models and states; None: as `choose_storage` decides.

    Raises:
        ValueError: if states of unfinished trials are not in this storage.
    """
    plan, facts = progress.plan, progress.facts
    measured = measure_costs(facts) if probe_on is None else probe(plan, probe_on)
    costs = estimate(plan, measured)
    if facts.launches and probe_on is None:
        costs = _add_time_spent(costs, progress)
    bound = "about" if plan.protocol.early_stopping else "at most"
    search, confirm = sum(arm.samples for arm in plan.arms), sum(len(arm.seeds) for arm in plan.arms)
    lines = [f"  {describe_estimate(arm, costs[arm.name], bound=bound)}" for arm in plan.arms]
    lines += describe_backbones(plan)
    trials = f"{counted(len(plan.arms), 'arm')}, {search} search and {confirm} confirm trials"
    lines.append(f"{trials}, {format_total(costs.values(), bound=bound, slots=slots)}")
    if (searches := plan.request.search_repeats) > 1:
        once = counted(round(sum(costs[arm.name].epochs for arm in plan.first_arms)), "epoch")
        lines.append(f"methods are compared over {searches} searches per arm; one search per arm takes {bound} {once}")
    if search:
        most = max(arm.samples for arm in plan.arms)
        stopping = plan.protocol.early_stopping
        lines.append(f"sampler {describe_sampler(plan.protocol.sampler, most, stopping)}")
        rule = f"asha:grace={stopping.grace},factor={stopping.factor}" if stopping else "none"
        lines.append(f"early stopping of search trials: {rule}")
    lines.append(_describe_selection(plan))
    if plan.protocol.select_by is not UNSET:
        lines.append(describe_select_by(plan.protocol.select_by))
    place, told = choose_storage(storage, folder, facts)
    space = estimate_space(progress, place, slots=slots, measured=measured)
    lines += told + ([space.describe()] if space else [])
    if not facts.launches:
        return Forecast(costs, measured, None, lines)
    seconds, ended, under_way = remaining_seconds(progress), progress.ended_trials, len(facts.under_way)
    left = "unknown" if seconds is None else _format_slot_time(seconds, slots)
    lines.append(f"ended so far: {counted(ended, 'trial')}; unfinished: {under_way}; time left for this launch: {left}")
    done = Done(ended=ended, under_way=under_way, remaining_seconds=seconds)
    return Forecast(costs, measured, done, lines)


def _describe_selection(plan: ResolvedPlan) -> str:
    """Describe what the study chooses by scores, and on which split."""
    chosen = ["configurations"] * any(arm.searched_fields for arm in plan.arms)
    chosen += ["epochs"] * any(arm.epochs > 1 and arm.list_values("select") != ["last"] for arm in plan.arms)
    if not chosen:
        return "nothing is chosen by scores: each trial keeps its last epoch"
    return f"{' and '.join(chosen)} {_SELECTION[plan.protocol.selection]}"


def probe(resolved: ResolvedPlan, machine: Resources) -> dict[str, MeasuredCost]:
    """Measure each arm's cost with a few training steps and evaluation batches. Print each arm's seconds per epoch.

    The steps run as in a trial with these resources.
    """
    import torch

    from trainables.runs.training import TrainingRun

    device = "cuda" if machine.gpus else "cpu"
    torch.set_num_threads(machine.threads)
    measured = {}
    for arm in resolved.arms:
        spec = specify_arm(resolved, arm, arm.any_configuration, seed=0)
        run = TrainingRun(spec, device=device, cache=cache_folder())
        cost = MeasuredCost(run.measure_epoch_seconds(steps=_PROBE_STEPS), run.model_bytes, "probe")
        print(f"probed {arm.name}: {cost.epoch_seconds:.2f} s per epoch", file=sys.stderr)
        measured[arm.name] = cost
    return measured


# ---- the cost of a plan


class Cost(Typed, frozen=True, kw_only=True):
    """Expected cost of an arm, as `--dry-run --json` prints it."""

    search_epochs: float  # of all search trials, including trials that ASHA stops
    confirm_epochs: int  # upper bound: a trial may stop early
    slot_seconds: float | None  # time of the trials one after another; None if not measured
    disk_bytes: int | None  # size of the kept models, one per confirm trial; None if not measured
    source: str | None  # "probe" or "records"; None if nothing was measured

    @property
    def epochs(self) -> float:
        """Total epochs of the search trials and the confirm trials."""
        return self.search_epochs + self.confirm_epochs


@dataclass(frozen=True)
class MeasuredCost:
    """Measured cost of one arm's trials."""

    epoch_seconds: float
    model_bytes: int | None  # size of one trained model on disk
    source: Literal["probe", "records"]


def estimate(resolved: ResolvedPlan, measured: Mapping[str, MeasuredCost]) -> dict[str, Cost]:
    """Estimate the cost of every arm; the keys of `measured` and of the result are arm names."""
    return {arm.name: _estimate_arm(resolved, arm, measured.get(arm.name)) for arm in resolved.arms}


def _add_time_spent(costs: Mapping[str, Cost], progress: StudyProgress) -> dict[str, Cost]:
    """Replace the time of each measured arm by the time spent plus the time left."""
    left = _estimate_by_arm(progress, {}) or {}
    return {
        name: replace(cost, slot_seconds=progress.arm(name).facts.wall_seconds + left[name])
        if cost.source and name in left
        else cost
        for name, cost in costs.items()
    }


def _estimate_arm(resolved: ResolvedPlan, arm: Arm, measured: MeasuredCost | None) -> Cost:
    search = expected_epochs(arm.samples, arm.epochs, resolved.protocol.early_stopping)
    confirm = len(arm.seeds) * arm.epochs
    model_bytes = measured.model_bytes if measured else None
    return Cost(
        search_epochs=search,
        confirm_epochs=confirm,
        slot_seconds=(search + confirm) * measured.epoch_seconds if measured else None,
        disk_bytes=None if model_bytes is None else model_bytes * len(arm.seeds),
        source=measured.source if measured else None,
    )


def describe_estimate(arm: Arm, cost: Cost, *, bound: str) -> str:
    """Describe the cost of one arm in one line. The word `bound` ("about", "at most") precedes the search epochs."""
    precision = "" if arm.search_precision is UNSET else f" in {arm.search_precision}"
    search = f"{arm.samples:4} search{precision} ({bound} {counted(round(cost.search_epochs), 'epoch')})"
    trials = f"{search} {len(arm.seeds):3} confirm ({counted(cost.confirm_epochs, 'epoch')})"
    time = "time unknown"
    if cost.slot_seconds is not None and cost.source:
        time = f"{clock(cost.slot_seconds)}, {_SOURCES[cost.source]}"
    start = "" if arm.start_from is None else f", from the best model of {arm.start_from}"
    return f"{arm.name:24} {trials}  {time}{start}"


def describe_backbones(plan: ResolvedPlan) -> list[str]:
    """Describe the backbones of a plan, one per line, with the methods that start from each if there are several."""
    methods = dict[str, dict[str, None]]()
    for arm in plan.arms:
        pretrained = "" if arm.pretraining is UNSET else f", pretrained here with {arm.pretraining.objective}"
        methods.setdefault(f"{arm.backbone}{pretrained}", {})[arm.method] = None
    if len(methods) == 1:
        return [f"backbone {backbone}" for backbone in methods]
    return [f"backbone of {', '.join(names)}: {backbone}" for backbone, names in methods.items()]


def _format_slot_time(seconds: float, slots: int) -> str:
    shared = f" ({clock(seconds / slots)} or more with {slots} at a time, as on this machine)" * (slots > 1)
    return f"{clock(seconds)} if trials run one at a time{shared}"


def format_total(costs: Collection[Cost], *, bound: str, slots: int) -> str:
    """Format the total epochs, time and disk space of a plan. An unknown time is marked as unknown."""
    epochs = f"{bound} {counted(round(sum(cost.epochs for cost in costs)), 'epoch')}"
    seconds = [cost.slot_seconds for cost in costs if cost.slot_seconds is not None]
    if len(seconds) < len(costs):
        unmeasured = f"{len(costs) - len(seconds)} of {counted(len(costs), 'arm')}"
        return f"{epochs}; the time is not known for {unmeasured}: --probe measures it"
    sizes = [cost.disk_bytes for cost in costs if cost.disk_bytes is not None]
    disk = f", {decimal(sum(sizes))} of models stay on disk" if len(sizes) == len(costs) else ""
    return f"{epochs}, {_format_slot_time(sum(seconds), slots)}{disk}"


@cache
def expected_epochs(samples: int, epochs: int, stopping: EarlyStopping | None) -> float:
    """Estimate how many epochs a search takes.

    Without early stopping, the estimate is the maximum, `samples * epochs`. With ASHA, the estimate is the mean over
    simulated searches. A simulated trial has the same random score at every rung of ASHA.
    """
    if stopping is None:
        return samples * epochs
    if samples > _LONGEST_SEARCH:
        return samples / _LONGEST_SEARCH * expected_epochs(_LONGEST_SEARCH, epochs, stopping)
    random, studies = Random(0), min(_STUDIES, max(1, _SIMULATED_TRIALS // max(1, samples)))
    return fmean(_simulate_search(random, samples, epochs, stopping) for _ in range(studies))


def _simulate_search(random: Random, samples: int, epochs: int, stopping: EarlyStopping) -> int:
    """Simulate a search with random scores, and return its number of epochs."""
    rungs: dict[int, list[float]] = {rung: [] for rung in asha.list_rungs(epochs, stopping)}  # ascending scores
    return sum(_simulate_trial(random.random(), rungs, epochs, stopping) for _ in range(samples))


def _simulate_trial(score: float, rungs: dict[int, list[float]], epochs: int, stopping: EarlyStopping) -> int:
    """Return how many epochs a trial with this score runs. Add the score to each ASHA rung that the trial reaches."""
    for rung, recorded in rungs.items():
        is_stopped = bool(recorded) and score < asha.compute_cutoff(recorded, stopping)
        insort(recorded, score)
        if is_stopped:
            return rung
    return epochs


def measure_costs(facts: StudyFacts) -> dict[str, MeasuredCost]:
    """Measure the cost of each arm's trials from their reported epochs and their stored models."""
    return {
        name: MeasuredCost(arm.wall_seconds / arm.epochs, _measure_model(arm.records), "records")
        for name, arm in facts.arms.items()
        if arm.epochs
    }


def _measure_model(records: Sequence[Record]) -> int | None:
    """Return the size in bytes of one stored model, or None if this machine has none of the models."""
    folders = [Path(record.model) for record in records if record.model]
    if not (stored := next((folder for folder in folders if folder.exists()), None)):
        return None
    return sum(path.stat().st_size for path in stored.rglob("*") if path.is_file())


# Sizes of a running trial's files, as multiples of its model. The state has the weights, and two numbers per weight of
# the optimiser. While an epoch is saved, state and selected model exist twice.
_STATE_MODELS = 3
_PEAK_MODELS = 2 * (_STATE_MODELS + 1)


@dataclass(frozen=True)
class Space:
    """The space that the launched arms still need in a storage on a disk, and the free space of the disk."""

    storage: str  # --storage, or the study's folder
    needed: int
    free: int
    purpose: str  # what the space is for

    def describe(self) -> str:
        """Compare the two numbers in one line, which is a warning if the space may not suffice."""
        need = f"about {decimal(self.needed)} for {self.purpose}"
        if self.needed > self.free:
            return f"warning: the disk of {self.storage} has only {decimal(self.free)} free, but the study needs {need}"
        return f"the study needs {need}; the disk of {self.storage} has {decimal(self.free)} free"


def estimate_space(
    progress: StudyProgress, storage: StudyStorage, *, slots: int, measured: Mapping[str, MeasuredCost] | None = None
) -> Space | None:
    """Estimate the space for the models and states that the launched arms have yet to write.

    Return None if nothing is left to run, if the size of a model is unknown, or if the storage is on no local disk.

    Args:
        slots: number of trials that run at the same time.
        measured: costs by arm; if None, they are measured from the study's trials.
    """
    measured = measure_costs(progress.facts) if measured is None else measured
    unfinished = [arm for arm in progress.runnable if _count_models(arm) or arm.search_trials_to_start]
    sizes = {arm.name: _find_model_bytes(arm, storage.address, measured.get(arm.name)) for arm in unfinished}
    known = {name: size for name, size in sizes.items() if size is not None}
    folder = local_path(storage.address)
    if folder is None or not known or len(known) < len(sizes):
        return None
    slots = min(slots, progress.trials_left)
    models = {arm.name: _count_models(arm) for arm in unfinished}
    needed = sum(known[name] * number for name, number in models.items()) + slots * _PEAK_MODELS * max(known.values())
    place = find_existing(folder)
    purpose = f"{counted(sum(models.values()), 'more model')} and the files of {counted(slots, 'running trial')}"
    return Space(storage.place, needed, shutil.disk_usage(place).free, purpose)


def _count_models(arm: ArmProgress) -> int:
    """Count the models that an arm will store."""
    return arm.confirm_trials_to_start + sum(trial.phase == "confirm" for trial in arm.facts.under_way.values())


def _find_model_bytes(arm: ArmProgress, storage: str, measured: MeasuredCost | None) -> int | None:
    """Return the size of a stored model, from a probe, a trial or the backbone's configuration; None if unknown."""
    if measured and measured.model_bytes:
        return measured.model_bytes
    states = [
        Path(trial_address(storage, key)) / "state.pt" for key in ([] if is_uri(storage) else arm.facts.under_way)
    ]
    if sizes := [state.stat().st_size for state in states if state.exists()]:
        return max(sizes) // _STATE_MODELS
    if arm.planned.backbone_fingerprint == "unknown":  # of a dry run without the hub
        return None
    try:
        return estimate_model_bytes(arm.planned.pinned_backbone)
    except (ValueError, OSError):  # the hub is unreachable
        return None


def describe_time_limit(minutes: float, measured: Mapping[str, MeasuredCost], *, arms: Collection[str]) -> str:
    """Describe the effect of --max-minutes. An epoch that is running at the limit is lost and repeated later.

    Args:
        measured: costs of the study's arms.
        arms: the arms that this launch runs.
    """
    limit = (
        f"--max-minutes {minutes:g}: an epoch that is unfinished at this limit is lost, and the next launch repeats it"
    )
    costs = {name: cost for name, cost in measured.items() if name in arms}
    if not costs:
        return f"{limit}{'; the time of an epoch is not known yet: --dry-run --probe measures it' * bool(arms)}"
    name, slowest = max(costs.items(), key=lambda item: item[1].epoch_seconds)
    how_long = f"an epoch of {name} takes {clock(slowest.epoch_seconds)}, {_SOURCES[slowest.source]}"
    if slowest.epoch_seconds >= 60 * minutes:
        return f"{limit}; {how_long}, so none of its epochs would ever end: allow more minutes"
    return f"{limit}; {how_long}"


# ---- the time left: measured seconds per epoch times the expected epochs


def remaining_seconds(progress: StudyProgress, steps: Mapping[str, Steps] = MappingProxyType({})) -> float | None:
    """Estimate how many seconds the rest of this launch would take if trials ran one after another.

    Return None until a trial has completed an epoch or a step.

    `steps` maps the keys of running trials to the steps done in the current epoch.
    """
    by_arm = _estimate_by_arm(progress, steps)
    return None if by_arm is None else sum(by_arm.values())


def _estimate_by_arm(progress: StudyProgress, steps: Mapping[str, Steps]) -> dict[str, float] | None:
    """Estimate the seconds that each launched arm still needs. Return None if nothing has been measured yet."""
    pace = progress.compute_seconds_per_example(progress.arms, "wall_seconds")
    if pace is None and (pace := _measure_pace_in_steps(progress, steps)) is None:
        return None
    return {
        arm.name: _estimate_epochs_left(progress, arm, steps) * _estimate_epoch_seconds(progress, arm, pace)
        for arm in progress.runnable
    }


def _estimate_epoch_seconds(progress: StudyProgress, arm: ArmProgress, pace: float) -> float:
    """Estimate an arm's seconds per epoch from its completed epochs.

    If the arm has completed no epoch, use `pace`, the mean seconds per example in the study.
    """
    measured = progress.compute_seconds_per_example([arm], "wall_seconds")
    return (pace if measured is None else measured) * progress.count_examples_per_epoch(arm)


def _measure_pace_in_steps(progress: StudyProgress, steps: Mapping[str, Steps]) -> float | None:
    """Measure the seconds per example from the steps of running trials."""
    seconds = [
        steps[key].seconds / steps[key].done * steps[key].of / progress.count_examples_per_epoch(arm)
        for arm in progress.launched
        for key in arm.facts.under_way
        if key in steps and steps[key].done
    ]
    return fmean(seconds) if seconds else None


def _estimate_epochs_left(progress: StudyProgress, arm: ArmProgress, steps: Mapping[str, Steps]) -> float:
    """Estimate the epochs that an arm still needs for unfinished trials and for trials not yet started."""
    epochs = {phase: _estimate_trial_epochs(progress, arm, phase) for phase in PHASES}
    under_way = sum(max(epochs[trial.phase] - trial.epochs, 1) for trial in arm.facts.under_way.values())
    under_way -= sum(steps[key].done / steps[key].of for key in arm.facts.under_way if key in steps)
    search = arm.search_trials_to_start * epochs["search"]
    return search + arm.confirm_trials_to_start * epochs["confirm"] + under_way


def _estimate_trial_epochs(progress: StudyProgress, arm: ArmProgress, phase: Phase) -> float:
    """Estimate how many epochs a trial of this arm and phase runs.

    The estimate is the mean over the ended trials that did not fail. The expectation before any trial has ended
    counts as one more trial.
    """
    samples, expected = arm.planned.samples, float(arm.planned.epochs)
    if phase == "search" and samples:
        expected = expected_epochs(samples, arm.planned.epochs, progress.plan.protocol.early_stopping) / samples
    ended = [record.epochs for record in arm.facts.records if record.phase == phase and record.status != "failed"]
    return fmean([*ended, expected])
