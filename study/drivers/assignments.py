"""What workers are told of the trials that they run: what each is, and where it goes on and leaves files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from study.decisions.scheduler import Scheduler
from study.decisions.specs import expected_attestation, pretraining_spec, trial_spec
from study.drivers.messages import AssignedTrial, Assignment, ProcessGroup
from study.facts.study_facts import TrialFacts
from study.facts.study_folder import predictions_file
from study.storage.addresses import is_uri
from study.storage.stored_models import lies_now
from study.storage.trial_places import PREDICTIONS, trial_address
from trainables.method_files import included
from trainables.runs.trial import TrialSpec

if TYPE_CHECKING:
    from study.cluster.resources import Resources


class Assignments:
    """The assignments of a launch."""

    def __init__(self, scheduler: Scheduler, *, folder: Path, storage: str, resources: Resources):
        self.marks: tuple[str, ...] = ()  # of the launch in its storage, while it runs
        self._scheduler = scheduler
        self._folder = folder
        self._storage = storage
        self._resources = resources

    def of(self, trials: Sequence[TrialFacts]) -> Assignment:
        """What one worker is told of these trials, which it runs side by side."""
        if self._resources.processes > 1 and trials[0].phase == "pretrain":
            return self._of_group(trials[0])
        gpus = self._resources.gpus
        return Assignment(
            trials=tuple(self._assigned(trial) for trial in trials),
            device="cuda" if gpus else "cpu",
            cpus=self._resources.cpus,
            gpus=gpus,
            threads=max(1, int(self._resources.cpus)),
            avoid=self.avoided(trials),
            included=included(),
        )

    def _of_group(self, trial: TrialFacts) -> Assignment:
        """The actor asks for nothing: the processes that it starts for each epoch do."""
        each, avoided = self._resources.of_process(), self.avoided([trial])
        if each.slots(without=avoided) < each.processes:
            avoided = ()
        threads = max(1, int(each.cpus))
        group = ProcessGroup(processes=each.processes, cpus=each.cpus, gpus=each.gpus, threads=threads, avoid=avoided)
        assigned = replace(self._assigned(trial), group=group)
        return Assignment(
            trials=(assigned,), device="cpu", cpus=0, gpus=0, threads=threads, avoid=avoided, included=included()
        )

    def avoided(self, trials: Sequence[TrialFacts]) -> tuple[str, ...]:
        """Nodes on which the trials are better not placed; none where no other can hold them."""
        avoided = frozenset[str]().union(*(self._scheduler.faults.avoided_by(trial.key) for trial in trials))
        others = avoided and self._resources.nodes_with_room() - avoided
        return tuple(sorted(avoided)) if others else ()

    def _assigned(self, trial: TrialFacts) -> AssignedTrial:
        predictions = PREDICTIONS if is_uri(self._storage) else str(predictions_file(self._folder, trial.key))
        is_pretraining = trial.phase == "pretrain"
        return AssignedTrial(
            key=trial.key,
            epochs=trial.epochs,
            spec=None if is_pretraining else self._spec(trial),
            pretraining=pretraining_spec(self._scheduler.plan, trial) if is_pretraining else None,
            expected=expected_attestation(self._scheduler.progress, trial, by=self._scheduler.provenance),
            place=trial_address(self._storage, trial.key),
            predictions=predictions if trial.phase == "confirm" else None,
            marks=self.marks,
        )

    def _spec(self, trial: TrialFacts) -> TrialSpec:
        """What the trial is told, with the models of other trials where they lie now."""
        plan, facts = self._scheduler.plan, self._scheduler.facts
        spec = trial_spec(plan, facts, trial)
        if spec.start is not None and trial.start is not None:
            spec = replace(spec, start=lies_now(spec.start, folder=self._folder, key=trial.start))
        if plan.arm(trial.started.arm).pretrained_by is not UNSET:
            spec = replace(spec, backbone=lies_now(spec.backbone, folder=self._folder, key=plan.pretraining_key))
        return spec
