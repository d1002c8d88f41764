"""Starts, continues or extends a study: `python -m study.launch --method palbert`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from search_spaces import meant_method
from search_spaces._every_method import ATTENTION
from study import profiles
from study.cluster.resources import local_gpus
from study.command_line import guarded, read_pair, read_setting
from study.facts.plain_words import on_screen
from study.launch_options import LaunchOptions, build_parser, check_options
from study.launch_plan import (
    check_tensorfloat32,
    first_line,
    launched_arms,
    plan_notes,
    prepare,
)
from study.plans.departures import departures_in_words
from study.plans.included_folder import include_folder
from study.plans.plan import EarlyStopping, Plan
from study.plans.plan_file import require_plan
from study.plans.resolution import explain
from study.plans.resolved_plan import ResolvedPlan
from study.plans.toml_file import of_settings_in_file, plan_as_toml, read_toml
from study.plans.unknown_words import unknown_in_words
from trainables import base_method, method_files
from trainables.data.tasks import TRAINABLE_TASKS
from trainables.schema import Configuration, to_plain
from trainables.spelling import meant, same


def main(argv: Sequence[str] | None = None) -> int:
    continues = "; what is on disk is whole, the same command continues"
    return guarded("study.launch", lambda: _main(argv), after_interrupt=continues)


def _main(argv: Sequence[str] | None) -> int:
    options = build_parser().options(argv)
    check_options(options)
    plan, why = plan_from(options)
    if options.dry_run:
        return dry_run(plan, options, why=why)
    resolved, folder = _prepared(plan, options)
    check_tensorfloat32(options, resolved)
    from study.launch_stages import run_study  # Ray, where trials are to be run

    return run_study(plan, folder, options, why=why)


def plan_from(options: LaunchOptions) -> tuple[Plan, str]:
    """The plan of the profile, or of the study to go on with, with the command line laid over it; and why that one."""
    base, why = _base(options)
    if options.include or not base.include:
        method_files.include(method_files.read_methods(options.include) if options.include else None)
    else:
        include_folder(base.methods, base.include)
    if options.plan:
        base = _as_meant(base, options.plan)
    overrides = {
        "methods": options.method and _names(options.method, profiles.methods(base.profile), _meant_method),
        "tasks": options.task and _names(options.task, TRAINABLE_TASKS, _meant_task),
        "include": options.include and str(Path(options.include).resolve()),
        "data": options.data,
        "backbone": options.backbone,
        "tokenizer": options.tokenizer,
        "samples": options.samples,
        "seeds": options.seeds,
        "epochs": options.epochs,
        "sampler": options.sampler,
        "selection": options.selection,
        "settings": {**_attention(options), **dict(read_setting(text) for text in options.set)} or None,
        "search_repeats": options.search_repeats,
        "baseline": options.baseline and meant_method(options.baseline),
        "search_precision": options.search_precision,
    }
    plan = replace(base, **{name: value for name, value in overrides.items() if value is not None})
    if options.start_from:
        plan = replace(plan, start_from=_starts(options.start_from, plan))
    if options.early_stopping is not None:
        plan = replace(plan, early_stopping=EarlyStopping() if options.early_stopping == "asha" else None)
    return plan, why


def _attention(options: LaunchOptions) -> Configuration:
    """The fields that `--attention` fixes, if it is given."""
    return {} if options.attention is None else ATTENTION[options.attention]


def dry_run(plan: Plan, options: LaunchOptions, *, why: str) -> int:
    """Says what would run, what it is expected to cost and where it is not what the papers did; nothing is created."""
    from study.forecast.forecast import forecast_plan

    unchecked: list[str] = []
    resolved, folder = _prepared(plan, options, unchecked=unchecked)
    check_tensorfloat32(options, resolved)
    if options.explain is not None:
        names = [arm.name for arm in resolved.arms if not arm.repeat]
        known = [f"{method}/{task}" for method in method_files.names() for task in TRAINABLE_TASKS]
        method, _, task = meant(options.explain, names, what="arm of this study", known=known).partition("/")
        print(explain(resolved.asked, method, task))
        return 0
    if options.toml:
        print(plan_as_toml(resolved.asked), end="")
        return 0
    forecast = forecast_plan(resolved, folder, with_probe=options.probe)
    for line in unknown_in_words(resolved):
        print(on_screen(line, sys.stderr), file=sys.stderr)
    if options.json:
        print(json.dumps({"folder": str(folder), "plan": to_plain(resolved), **to_plain(forecast.facts)}, indent=1))
        return 0
    launched = launched_arms(plan, options, resolved)
    notes = plan_notes(options, resolved, folder, launched=launched)
    for line in [first_line(folder, resolved, why), *notes, *forecast.lines]:
        print(on_screen(line, sys.stdout))
    for line in departures_in_words(resolved):
        print(line)
    if unchecked:
        words = f"not checked, because the hub cannot be reached: {', '.join(unchecked)}"
        print(on_screen(words, sys.stdout))
    print(on_screen("nothing was run; this plan as a file for --plan: --dry-run --toml", sys.stdout))
    return 0


def _prepared(plan: Plan, options: LaunchOptions, *, unchecked: list[str] | None = None) -> tuple[ResolvedPlan, Path]:
    """As `prepare`; what is wrong with a setting of the file of --plan is told of that file."""
    try:
        return prepare(plan, options, unchecked=unchecked)
    except ValueError as error:
        if options.plan is None:
            raise
        typed = [read_setting(text)[0] for text in options.set]
        raise ValueError(of_settings_in_file(str(error), plan, path=options.plan, typed=typed)) from None


def _base(options: LaunchOptions) -> tuple[Plan, str]:
    if options.continue_study is not None:
        return require_plan(Path(options.continue_study)).plan.asked, "continued"
    if options.plan is not None:
        return read_toml(Path(options.plan)), f"plan {options.plan}"
    profile, why = _profile(options)
    return profiles.load(profile), why


def _profile(options: LaunchOptions) -> tuple[str, str]:
    asked = meant(options.profile or "auto", ["auto", *profiles.available()], what="profile")
    if asked != "auto":
        return asked, f"profile {asked}"
    if options.address:
        from study.cluster.ray_cluster import cluster_gpus

        gpus, where = cluster_gpus(options.address), f"the Ray cluster at {options.address}"
    else:
        gpus, where = local_gpus(), "this machine"
    profile = "paper" if gpus else "mini"
    return profile, f"profile {profile}: {where} has {gpus or 'no'} GPUs"


def _as_meant(plan: Plan, file: str) -> Plan:
    """The plan of a file with the names that are meant."""
    meanings: dict[str, Callable[[], object]] = {
        "methods": lambda: tuple(map(meant_method, plan.methods)),
        "tasks": lambda: tuple(map(_meant_task, plan.tasks)),
        "baseline": lambda: plan.baseline and meant_method(plan.baseline),
    }
    found = dict[str, object]()
    for field, meaning in meanings.items():
        try:
            found[field] = meaning()
        except ValueError as error:
            raise ValueError(f"--plan {file}: {field}: {error}") from None
    return replace(plan, **found)


def _names(given: list[str], menu: Sequence[str], as_meant: Callable[[str], str]) -> tuple[str, ...]:
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(menu if "all" in names else map(as_meant, names)))


def _meant_method(name: str) -> str:
    try:
        return meant_method(name)
    except ValueError as error:
        is_known = any(same(base_method(name), known) for known in method_files.names())
        if not is_known and method_files.included() is None:
            raise ValueError(f"{error}; a method of your own: --include FOLDER") from None
        raise


def _meant_task(name: str) -> str:
    return meant(name, TRAINABLE_TASKS, what="task")


def _starts(texts: list[str], plan: Plan) -> dict[str, str]:
    """What each arm or task starts from: `RTE=MNLI` is `rte=mnli`."""
    starts = dict[str, str]()
    for text in texts:
        pair = read_pair("--start-from", text, "ARM=ARM")
        try:
            arm, source = map(_arm_or_task, pair)
        except ValueError as error:
            raise ValueError(f"--start-from {text}: {error}") from None
        method, _, task = arm.rpartition("/")
        if task not in plan.tasks or method not in ("", *plan.methods):
            raise ValueError(
                f"--start-from {text}: {arm} is not studied; allowed: {', '.join(plan.tasks)}, METHOD/TASK"
            )
        starts[arm] = source
    return starts


def _arm_or_task(name: str) -> str:
    method, slash, task = name.rpartition("/")
    return f"{meant_method(method) if slash else ''}{slash}{_meant_task(task)}"


if __name__ == "__main__":
    sys.exit(main())
