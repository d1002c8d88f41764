"""Declare the options of `study.launch`, and check them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import field
from msgspec.structs import replace

from study.cluster.resources import count_cores, count_local_gpus
from study.drivers.driver import IDLE_HOURS
from study.facts.events import Execution
from study.facts.plan_file import INCLUDE
from study.facts.study_folder import RUNS
from study.plans import profiles
from study.plans.names_elsewhere import suggest_method_option
from study.plans.plan import LINES_OF_PLAN_FILE
from study.plans.samplers import FORM, SAMPLERS, SELECT_FORMS
from study.plans.settings import (
    FORMS,
)
from study.storage.addresses import (
    TRACKING_HELP,
    check_address,
    check_folder,
    check_tracking_address,
    is_uri,
    make_tracking_absolute,
    named,
    read_cluster_address,
    resolve_storage_address,
)
from study.terminal.command_line import option
from study.terminal.processes import PACKAGES, check_not_shadowed, is_installed, require_package
from study.terminal.text import counted, masked
from trainables.configuration import AtLeastOne, Count, NotNegative, Positive
from trainables.configuration.schema import Typed, read_value, to_plain
from trainables.runs.trial import Selection

DESCRIPTION = """Tune each method on each task, repeat the best configuration with new seeds, and write the table of
medians: `python -m study.launch --method albert,palbert --task rte`. After an interruption, the same command resumes
the study. The same command with more tasks, samples or seeds extends the study, and so does one with more methods if it
has --name or --continue."""
EPILOG = """The exit status is 0 if the study is complete, 1 if trials are missing or failed, and 2 if the options are
invalid. After Ctrl-C, each running trial completes its current epoch and saves it; then the launch ends. After a second
Ctrl-C, the launch ends at once. docs/coming_from.md translates the options of the papers' repositories, and
docs/glossary.md explains the terms."""

THIS_MACHINE = "local"  # as --address or RAY_ADDRESS
MOST_BYTES = 200  # limit for a study's name: file names have at most 255 bytes, and some add a suffix to it


def _list_defaults(field: Literal["methods", "tasks"]) -> str:
    """List the default methods or tasks of three profiles: `mini = palbert; small = ...; paper = ...`."""
    names = ("mini", "small", "paper")
    return "; ".join(f"{name} = {', '.join(getattr(profiles.load_profile(name), field))}" for name in names)


def default_driver() -> Literal["ray", "local"]:
    """Return "ray" if Ray is installed, else "local"."""
    return "ray" if is_installed("ray") else "local"


_CONTINUE = "continue this study; --method and --task select what to run, and may name new methods and tasks"
_NAMES = "names separated by commas, or {}; repeatable; default by profile: {}"
_PROFILES = "|".join(["auto", *profiles.list_profiles()])
_DATA = (
    "mini: generated data, with tiny backbones by default; hub: GLUE from the Hugging Face hub; FOLDER: GLUE's TSV "
    "files, such as RTE/train.tsv, or those of `datasets`, such as rte/train.csv"
)
_BACKBONE = "model that every trial starts from; a folder with only config.json means random weights"
_SET = (
    "fix a field of all methods, or only of SCOPE (METHOD, METHOD:VARIANT or METHOD/TASK); --explain lists the fields"
)
_SEARCH = "tune a field within a range or among choices"
_SEARCH_ONLY = "tune only these fields; others take the paper's value"
_VARY = "study each value as a method of its own"
_START_FROM = (
    "start from the best model of another task: rte=mnli starts RTE from MNLI; each side may also be METHOD/TASK"
)
_SAMPLER = f"Optuna sampler; {FORM} is an installed class or function that takes a parameter named seed"
_EARLY_STOPPING = (
    "rule that stops weak search trials; asha: only the best 1/FACTOR of trials continue after GRACE epochs; none: "
    "every trial runs to its end"
)
_SELECT_BY = (
    "quantity that selects the best trial; at:6 is the best score with at most 6 layers on average; area is the mean "
    "score over exit settings; default: score"
)
# Repeated searches vary more than repeated seeds, so a claim about methods needs several searches.
# `python -m benchmarks.statistics repeats` measures the two variations.
COMPARING_METHODS = {"search_repeats": 4, "samples": 4, "seeds": 2}
_COMPARE = "preset: R searches per arm ({search_repeats}), --samples {samples} --seeds {seeds}".format(
    **COMPARING_METHODS
)
_STORAGE = (
    "where trials save states and models: s3://BUCKET/PATH, gs://... or a folder that all nodes see; default: the "
    "study's folder"
)
_ADDRESS = "Ray cluster, or local; default: $RAY_ADDRESS"
_ASSUME_SPREAD = "with --dry-run: deviation of scores over seeds"
_THEN = "command to run when the launch has ended"
_DRIVER = "local: without Ray; default: ray, if installed"
_GPUS = "GPU share per trial, such as 0.25; default: 1 if any"
_MAX_GPU_HOURS = "start no trial that brings the total above X hours"
_IDLE = "end after X hours without progress; default: %(default)g"


class LaunchOptions(Typed, frozen=True, kw_only=True):
    """All options of study.launch: what is studied, where the files go, and how and where trials run.

    If an option is None, the value is from the profile, the --plan file or the continued study. Options that have the
    names of fields of `Plan` set these fields. --epochs is a short form of --set.
    """

    groups: ClassVar[dict[str, str]] = {
        "continue_study": "what to study (the defaults come from the profile, or from the study that --continue names)",
        "name": "where the files go",
        "driver": "how the trials run",
    }
    common: ClassVar[tuple[str, ...]] = (
        "methods",
        "tasks",
        "data",
        "backbone",
        "profile",
        "settings",
        "search",
        "samples",
        "seeds",
        "epochs",
        "name",
        "dry_run",
        "explain",
        "continue_study",
        "max_minutes",
    )

    continue_study: Annotated[str | None, option(_CONTINUE, "runs/NAME", flag="--continue")] = None
    plan: Annotated[str | None, option("plan file from --dry-run --toml; options override it", "FILE.toml")] = None
    methods: Annotated[
        list[str] | None,
        option(_NAMES.format("all (the profile's methods)", _list_defaults("methods")), "NAME", flag="--method"),
    ] = None
    tasks: Annotated[
        list[str] | None,
        option(_NAMES.format("all (the papers' eight tasks)", _list_defaults("tasks")), "NAME", flag="--task"),
    ] = None
    profile: Annotated[str | None, option("named plan; default: auto (paper with GPUs, else mini)", _PROFILES)] = None
    include: Annotated[list[str], option(INCLUDE, "FOLDER")] = []
    data: Annotated[str | None, option(_DATA, "mini|hub|FOLDER")] = None
    backbone: Annotated[str | None, option(_BACKBONE, "NAME_OR_FOLDER")] = None
    samples: Annotated[Count | None, option("search trials per method and task; 0 means no search", "N")] = None
    seeds: Annotated[AtLeastOne | None, option("final runs (confirm trials) of the best configuration", "K")] = None
    epochs: Annotated[AtLeastOne | None, option("maximum epochs per trial; the same as --set epochs=E", "E")] = None
    sampler: Annotated[str | None, option(_SAMPLER, "|".join([*SAMPLERS, FORM]))] = None
    selection: Annotated[Selection | None, option("split for early stopping and model selection")] = None
    select_by: Annotated[str | None, option(_SELECT_BY, SELECT_FORMS.replace(", ", "|"))] = None
    early_stopping: Annotated[str | None, option(_EARLY_STOPPING, "none|asha|asha:grace=1,factor=3")] = None
    settings: Annotated[list[str], option(_SET, "[SCOPE:]FIELD=VALUE", flag="--set")] = []
    search: Annotated[list[str], option(_SEARCH, f"[SCOPE:]FIELD={FORMS.replace(', ', '|')}")] = []
    search_only: Annotated[list[str], option(_SEARCH_ONLY, "FIELD,FIELD")] = []
    vary: Annotated[list[str], option(_VARY, "METHOD:FIELD=A,B,C")] = []
    start_from: Annotated[list[str], option(_START_FROM, "ARM=ARM")] = []
    first_from: Annotated[str | None, option("try the best configurations of another study first", "runs/OTHER")] = None
    compare: Annotated[str | None, option(_COMPARE, "methods|methods:R")] = None
    baseline: Annotated[str | None, option("method that the others are tested against", "NAME")] = None
    name: Annotated[
        str | None, option("default: the methods and a hash of the settings that affect the scores", "STUDY")
    ] = None
    out: Annotated[str | None, option(f"folder for studies; default: {RUNS}", "FOLDER")] = None
    storage: Annotated[str | None, option(_STORAGE, "PATH_OR_URI")] = None
    tracking_uri: Annotated[str | None, option(TRACKING_HELP, "URI|none")] = None
    register: Annotated[bool, option("register the plan's hash in MLflow before any trial")] = False
    driver: Annotated[Literal["ray", "local"] | None, option(_DRIVER)] = None
    address: Annotated[str | None, option(_ADDRESS, "auto|local|ray://HOST:PORT")] = field(
        default_factory=read_cluster_address
    )
    gpus_per_trial: Annotated[NotNegative | None, option(_GPUS, "X")] = None
    cpus_per_trial: Annotated[Positive | None, option("CPUs per trial; default: 1", "X")] = None
    max_gpu_hours: Annotated[NotNegative | None, option(_MAX_GPU_HOURS, "X")] = None
    max_failures: Annotated[Count, option("retries per trial after machine faults; default: %(default)d", "N")] = 3
    retry_failed: Annotated[bool, option("run all failed trials again")] = False
    max_idle_hours: Annotated[Positive, option(_IDLE, "X")] = IDLE_HOURS
    max_minutes: Annotated[Positive | None, option("stop after X minutes; the same command continues", "X")] = None
    then: Annotated[str | None, option(_THEN, "COMMAND")] = None
    dry_run: Annotated[bool, option("print what would run, and stop")] = False
    probe: Annotated[bool, option("with --dry-run: estimate the time from a few steps")] = False
    explain: Annotated[str | None, option("with --dry-run: print the source of each value", "METHOD/TASK")] = None
    departures: Annotated[bool, option("with --dry-run: list the differences from the papers")] = False
    assume_spread: Annotated[list[str], option(_ASSUME_SPREAD, "[TASK=]POINTS")] = []
    toml: Annotated[bool, option("with --dry-run: print the plan as TOML, for --plan")] = False
    json: Annotated[bool, option("print the result as JSON")] = False

    @property
    def execution(self) -> Execution:
        """How and where the trials run; options that are not given have their defaults."""
        return Execution(
            driver=self.driver or default_driver(),
            address=self.address,
            tracking_uri=self.tracking_uri and make_tracking_absolute(self.tracking_uri),
            gpus_per_trial=self.gpus_per_trial,
            cpus_per_trial=self.cpus_per_trial or 1.0,
        )


def keep_execution(options: LaunchOptions, last: Execution) -> LaunchOptions:
    """Take what the options leave out from `last`, the execution of the study's last launch.

    `--driver local`, `--address local` and a RAY_ADDRESS of `local` mean this machine instead of the last cluster.
    """
    kept = {name: value for name, value in to_plain(last).items() if getattr(options, name) is None}
    is_here = options.driver == "local" or THIS_MACHINE in (options.address, os.environ.get("RAY_ADDRESS"))
    for name in ["address"] * is_here + ["driver"] * (options.address is not None):
        kept.pop(name, None)
    return replace(options, **kept)


def list_execution_options(execution: Execution, *, beside: Execution) -> list[str]:
    """List the options that set what an execution has, and another has not, such as `--driver local`."""
    values = {name: value for name, value in to_plain(execution).items() if value != getattr(beside, name)}
    return [
        f"--{name.replace('_', '-')} {shlex.quote(masked(f'{value:g}' if isinstance(value, float) else value))}"
        for name, value in values.items()
        if value is not None
    ]


def check_options(options: LaunchOptions) -> None:
    """Check that the options can be combined and that this machine can run them.

    Raises:
        ValueError: if two options contradict each other, or this machine lacks a required resource.
    """
    for name in ("probe", "explain", "departures", "assume_spread", "toml"):
        if getattr(options, name) and not options.dry_run:
            raise ValueError(f"--{name.replace('_', '-')} requires --dry-run")
    for name, least in {"samples": 1, "seeds": 2}.items() if options.compare else ():
        if (number := getattr(options, name)) is not None and number < least:
            raise ValueError(f"--{name} is {number}; allowed with --compare methods: {least} or more")
    check_not_shadowed(*PACKAGES, path=[str(Path.cwd()), *sys.path])  # the module path of the launch's child processes
    forms = [f"--{name}" for name in ("explain", "toml", "json") if getattr(options, name)]
    if len(forms) > 1:
        raise ValueError(f"{' and '.join(forms)} print different outputs; allowed: one of them")
    if options.assume_spread and forms:
        raise ValueError(f"--assume-spread predicts power, which {forms[0]} does not print; leave out one of the two")
    if options.probe and (options.toml or options.explain):
        raise ValueError(f"--probe measures costs, which {forms[0]} does not print; leave out one of the two options")
    if options.departures and (options.toml or options.explain):
        raise ValueError(
            f"--departures lists the differences of the whole plan, which {forms[0]} does not print; leave out one of "
            "the two options"
        )
    if options.then is not None:
        split_command(options.then)
    _check_machine(options)
    _check_places(options)


def split_command(command: str) -> list[str]:
    """Split the command of --then into its words, without a shell. Errors leave out its arguments, which may be secret.

    Raises:
        ValueError: if the command has an open quote, or its program does not exist.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--then is not a command: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise ValueError(
            f"--then: there is no program {words[0] if words else ''!r}; allowed: a program and its arguments, or "
            "sh -c '...' for a line of the shell"
        )
    return words


def _check_machine(options: LaunchOptions) -> None:
    """Raise ValueError if the options ask for packages, GPUs or processors that this machine lacks."""
    is_local = options.address is None
    if options.address is not None:
        check_address(options.address)
        require_package("ray", named(options.address))
    if options.driver == "local" and options.address is not None:
        raise ValueError(f"{named(options.address)} is a Ray cluster, but --driver is local; leave one of them out")
    if options.driver == "ray" and not is_installed("ray"):
        raise ValueError("--driver is ray, but Ray is not installed; allowed: local")
    gpus = options.gpus_per_trial
    if gpus is not None and gpus > 1:
        raise ValueError(
            f"--gpus-per-trial is {gpus:g}; allowed: at most 1, because a trial computes on one GPU; a fraction such "
            "as 0.25 lets trials share a GPU"
        )
    if is_local:
        cores = count_cores()
        for unit, value, most in (("GPU", gpus, count_local_gpus()), ("CPU", options.cpus_per_trial, cores)):
            if value is not None and not value <= most:
                raise ValueError(
                    f"--{unit.lower()}s-per-trial is {value:g}, but this machine has {counted(most, unit)}"
                )
    if options.max_gpu_hours is not None and is_local and not count_local_gpus():
        raise ValueError(
            f"--max-gpu-hours is {options.max_gpu_hours:g}, but this machine has no GPU; leave out --max-gpu-hours"
        )
    if gpus is not None:
        check_gpu_limit(options.max_gpu_hours, gpus=gpus)


def check_gpu_limit(max_gpu_hours: float | None, *, gpus: float) -> None:
    """Raise ValueError if GPU time has a limit, but trials get no GPU; `gpus` is the number of GPUs per trial."""
    if max_gpu_hours is not None and not gpus:
        raise ValueError(
            f"--max-gpu-hours is {max_gpu_hours:g}, but the trials get no GPU, so it would never stop them; allowed: "
            "--gpus-per-trial above 0, on nodes with GPUs, or no --max-gpu-hours"
        )


def _check_places(options: LaunchOptions) -> None:
    """Raise ValueError if --name, --out, --storage or --tracking-uri is invalid or not usable.

    The value of --name becomes a folder name. It must be short, without `?` and `%`, which MLflow cannot handle.
    """
    if (name := options.name) is not None:
        if Path(name).name != name or name in ("", "..") or not name.isprintable() or {*"?%"} & {*name}:
            raise ValueError(f"--name is {name!r}; allowed: the name of one folder, without /, ? and %")
        if (size := len(os.fsencode(name))) > MOST_BYTES:
            raise ValueError(f"--name {name[:20]!r}... has {size} bytes; allowed: at most {MOST_BYTES} bytes")
    if options.out is not None:
        check_folder("--out", Path(options.out))
    if options.storage and not is_uri(resolve_storage_address(options.storage)):
        check_folder("--storage", Path(options.storage))
    if options.register and options.tracking_uri in (None, "none"):
        raise ValueError("--register needs an MLflow store outside the study's folder; add --tracking-uri URI")
    if options.tracking_uri not in (None, "none"):
        check_tracking_address(options.tracking_uri)


def suggest_launch_option(flag: str, value: str, flags: Collection[str]) -> str:
    """Return the line of a plan file or the option that `flag` of other programs or this project means, else ""."""
    if (name := flag.lstrip("-").replace("-", "_")) in LINES_OF_PLAN_FILE:
        return f"; {flag} is a line of the --plan file now: {name} = {json.dumps(read_value(value))}"
    return suggest_method_option(flag, value, flags)
