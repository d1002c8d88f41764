"""What workers are told of the trials that they run: what each is, and where it goes on and leaves files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from study.decisions.scheduler import Scheduler
from study.decisions.specs import expected_attestation, trial_spec
from study.drivers.messages import AssignedTrial, Assignment
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

    def avoided(self, trials: Sequence[TrialFacts]) -> tuple[str, ...]:
        """Nodes on which the trials are better not placed; none where no other can hold them."""
        avoided = frozenset[str]().union(*(self._scheduler.faults.avoided_by(trial.key) for trial in trials))
        others = avoided and self._resources.nodes_with_room() - avoided
        return tuple(sorted(avoided)) if others else ()

    def _assigned(self, trial: TrialFacts) -> AssignedTrial:
        predictions = PREDICTIONS if is_uri(self._storage) else str(predictions_file(self._folder, trial.key))
        return AssignedTrial(
            key=trial.key,
            epochs=trial.epochs,
            spec=self._spec(trial),
            expected=expected_attestation(self._scheduler.progress, trial, by=self._scheduler.provenance),
            place=trial_address(self._storage, trial.key),
            predictions=predictions if trial.phase == "confirm" else None,
            marks=self.marks,
        )

    def _spec(self, trial: TrialFacts) -> TrialSpec:
        """What the trial is told, with the model of another trial where it lies now."""
        plan, facts = self._scheduler.plan, self._scheduler.facts
        spec = trial_spec(plan, facts, trial)
        if spec.start is not None and trial.start is not None:
            spec = replace(spec, start=lies_now(spec.start, folder=self._folder, key=trial.start))
        return spec
