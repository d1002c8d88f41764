"""Starts, continues or extends a study: `python -m study.launch --method palbert`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from study import profiles
from study.estimate import Measured, describe_estimate, estimate, measured_in, total_in_words
from study.plan import (
    SAMPLERS,
    SELECTIONS,
    Plan,
    ResolvedPlan,
    check_same_study,
    digest,
    load_plan_json,
    resolve,
    trainable_tasks,
    with_earlier,
)
from study.record import read_records
from study.storage import storage_address

DESCRIPTION = """Tunes each method on each task with Optuna under ASHA on Ray, repeats the best configuration with fresh
seeds, and writes the median table. The same command again continues a study that was interrupted; more methods, tasks,
samples or seeds extend it."""
EPILOG = """Exit status: 0 the study is complete, 1 cells are missing or the study was interrupted, 2 bad usage.
Ctrl-C once lets running trials save their epoch, then stops; twice stops at once. The same command continues."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C; the engine has a handler of its own
    try:
        plan, why = plan_from(arguments)
        resolved, folder = prepare(plan, name=arguments.name, out=Path(arguments.out))
        if arguments.dry_run:
            return dry_run(resolved, folder, why=why, as_json=arguments.json, with_probe=arguments.probe)
        from study.run import run_study  # Ray, from here on

        return run_study(resolved, folder, arguments, why=why)
    except ValueError as error:
        print(f"study.launch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("study.launch: interrupted; the same command continues", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"study.launch: {error}; what is on disk is whole, the same command continues", file=sys.stderr)
        return 1


TRACKING_SCHEMES = ("http", "https", "sqlite", "file", "postgresql", "mysql", "mssql", "databricks")


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error is said."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"study.launch: {message}; see --help\n")


def build_parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="python -m study.launch", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False)
    what = parser.add_argument_group("what to study (defaults come from the profile)")
    what.add_argument("--method", action="append", metavar="NAME", help="repeatable, or a,b,c, or all")
    what.add_argument("--task", action="append", metavar="NAME", help="repeatable, or a,b,c, or all")
    what.add_argument(
        "--profile",
        default="auto",
        metavar="auto|mini|paper|electra",
        help="auto: paper where there are GPUs, else mini",
    )
    what.add_argument("--data", metavar="mini|hub|FOLDER", help="FOLDER holds the GLUE TSV files, RTE/train.tsv ...")
    what.add_argument("--backbone", metavar="NAME_OR_FOLDER", help="backbone of every method")
    what.add_argument("--samples", type=int, metavar="N", help="search trials per arm")
    what.add_argument("--seeds", type=int, metavar="K", help="confirm trials per arm")
    what.add_argument("--epochs", type=int, metavar="E", help="at most, per trial")
    what.add_argument("--sampler", metavar="|".join(SAMPLERS))
    what.add_argument("--selection", metavar="|".join(SELECTIONS), help="split that stops and selects")
    what.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="fix a field of the methods")
    where = parser.add_argument_group("where it goes")
    where.add_argument("--name", metavar="STUDY", help="default: from methods, profile and protocol")
    where.add_argument("--out", default="runs", metavar="FOLDER", help="default: runs")
    where.add_argument(
        "--storage",
        metavar="PATH_OR_URI",
        help="states and models of trials: s3://BUCKET/PATH, gs://..., or a folder all nodes see; default: the study's",
    )
    where.add_argument("--tracking-uri", metavar="URI|none", help="MLflow; default: mlflow.db in the study's folder")
    how = parser.add_argument_group("how it runs")
    how.add_argument("--address", help="of a Ray cluster (auto, ray://HOST:PORT); default: Ray on this machine alone")
    how.add_argument(
        "--gpus-per-trial",
        type=_share,
        metavar="X|auto",
        help="may be a fraction; auto: pack by measured memory; default: 1 if there are any",
    )
    how.add_argument("--cpus-per-trial", type=float, default=1, metavar="X", help="default: 1")
    how.add_argument("--max-gpu-hours", type=float, metavar="X", help="end the searches in time to confirm within X")
    how.add_argument("--max-failures", type=int, default=3, metavar="N", help="retries of a trial whose process died")
    how.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    how.add_argument(
        "--probe", action="store_true", help="with --dry-run: measure a few steps of each arm, for the time"
    )
    how.add_argument("--json", action="store_true", help="the answer as JSON on standard output")
    return parser


def plan_from(arguments: argparse.Namespace) -> tuple[Plan, str]:
    """The profile's plan with the command line laid over it, and why this profile."""
    _check_ranges(arguments)
    if arguments.probe and not arguments.dry_run:
        raise ValueError("--probe measures for --dry-run and is ignored without it; add --dry-run")
    profile, why = _profile(arguments)
    plan = profiles.load(profile)
    import search_spaces

    given = {
        "methods": arguments.method and _names(arguments.method, search_spaces.available()),
        "tasks": arguments.task and _names(arguments.task, trainable_tasks()),
        **{name: getattr(arguments, name) for name in ("data", "backbone", "samples", "seeds", "epochs")},
        **{name: getattr(arguments, name) for name in ("sampler", "selection")},
        "settings": dict(_setting(text) for text in arguments.set) or None,
    }
    return dataclasses.replace(plan, **{name: value for name, value in given.items() if value is not None}), why


def prepare(plan: Plan, *, name: str | None, out: Path) -> tuple[ResolvedPlan, Path]:
    """The plan joined with what its folder holds already, and the folder; nothing is created."""
    resolved = resolve(plan)
    folder = out / (name or default_name(resolved))
    earlier = load_plan_json(folder)
    if earlier is not None:
        resolved = resolve(with_earlier(plan, earlier))
        check_same_study(resolved, earlier, folder)
    return resolved, folder


def default_name(resolved: ResolvedPlan) -> str:
    """The methods, and digits that another protocol or another place of the data would change."""
    plan = resolved.plan
    place = plan.data if plan.data in ("mini", "hub") else str(Path(plan.data).resolve())
    names = plan.methods if len(plan.methods) < 3 else (f"{len(plan.methods)}-methods",)
    return "-".join([*names, digest([resolved.protocol, place], length=6)])


def dry_run(resolved: ResolvedPlan, folder: Path, *, why: str, as_json: bool, with_probe: bool) -> int:
    """Says what would run and what it is expected to cost; nothing is created."""
    estimates = estimate(resolved, _measured(resolved, folder, with_probe=with_probe))
    done = _done(resolved, folder)
    if as_json:
        costs = {item.arm.name: item.to_json() for item in estimates}
        print(json.dumps({"folder": str(folder), **resolved.to_json(), "estimates": costs, "done": done}, indent=1))
        return 0
    print(f"study {folder} ({resolved.protocol_hash}), {why}")
    for item in estimates:
        print(f"  {describe_estimate(item, seeds=len(resolved.seeds))}")
    search, confirm = sum(arm.samples for arm in resolved.arms), len(resolved.arms) * len(resolved.seeds)
    print(f"{len(resolved.arms)} arms, {search} search and {confirm} confirm trials, {total_in_words(estimates)}")
    if done:
        left = (
            f"{done['remaining_seconds'] / 3600:.2f} h of one slot"
            if done["remaining_seconds"] is not None
            else "unknown"
        )
        print(f"of these {done['ended']} trials have ended and {done['under_way']} are under way; left: {left}")
    print("nothing was run")
    return 0


def _done(resolved: ResolvedPlan, folder: Path) -> dict[str, Any] | None:
    """How much of the plan the study on disk has done; None where there is none yet."""
    if not (folder / "events.jsonl").exists():
        return None
    from study.eta import remaining_seconds  # Optuna, from here on
    from study.status import state_on_disk

    state = state_on_disk(folder, resolved)
    counts = {"ended": len(state.ended), "under_way": len(state.unfinished)}
    return {**counts, "remaining_seconds": remaining_seconds(state)}


def _measured(resolved: ResolvedPlan, folder: Path, *, with_probe: bool) -> dict[str, Measured]:
    if not with_probe:
        return measured_in(read_records(folder / "records.jsonl"))
    from study.probe import probe  # torch

    measured = {}
    for name, cost in probe(resolved):
        print(f"probed {name}: {cost.epoch_seconds:.2f} s per epoch", file=sys.stderr)
        measured[name] = cost
    return measured


def _profile(arguments: argparse.Namespace) -> tuple[str, str]:
    if arguments.profile != "auto":
        return arguments.profile, f"profile {arguments.profile}"
    address = arguments.address or os.environ.get("RAY_ADDRESS")
    if address:
        from study.run import cluster_gpus

        gpus, where = cluster_gpus(address), f"the Ray cluster at {address}"
    else:
        gpus, where = local_gpus(), "this machine"
    profile = "paper" if gpus else "mini"
    return profile, f"profile {profile}: {where} has {gpus or 'no'} GPUs"


def local_gpus() -> int:
    """NVIDIA GPUs of this machine, counted without loading a driver."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def _share(text: str) -> float | Literal["auto"]:
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number or auto") from None


def _check_ranges(arguments: argparse.Namespace) -> None:
    local = not (arguments.address or os.environ.get("RAY_ADDRESS"))
    for name, lowest, highest in (
        ("gpus-per-trial", 0, local_gpus() if local else math.inf),
        ("cpus-per-trial", 0.001, len(os.sched_getaffinity(0)) if local else math.inf),
        ("max-gpu-hours", 0, math.inf),
        ("max-failures", 0, math.inf),
    ):
        value = getattr(arguments, name.replace("-", "_"))
        if value not in (None, "auto") and not lowest <= value <= highest:
            top = f", at most the {highest:g} of this machine" if highest < math.inf else ""
            raise ValueError(f"--{name} is {value}; allowed: {'above 0' if lowest else '0 or more'}{top}")
    if arguments.max_gpu_hours is not None and local and not local_gpus():
        raise ValueError(f"--max-gpu-hours is {arguments.max_gpu_hours:g}, but this machine has no GPU; leave it out")
    if arguments.name is not None and (Path(arguments.name).name != arguments.name or arguments.name in ("", "..")):
        raise ValueError(f"--name is {arguments.name!r}; allowed: the name of a folder, which is made in --out")
    if arguments.storage:
        storage_address(arguments.storage)
    scheme, separator, _ = (arguments.tracking_uri or "none").partition(":")
    if separator and scheme not in TRACKING_SCHEMES:
        allowed = ", ".join(TRACKING_SCHEMES)
        raise ValueError(f"--tracking-uri is a {scheme} address; allowed: none, a folder, {allowed}")


def _names(given: list[str], menu: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(menu if "all" in names else names))


def _setting(text: str) -> tuple[str, Any]:
    field, equals, value = text.partition("=")
    if not equals or not field:
        raise ValueError(f"--set {text}: allowed: FIELD=VALUE")
    try:
        return field, json.loads(value)
    except ValueError:
        return field, value


if __name__ == "__main__":
    sys.exit(main())
