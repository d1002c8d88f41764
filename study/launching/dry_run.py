"""Print what a launch would do: `--dry-run`, with `--explain`, `--toml`, `--json` and `--departures`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from study.cluster.resources import Resources, ThisMachine
from study.decisions.progress import StudyProgress
from study.facts.events import Reopening
from study.facts.plan_file import format_plan
from study.facts.provenance import read_provenance
from study.facts.study_facts import read_facts
from study.launching.forecast import describe_time_limit, forecast_plan
from study.launching.options import LaunchOptions
from study.launching.planned_study import (
    MOST_ARMS,
    PlannedStudy,
    find_launched_arms,
    find_reopened,
    list_plan_notes,
)
from study.launching.power import predict_power
from study.launching.reading import trace_settings
from study.launching.screen import REASONS
from study.plans.departures import describe_departures
from study.plans.resolution import explain
from study.plans.resolved_plan import digest
from study.terminal.text import counted, joined, list_first, print_lines
from trainables.configuration.schema import to_plain
from trainables.configuration.spelling import resolve_name
from trainables.data.tasks import trainable_tasks
from trainables.encoders.backbones import describe_unchecked
from trainables.files import method_files


def dry_run(study: PlannedStudy, options: LaunchOptions) -> int:
    """Print the plan, its expected cost and its differences from the papers. Create no file, and return 0."""
    resolved = study.resolved
    if options.explain is not None:
        names = [arm.name for arm in resolved.arms if not arm.repeat]
        known = [f"{method}/{task}" for method in method_files.names() for task in trainable_tasks()]
        name = resolve_name(options.explain, names, what="arm of this study", known=known)
        print(explain(resolved, name, origins=trace_settings(options, resolved.request)))
        return 0
    if options.toml:
        print(format_plan(resolved.request), end="")
        return 0
    execution = options.execution
    machine = Resources.measure(ThisMachine(), cpus=execution.cpus_per_trial, gpus=execution.gpus_per_trial)
    slots = 1 if options.address else machine.slots()
    history, launched = read_facts(study.folder), find_launched_arms(study, options)
    progress = StudyProgress(resolved, history, max_gpu_hours=options.max_gpu_hours, launched=launched)
    reopened = find_reopened(progress, read_provenance(), study.folder, options)
    probe_on = machine if options.probe else None
    forecast = forecast_plan(progress, study.folder, probe_on=probe_on, slots=slots, storage=options.storage)
    if options.json:
        facts = {"folder": str(study.folder), "plan": resolved, "estimates": forecast.estimates, "done": forecast.done}
        print(json.dumps(to_plain(facts), indent=1))
        return 0
    notes = list_plan_notes(study, options, history, launched=launched)
    notes += _note_reopened(progress, reopened)
    if options.max_minutes is not None:
        left = progress.list_arms_left(reopened)
        notes.append(describe_time_limit(options.max_minutes, forecast.measured, arms=left))
    if options.then is not None:
        notes.append(f"when the launch has ended, it runs {options.then}")
    if len(resolved.request.methods) > 1 and resolved.request.baseline:
        notes.append(f"the other methods are tested against the baseline {resolved.request.baseline}")
    caveat = ["the tasks are generated (mini-GLUE), so the scores are not comparable with GLUE scores"]
    lines = [*caveat * resolved.request.is_generated, study.describe(), *notes, *forecast.lines]
    lines += predict_power(resolved, study.folder, history, assumed=options.assume_spread)
    number = len({line for lines in resolved.departures.values() for line in lines})
    if options.departures:
        lines += describe_departures(resolved)
    elif number:
        lines.append(f"the plan differs from the papers and their code in {number} ways; --departures lists them")
    if study.unchecked:
        lines.append(describe_unchecked(study.unchecked))
    elif options.register:
        lines.append("before its first trial, the launch registers this plan in MLflow")
    elif study.earlier is None:
        tag = f"plan-{digest(to_plain(resolved))}"
        lines.append("to register this plan before its first trial, add --register --tracking-uri URI, or run:")
        lines.append(f"  git tag {tag} && git push origin {tag}")
    lines.append("to save this plan as a file for --plan, add --toml > plan.toml")
    print_lines([*lines, "nothing was run; to run the study, leave out --dry-run"], sys.stdout)
    return 0


def _note_reopened(progress: StudyProgress, reopened: Mapping[str, Reopening]) -> list[str]:
    """Note the failed trials that the launch runs again; [] if there are none."""
    if not reopened:
        return []
    arms = dict.fromkeys(progress.facts.trials[key].started.arm for key in reopened)
    reasons = joined([REASONS[reason] for reason in dict.fromkeys(reopened.values())])
    trials = f"{counted(len(reopened), 'failed trial')} of {list_first([*arms], MOST_ARMS)}"
    return [f"the launch runs {trials} again, because {reasons}; the time left does not include this"]
