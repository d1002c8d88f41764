"""Plans for tests, from the options of a launch and as files."""

from pathlib import Path

from helpers.simulation import NO_PROVENANCE

from study import launch
from study.facts.plan_file import write_plan
from study.launching import reading
from study.launching.options import LaunchOptions
from study.launching.planned_study import plan_file
from study.plans.plan import Plan
from study.plans.resolved_plan import ResolvedPlan


def options_from(*arguments: str) -> LaunchOptions:
    return launch.main.parser().options(arguments)


def plan_from(*arguments: str) -> Plan:
    plan, _ = reading.plan_from(options_from(*arguments))
    return plan


def write_plan_of_launch(folder: Path, resolved: ResolvedPlan) -> None:
    """Write the plan.json of a launch."""
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(folder, plan_file(folder, resolved, NO_PROVENANCE))


def with_lines(folder: Path, *lines: str) -> list[str]:
    """Write a plan file of these lines, and return the option that reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lines.toml"
    path.write_text("".join(f"{line}\n" for line in lines))
    return ["--plan", str(path)]
