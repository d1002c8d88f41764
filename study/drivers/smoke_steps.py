"""One step of each arm before any trial runs: a mistake in a method's code ends the launch, in one line.

A step is taken where trials run, on a few rows of mini-GLUE: data are checked beforehand, and to tokenise large ones
here would keep every slot waiting. Only faults of the method count; all others are for the trials to tell, which are
tried again and elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from study.decisions.progress import ArmProgress, StudyProgress
from study.decisions.scheduler import Scheduler
from study.decisions.specs import spec_of_arm
from study.drivers.messages import Assignment, SmokeReport
from study.facts.attestation import Provenance, other_code
from study.facts.events import Failure
from study.facts.plain_words import first_of
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables import method_files
from trainables.runs.trial import TrialSpec

if TYPE_CHECKING:
    from study.cluster.resources import Resources


class SmokeStepsFailed(ValueError):
    """Arms whose method cannot take a step, with the specs of these and what went wrong."""

    def __init__(self, failures: Mapping[str, Failure], specs: Mapping[str, TrialSpec]):
        self.failures, self.specs = failures, specs
        first = next(iter(failures.values()))
        super().__init__(f"{first_of([*failures], 1)}: {first.error}, in the first step, before any trial")


class SmokeSteps:
    """The steps of a launch, handed out to workers that then run trials: what they have imported serves both."""

    def __init__(self, scheduler: Scheduler, resources: Resources):
        """A part for each worker that there is room and a trial for now; one that has no step in it only starts it."""
        arms = untried_arms(scheduler.progress, scheduler.provenance)
        self._specs = {arm.name: smoke_spec(scheduler.plan, arm) for arm in arms}
        self._resources, self._code = resources, scheduler.provenance
        to_come = scheduler.progress.total_trials - scheduler.progress.ended_trials
        number = min(to_come, max(1, resources.slots()))
        self._parts = [dict(list(self._specs.items())[start::number]) for start in range(number)]
        self._held = set[str]()  # work ids of the workers that have a part

    @property
    def have_steps(self) -> bool:
        """Whether any arm takes one: where all have trained with this code, workers only start."""
        return bool(self._specs)

    @property
    def are_left(self) -> bool:
        """Whether a part is still to be handed out."""
        return bool(self._parts)

    @property
    def are_over(self) -> bool:
        """Whether every part was taken, or lost with its process."""
        return not (self._parts or self._held)

    def next_part(self, work_id: str) -> Assignment | None:
        """What a worker is to do; None where no part is left."""
        if not self._parts:
            return None
        self._held.add(work_id)
        cpus, gpus = self._resources.cpus, self._resources.gpus
        return Assignment(
            smoke=self._parts.pop(),
            included=method_files.included(),
            device="cuda" if gpus else "cpu",
            cpus=cpus,
            gpus=gpus,
            threads=max(1, int(cpus)),
        )

    def taken(self, work_id: str, report: SmokeReport) -> None:
        """A part is over. A worker with other code than this launch has nothing to say: its node will be left out.

        Raises:
            SmokeStepsFailed: a method failed.
        """
        self._held.discard(work_id)
        if report.failures and not other_code(report, self._code):
            raise SmokeStepsFailed(report.failures, self._specs)

    def lost(self, work_id: str) -> None:
        """The process of a part is gone; whose fault that was its trials will tell."""
        self._held.discard(work_id)


def untried_arms(progress: StudyProgress, code: Provenance) -> list[Arm]:
    """The arms of this launch that have trials to come and of which none has trained with this code.

    Of a search that is repeated the first arm stands for all.
    """
    return [
        arm.arm
        for arm in progress.launched
        if not arm.arm.repeat
        and (arm.facts.under_way or progress.has_work(arm))
        and not _has_trained(arm, progress, code)
    ]


def _has_trained(arm: ArmProgress, progress: StudyProgress, code: Provenance) -> bool:
    launches = {number for trial in arm.facts.trials for number in trial.trained_in}
    own, began = code.of_method(arm.arm.method), [progress.facts.launches[number].began for number in launches]
    return any(Provenance.of(launch).of_method(arm.arm.method) == own for launch in began)


def smoke_spec(plan: ResolvedPlan, arm: Arm) -> TrialSpec:
    """A trial of the arm's first configuration on mini-GLUE, or on the task of one's own, which it has no rows of."""
    first = arm.first[0] if arm.first else {}
    config = arm.searched({**arm.any_configuration, **first}) if arm.space else arm.fixed
    return replace(spec_of_arm(plan, arm, config, seed=0), data="mini", selection="dev", report_dev=True)
