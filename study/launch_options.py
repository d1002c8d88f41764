"""The options of `study.launch`, typed, and which of them fit each other and this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from msgspec import field

from search_spaces._every_method import ATTENTION
from study import profiles
from study.cluster.resources import local_gpus
from study.command_line import Grouped, Parser, option
from study.drivers.watchdog import IDLE_HOURS
from study.own_packages import PACKAGES, check_own
from study.plans.included_folder import INCLUDE
from study.plans.plan import Sampler, SearchRepeats
from study.plans.plan_file import require_plan
from study.storage.addresses import (
    TRACKING_DEFAULT,
    TRACKING_WORDS,
    check_address,
    cluster_address,
    is_uri,
    named,
    storage_address,
    tracking_address,
)
from study.storage.output_places import check_folder
from trainables.configuration import AtLeastOne, Count, NotNegative, Positive, Precision
from trainables.runs.trial import Selection

DESCRIPTION = """Tunes each method on each task with Optuna under ASHA, on Ray or on this machine, repeats the best
configuration with fresh seeds, and writes the median table. The same command again continues a study that was
interrupted; more methods, tasks, samples or seeds extend it."""
EPILOG = """Exit status: 0 the study is complete, 1 cells are missing or the study was interrupted, 2 bad usage.
Ctrl-C once lets running trials save their epoch, then stops; twice stops at once. The same command continues."""

OUT = "runs"  # where studies lie
MOST_BYTES = 200  # of a study's name: a file's has at most 255, with what is added to it


def _defaults(field: Literal["methods", "tasks"]) -> str:
    """What runs where nothing is named, in the profiles that auto chooses from."""
    return "; in ".join(f"{name}: {', '.join(getattr(profiles.load(name), field))}" for name in ("mini", "paper"))


def default_driver() -> Literal["ray", "local"]:
    """Ray, where it is installed."""
    return "ray" if is_installed("ray") else "local"


def is_installed(package: str) -> bool:
    """Whether it can be imported; it is not."""
    return importlib.util.find_spec(package) is not None


_CONTINUE = (
    "go on with a study: --method and --task add to it and run only what they name, the rest stays as it was asked"
)
_NAMES = "repeatable, or a,b,c, or {}; default in {}"
_PROFILES = "|".join(["auto", *profiles.available()])
_DATA = "FOLDER holds the GLUE TSV files, RTE/train.tsv ...; mini: generated, with tiny backbones where none is named"
_NYSTROM = ", ".join(f"{field} {value}" for field, value in ATTENTION["nystrom"].items() if field != "attention")
_ATTENTION = f"fix these fields of all methods; nystrom: {_NYSTROM}; --set over it"
_STARTS = "trials of the first start from the best model of the second: rte=mnli, palbert/rte=albert/mnli"
_SEARCH_PRECISION = "of search trials alone: confirm trials repeat the best configuration in their own precision"
_STORAGE = "states and models of trials: s3://BUCKET/PATH, gs://..., or a folder all nodes see; default: the study's"
_DRIVER = "who runs the trials; local: processes of the launch, on this machine; default: ray, or local where it is not"
_ADDRESS = "of a Ray cluster (auto, ray://HOST:PORT); default: RAY_ADDRESS, or else Ray on this machine alone"
_GPUS = "may be a fraction: 0.25 lets four trials share a GPU; default: 1 if there are any"
_IDLE = "end the launch, to be continued, where nothing has moved for so long; default: %(default)g"
_MAX_MINUTES = "end the launch after X minutes as after one Ctrl-C, to be continued: epochs under way are finished"


class StudyOptions(Grouped, frozen=True, kw_only=True):
    """The options that say what is studied; None: as the profile has it."""

    group = "what to study (defaults come from the profile, or from the study of --continue)"

    continue_study: Annotated[str | None, option(_CONTINUE, "runs/NAME", flag="--continue")] = None
    plan: Annotated[
        str | None, option("what to study, as --dry-run --toml prints it; options over it", "FILE.toml")
    ] = None
    method: Annotated[list[str] | None, option(_NAMES.format("all (the profile's)", _defaults("methods")), "NAME")] = (
        None
    )
    task: Annotated[list[str] | None, option(_NAMES.format("all", _defaults("tasks")), "NAME")] = None
    profile: Annotated[
        str | None, option("default: auto, which is paper where there are GPUs, else mini", _PROFILES)
    ] = None
    include: Annotated[str | None, option(INCLUDE, "FOLDER")] = None
    data: Annotated[str | None, option(_DATA, "mini|hub|FOLDER")] = None
    backbone: Annotated[str | None, option("what every trial starts from", "NAME_OR_FOLDER")] = None
    tokenizer: Annotated[str | None, option("where it is not the backbone's own", "NAME_OR_FOLDER")] = None
    samples: Annotated[AtLeastOne | None, option("search trials per arm", "N")] = None
    seeds: Annotated[AtLeastOne | None, option("how many confirm trials per arm, each with its own seed", "K")] = None
    epochs: Annotated[AtLeastOne | None, option("at most, per trial", "E")] = None
    sampler: Annotated[Sampler | None, option()] = None
    selection: Annotated[Selection | None, option("split that stops and selects")] = None
    early_stopping: Annotated[
        Literal["none", "asha"] | None, option("of search trials; none: each runs to its own stop")
    ] = None
    search_precision: Annotated[Precision | None, option(_SEARCH_PRECISION)] = None
    attention: Annotated[Literal["softmax", "nystrom"] | None, option(_ATTENTION)] = None
    set: Annotated[list[str], option("fix a field of the methods", "FIELD=VALUE")] = []
    start_from: Annotated[list[str], option(_STARTS, "ARM=ARM")] = []
    search_repeats: Annotated[SearchRepeats | None, option("searches per arm: what tuning itself spreads by", "R")] = (
        None
    )
    baseline: Annotated[str | None, option("method that the marks in the table compare with", "NAME")] = None


class PlaceOptions(StudyOptions, frozen=True, kw_only=True):
    """And those that say where its files go."""

    group = "where it goes"

    name: Annotated[str | None, option("default: from methods, profile and protocol", "STUDY")] = None
    out: Annotated[str | None, option(f"default: {OUT}", "FOLDER")] = None
    storage: Annotated[str | None, option(_STORAGE, "PATH_OR_URI")] = None
    tracking_uri: Annotated[str | None, option(f"{TRACKING_WORDS}; {TRACKING_DEFAULT}", "URI|none")] = None


class LaunchOptions(PlaceOptions, frozen=True, kw_only=True):
    """And those that say how it runs: all options of the command."""

    group = "how it runs"

    driver: Annotated[Literal["ray", "local"], option(_DRIVER)] = field(default_factory=default_driver)
    address: Annotated[str | None, option(_ADDRESS)] = field(default_factory=cluster_address)
    gpus_per_trial: Annotated[NotNegative | None, option(_GPUS, "X")] = None
    cpus_per_trial: Annotated[Positive, option("default: 1", "X")] = 1.0
    max_gpu_hours: Annotated[
        NotNegative | None, option("shared by all arms; nothing starts that X cannot pay for", "X")
    ] = None
    max_failures: Annotated[Count, option("of a trial by faults of the machine", "N")] = 3
    retry_failed: Annotated[bool, option("let all trials run again that failed")] = False
    max_idle_hours: Annotated[Positive, option(_IDLE, "X")] = IDLE_HOURS
    max_minutes: Annotated[Positive | None, option(_MAX_MINUTES, "X")] = None
    dry_run: Annotated[bool, option("say what would run, and stop")] = False
    probe: Annotated[bool, option("with --dry-run: measure a few steps of each arm")] = False
    explain: Annotated[str | None, option("with --dry-run: where each value of an arm comes from", "METHOD/TASK")] = (
        None
    )
    toml: Annotated[bool, option("with --dry-run: the plan alone, as a file for --plan")] = False
    json: Annotated[bool, option("the answer as JSON on standard output")] = False


def build_parser() -> Parser[LaunchOptions]:
    return Parser(LaunchOptions, "study.launch", DESCRIPTION, epilog=EPILOG)


def check_options(options: LaunchOptions) -> None:
    """Passes if the options fit each other and this machine.

    Raises:
        ValueError: they do not.
    """
    for name in ("probe", "explain", "toml"):
        if getattr(options, name) and not options.dry_run:
            raise ValueError(f"--{name} says something of a plan and is ignored without --dry-run; add --dry-run")
    check_own(*PACKAGES, path=[os.getcwd(), *sys.path])  # as processes of the launch look for them
    if options.toml and options.json:
        raise ValueError("--toml and --json are two forms of one answer; allowed: one of the two")
    is_local = options.address is None
    if options.address is not None:
        check_address(options.address)
    if options.driver == "local":
        _check_local(options)
    elif not is_installed("ray"):
        raise ValueError("--driver is ray, which is not installed; allowed: local")
    gpus = options.gpus_per_trial
    if gpus is not None and gpus > 1 and not gpus.is_integer():
        raise ValueError(f"--gpus-per-trial is {gpus:g}; allowed: a part of one, or a whole number")
    if is_local:
        _check_at_most("gpus-per-trial", options.gpus_per_trial, local_gpus())
        _check_at_most("cpus-per-trial", options.cpus_per_trial, len(os.sched_getaffinity(0)))
    if options.max_gpu_hours is not None and is_local and not local_gpus():
        raise ValueError(f"--max-gpu-hours is {options.max_gpu_hours:g}, but this machine has no GPU; leave it out")
    if options.search_precision and options.max_gpu_hours is not None:
        raise ValueError(
            "--max-gpu-hours plans for confirm trials by what their search trial has cost, which --search-precision "
            "makes another trial; allowed: one of the two"
        )
    if options.continue_study is not None:
        _check_continued(options, Path(options.continue_study))
    if options.plan is not None and options.profile is not None:
        raise ValueError(f"--profile is what --plan {options.plan} says already; leave it out")
    if options.name is not None:
        _check_name(options.name)
    if options.out is not None:
        check_folder("--out", Path(options.out))
    if options.storage and not is_uri(storage_address(options.storage)):
        check_folder("--storage", Path(options.storage))
    if options.tracking_uri not in (None, "none"):
        tracking_address(options.tracking_uri)
        if not is_installed("mlflow"):
            raise ValueError("--tracking-uri is of MLflow, which is not installed; allowed: none, or leave it out")


def _check_continued(options: LaunchOptions, folder: Path) -> None:
    """Of what the study that is continued says by itself."""
    said = f"--continue {options.continue_study}"
    plan = require_plan(folder).plan
    for name, own in {"profile": plan.asked.profile, "name": folder.resolve().name, "out": str(folder.parent)}.items():
        value = getattr(options, name)
        if value == own:
            raise ValueError(f"--{name} is what {said} says already; leave it out")
        if value is not None:
            raise ValueError(f"--{name} is {value}, but that of {said} is {own}; leave one of them out")
    if options.plan is not None:
        raise ValueError(f"--plan is {options.plan}, but {said} has a plan of its own; leave one of them out")


def _check_local(options: LaunchOptions) -> None:
    """Of what is Ray's alone."""
    if options.address is not None:
        raise ValueError(f"{named(options.address)} is of a Ray cluster, but --driver is local; leave one of them out")


def _check_name(name: str) -> None:
    """MLflow takes `?` and `%` in the address of its store for something else than a letter."""
    if Path(name).name != name or name in ("", "..") or not name.isprintable() or {*"?%"} & {*name}:
        raise ValueError(f"--name is {name!r}; allowed: the name of a folder, which is made in --out, without ? and %")
    if len(os.fsencode(name)) > MOST_BYTES:
        raise ValueError(f"--name is {name[:20]!r}... of {len(os.fsencode(name))} bytes; allowed: at most {MOST_BYTES}")


def _check_at_most(name: str, value: float | None, most: float) -> None:
    if value is not None and not value <= most:
        raise ValueError(f"--{name} is {value:g}; allowed: at most the {most:g} of this machine")
