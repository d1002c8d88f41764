"""One step of each arm before any trial runs: a mistake in a method's code ends the launch with one line.

A step runs on a worker, on a few rows of mini-GLUE: data are checked beforehand, and to tokenise large ones here would
keep every slot waiting. Only faults of the method count; trials meet all others, and are tried again elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from study.decisions.progress import ArmProgress, StudyProgress
from study.decisions.scheduler import Scheduler
from study.decisions.specs import specify_arm
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
    """The arms whose method cannot take a step, with their specs and failures."""

    def __init__(self, failures: Mapping[str, Failure], specs: Mapping[str, TrialSpec]):
        """Report the first of the failures, both mappings being by arm."""
        self.failures, self.specs = failures, specs
        first = next(iter(failures.values()))
        super().__init__(f"{first_of([*failures], 1)}: {first.error}, in the first step, before any trial")


class SmokeSteps:
    """The steps of a launch, handed out to workers that then run trials and need not import again."""

    def __init__(self, scheduler: Scheduler, resources: Resources):
        """Make a part for each worker with room and a trial; a part may be empty and only start the worker."""
        arms = find_untried_arms(scheduler.progress, scheduler.provenance)
        # By arm; none if all have trained with this code: workers only start then.
        self.specs = {arm.name: specify_smoke_step(scheduler.plan, arm) for arm in arms}
        self._resources, self._code = resources, scheduler.provenance
        to_come = scheduler.progress.total_trials - scheduler.progress.ended_trials
        number = min(to_come, max(1, resources.slots()))
        self.parts = [dict(list(self.specs.items())[start::number]) for start in range(number)]  # to be handed out
        self._held = set[str]()  # work ids of the workers that have a part

    @property
    def are_over(self) -> bool:
        """True if every part was taken, or lost with its process."""
        return not (self.parts or self._held)

    def next_part(self, work_id: str) -> Assignment | None:
        """Hand out a part; None if none is left."""
        if not self.parts:
            return None
        self._held.add(work_id)
        cpus, gpus = self._resources.cpus, self._resources.gpus
        return Assignment(
            smoke=self.parts.pop(),
            included=method_files.included(),
            device="cuda" if gpus else "cpu",
            cpus=cpus,
            gpus=gpus,
            threads=max(1, int(cpus)),
        )

    def taken(self, work_id: str, report: SmokeReport) -> None:
        """Take in the report of a part. One of other code than the launch's is ignored: its node will be left out.

        Raises:
            SmokeStepsFailed: a method failed.
        """
        self._held.discard(work_id)
        if report.failures and not other_code(report, self._code):
            raise SmokeStepsFailed(report.failures, self.specs)

    def lost(self, work_id: str) -> None:
        """Forget the part of a lost process; its trials will show whose fault that was."""
        self._held.discard(work_id)


def find_untried_arms(progress: StudyProgress, code: Provenance) -> list[Arm]:
    """List the arms of this launch that have trials to come and have not trained with this code.

    The first arm stands for all repeats of its search.
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
    now, began = code.of_method(arm.arm.method), [progress.facts.launches[number].began for number in launches]
    return any(Provenance.of(launch).of_method(arm.arm.method) == now for launch in began)


def specify_smoke_step(plan: ResolvedPlan, arm: Arm) -> TrialSpec:
    """Specify a trial of the arm's first configuration on mini-GLUE, or on a task of one's own, which has no rows."""
    first = arm.first[0] if arm.first else {}
    config = arm.searched({**arm.any_configuration, **first}) if arm.space else arm.fixed
    return replace(specify_arm(plan, arm, config, seed=0), data="mini", selection="dev", report_dev=True)
