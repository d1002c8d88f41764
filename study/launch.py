"""Starts, continues or extends a study: `python -m study.launch --method palbert`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from study import profiles
from study.command_line import guarded
from study.launch_options import LaunchOptions, build_parser, check_options, local_gpus
from study.plans.departures import departures_in_words
from study.plans.identity import digest, in_file_names
from study.plans.plan import EarlyStopping, Plan
from study.plans.plan_file import check_same_study, read_plan, with_earlier
from study.plans.resolution import explain, resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.data import glue
from trainables.data.tasks import TRAINABLE_TASKS
from trainables.schema import Value, to_plain


def main(argv: Sequence[str] | None = None) -> int:
    continues = "; what is on disk is whole, the same command continues"
    return guarded("study.launch", lambda: _main(argv), after_interrupt=continues)


def _main(argv: Sequence[str] | None) -> int:
    options = build_parser().options(LaunchOptions, argv)
    check_options(options)
    plan, why = plan_from(options)
    if options.dry_run:
        return dry_run(plan, options, why=why)
    resolved, folder = prepare(plan, name=options.name, out=Path(options.out))
    from study.launch_stages import run_study  # Ray, from here on

    return run_study(resolved, folder, options, why=why)


def plan_from(options: LaunchOptions) -> tuple[Plan, str]:
    """The profile's plan with the command line laid over it, and why this profile."""
    profile, why = _profile(options)
    overrides = {
        "methods": options.method and _names(options.method, profiles.methods(profile)),
        "tasks": options.task and _names(options.task, TRAINABLE_TASKS),
        "data": options.data,
        "backbone": options.backbone,
        "tokenizer": options.tokenizer,
        "samples": options.samples,
        "seeds": options.seeds,
        "epochs": options.epochs,
        "sampler": options.sampler,
        "selection": options.selection,
        "settings": dict(_setting(text) for text in options.set) or None,
        "start_from": dict(_start(text) for text in options.start_from) or None,
        "baseline": options.baseline,
    }
    plan = replace(profiles.load(profile), **{name: value for name, value in overrides.items() if value is not None})
    if options.early_stopping is not None:
        plan = replace(plan, early_stopping=EarlyStopping() if options.early_stopping == "asha" else None)
    return plan, why


def prepare(
    plan: Plan, *, name: str | None, out: Path, unchecked: list[str] | None = None
) -> tuple[ResolvedPlan, Path]:
    """The plan joined with what its folder holds already, and the folder; nothing is created.

    `unchecked` is as in `resolve`.
    """
    resolved = resolve(plan, unchecked=unchecked)
    folder = out / (name or default_name(resolved))
    earlier = read_plan(folder)
    if earlier is not None:
        resolved = resolve(with_earlier(plan, earlier.plan.asked), unchecked=unchecked)
        if not unchecked:
            check_same_study(resolved, earlier.plan, folder)
    return resolved, folder


def default_name(resolved: ResolvedPlan) -> str:
    """The methods, and digits that anything else would change that is not an extension.

    A backbone or tokenizer counts by its content, wherever it lies.
    """
    asked = resolved.asked
    names = asked.methods if len(asked.methods) < 3 else (f"{len(asked.methods)}-methods",)
    rest = replace(asked, methods=(), tasks=(), samples=None, seeds=0, baseline=None)
    rest = replace(rest, data=glue.seen_from_anywhere(asked.data), backbone=None, tokenizer=None)
    made_of = {(arm.backbone_fingerprint, arm.tokenizer_fingerprint or "") for arm in resolved.arms}
    content = sorted(made_of) if asked.backbone or asked.tokenizer else []
    return "-".join([*map(in_file_names, names), digest([to_plain(rest), content], length=6)])


def dry_run(plan: Plan, options: LaunchOptions, *, why: str) -> int:
    """Says what would run, what it is expected to cost and where it is not what the papers did; nothing is created."""
    from study.forecast.forecast import forecast_plan

    unchecked: list[str] = []
    resolved, folder = prepare(plan, name=options.name, out=Path(options.out), unchecked=unchecked)
    if options.explain is not None:
        names = [arm.name for arm in resolved.arms]
        if options.explain not in names:
            raise ValueError(f"--explain {options.explain}: no such arm; available: {', '.join(names)}")
        method, _, task = options.explain.partition("/")
        print(explain(resolved.asked, method, task))
        return 0
    forecast = forecast_plan(resolved, folder, with_probe=options.probe)
    if options.json:
        print(json.dumps({"folder": str(folder), "plan": to_plain(resolved), **to_plain(forecast.facts)}, indent=1))
        return 0
    print(f"study {folder} ({resolved.protocol_hash}), {why}")
    for line in forecast.lines:
        print(line)
    for line in departures_in_words(resolved):
        print(line)
    if unchecked:
        print(f"not checked, because the hub cannot be reached: {', '.join(unchecked)}")
    print("nothing was run")
    return 0


def _profile(options: LaunchOptions) -> tuple[str, str]:
    if options.profile != "auto":
        return options.profile, f"profile {options.profile}"
    address = options.address or os.environ.get("RAY_ADDRESS")
    if address:
        from study.cluster.ray_connection import cluster_gpus

        gpus, where = cluster_gpus(address), f"the Ray cluster at {address}"
    else:
        gpus, where = local_gpus(), "this machine"
    profile = "paper" if gpus else "mini"
    return profile, f"profile {profile}: {where} has {gpus or 'no'} GPUs"


def _names(given: list[str], menu: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(menu if "all" in names else names))


def _setting(text: str) -> tuple[str, Value]:
    field, value = _pair("--set", text, "FIELD=VALUE")
    try:
        return field, json.loads(value)
    except ValueError:
        return field, value


def _start(text: str) -> tuple[str, str]:
    return _pair("--start-from", text, "ARM=ARM")


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left:
        raise ValueError(f"{option} {text}: allowed: {form}")
    return left, right


if __name__ == "__main__":
    sys.exit(main())
