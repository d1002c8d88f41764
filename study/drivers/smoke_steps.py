"""Smoke steps: one training step of each arm before any trial, so that a bug in a method ends the launch at once.

The step uses a few rows of mini-GLUE, because tokenising a large task would delay all trials. Only failures that the
method causes end the launch.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from study.decisions.progress import ArmProgress, StudyProgress
from study.decisions.scheduler import Scheduler, specify_arm
from study.drivers.messages import SmokeReport
from study.facts.events import Failure
from study.facts.provenance import Provenance, code_of_method, list_other_code
from study.plans.resolved_plan import Arm, ResolvedPlan
from study.terminal.text import list_first
from trainables.runs.trial import TrialSpec


class SmokeStepsFailed(ValueError):
    """The error that ends a launch because the methods of some arms failed in their smoke step."""

    def __init__(self, failures: Mapping[str, Failure], specs: Mapping[str, TrialSpec]):
        """Store the failures and specs (arm name -> value); the message gives the first failure."""
        self.failures, self.specs = failures, specs
        first = next(iter(failures.values()))
        super().__init__(f"{list_first([*failures], 1)}: {first.error} (in the first training step, before any trial)")


class SmokeSteps:
    """The smoke steps of a launch. The workers share the steps and run them before the first trial."""

    def __init__(self, scheduler: Scheduler, *, slots: int):
        """Split the steps into one part per worker. A worker with an empty part runs no smoke step."""
        arms = find_untried_arms(scheduler.progress, scheduler.provenance)
        # By arm name. If all arms have trained with this code, this is empty, and the workers only start.
        self.specs = {arm.name: specify_smoke_step(scheduler.plan, arm) for arm in arms}
        self._code = scheduler.provenance
        number = min(scheduler.progress.trials_left, max(1, slots))
        self.parts = [dict(list(self.specs.items())[start::number]) for start in range(number)]  # not yet handed out
        self._held = dict[str, dict[str, TrialSpec]]()  # work id of a worker -> the part that it has
        self._lost = set[str]()  # arms whose part was lost once; each of them is tried once more, alone

    @property
    def are_over(self) -> bool:
        """True if all parts of the steps have been handed out and none is still running."""
        return not (self.parts or self._held)

    def next_part(self, work_id: str) -> dict[str, TrialSpec] | None:
        """Return the next part of the steps (arm name -> spec); None if no part is left."""
        if not self.parts:
            return None
        self._held[work_id] = self.parts.pop()
        return self._held[work_id]

    def process_report(self, work_id: str, report: SmokeReport) -> None:
        """Process a worker's report; failures are ignored if the worker's code differs from the launch's.

        Raises:
            SmokeStepsFailed: if a method failed.
        """
        self._held.pop(work_id, None)
        if report.failures and not list_other_code(report, self._code):
            raise SmokeStepsFailed(report.failures, self.specs)

    def lose_part(self, work_id: str, failure: Failure) -> None:
        """Try each arm of a lost process once more, alone. If the process of an arm alone is lost, drop the arm.

        Raises:
            SmokeStepsFailed: if the process of an arm alone crashed.
        """
        part = self._held.pop(work_id, {})
        if failure.cause == "crash" and part.keys() & self._lost:
            failed = dict.fromkeys(part, replace(failure, cause="method"))
            raise SmokeStepsFailed(failed, self.specs)
        self.parts += [{arm: spec} for arm, spec in part.items() if arm not in self._lost]
        self._lost |= part.keys()


def find_untried_arms(progress: StudyProgress, code: Provenance) -> list[Arm]:
    """List the arms that have trials to run and were never trained with this code.

    Arms that repeat the search of another arm are left out.
    """
    return [
        arm.planned
        for arm in progress.launched
        if not arm.planned.repeat
        and (arm.facts.under_way or progress.has_work(arm))
        and not _has_trained(arm, progress, code)
    ]


def _has_trained(arm: ArmProgress, progress: StudyProgress, code: Provenance) -> bool:
    launches = {number for trial in arm.facts.trials for number in trial.trained_in}
    now = code_of_method(code, arm.planned.method)
    codes = [progress.facts.launches[number].began.code for number in launches]
    return any(code_of_method(earlier, arm.planned.method) == now for earlier in codes)


def specify_smoke_step(plan: ResolvedPlan, arm: Arm) -> TrialSpec:
    """Build the trial spec of a smoke step: the arm's first configuration, on mini-GLUE or on the user's own task."""
    first = arm.first[0] if arm.first else {}
    config = arm.make_search_configuration({**arm.any_configuration, **first}) if arm.space else arm.fixed
    return replace(specify_arm(plan, arm, config, seed=0), data="mini", selection="dev", report_dev=True)
