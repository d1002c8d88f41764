"""Declare the options of `study.launch`, check them, and make a plan from them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, field
from msgspec.structs import replace

import trainables
from search_spaces import resolve_method
from study.cluster.resources import count_local_gpus
from study.decisions.winners import read_winners
from study.drivers.driver import IDLE_HOURS
from study.facts.events import Execution
from study.facts.plan_file import INCLUDE, include_folder, read_toml
from study.plans import profiles
from study.plans.names_elsewhere import LINES_OF_PLAN_FILE
from study.plans.plan import MOST_REPEATS, EarlyStopping, Plan
from study.plans.ranges import (
    FORMS,
    Setting,
    format_option,
    is_searched,
    merge_settings,
    override_settings,
    read_searched,
    split_key,
)
from study.plans.samplers import FORM, SAMPLERS, SELECT_FORMS, read_select_by, resolve_sampler
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
from study.terminal.command_line import add_once, option, read_pair, read_setting
from study.terminal.processes import PACKAGES, check_not_shadowed, is_installed
from study.terminal.text import counted, masked
from trainables import base_method
from trainables.configuration import AtLeastOne, Count, NotNegative, Positive
from trainables.configuration.ranges import Choices, Interval
from trainables.configuration.schema import Typed, Value, from_plain, to_plain
from trainables.configuration.spelling import is_same_name, resolve_name
from trainables.data.tasks import TRAINABLE_TASKS, trainable_tasks
from trainables.files import method_files
from trainables.runs.trial import Selection

DESCRIPTION = """Tune each method on each task, repeat the best configuration with new seeds, and write the table of
medians: `python -m study.launch --method albert,palbert --task rte`. After an interruption, the same command resumes
the study. The same command with more methods, tasks, samples or seeds extends the study."""
EPILOG = """The exit status is 0 if the study is complete, 1 if trials are missing or failed, and 2 if the options are
invalid. After Ctrl-C, each running trial completes its current epoch and saves it; then the launch ends. After a second
Ctrl-C, the launch ends at once. docs/coming_from.md translates the options of the papers' repositories, and
docs/glossary.md explains the terms."""

THIS_MACHINE = "local"  # as --address or RAY_ADDRESS
OUT = "runs"  # the default folder of studies
MOST_BYTES = 200  # limit for a study's name: file names have at most 255 bytes, and some add a suffix to it


def _list_defaults(field: Literal["methods", "tasks"]) -> str:
    """List the default methods or tasks of three profiles: `mini = palbert; small = ...; paper = ...`."""
    names = ("mini", "small", "paper")
    return "; ".join(f"{name} = {', '.join(getattr(profiles.load(name), field))}" for name in names)


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
_ADDRESS = "Ray cluster to run trials on, or local: this machine; default: $RAY_ADDRESS"
_ASSUME_SPREAD = (
    "with --dry-run: standard deviation of scores over seeds, from which the power is predicted; default: the study's, "
    "or that of kept studies"
)
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
    include: Annotated[str | None, option(INCLUDE, "FOLDER")] = None
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
    start_from: Annotated[list[str], option(_START_FROM, "ARM=ARM")] = []
    first_from: Annotated[str | None, option("try the best configurations of another study first", "runs/OTHER")] = None
    compare: Annotated[str | None, option(_COMPARE, "methods|methods:R")] = None
    baseline: Annotated[str | None, option("method that the others are tested against", "NAME")] = None
    name: Annotated[
        str | None, option("default: the methods and a hash of the settings that affect the scores", "STUDY")
    ] = None
    out: Annotated[str | None, option(f"folder for studies; default: {OUT}", "FOLDER")] = None
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
    _check_machine(options)
    _check_places(options)


def _check_machine(options: LaunchOptions) -> None:
    """Raise ValueError if the options ask for packages, GPUs or processors that this machine lacks."""
    is_local = options.address is None
    if options.address is not None:
        check_address(options.address)
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
        cores = len(os.sched_getaffinity(0))
        for unit, value, most in (("GPU", gpus, count_local_gpus()), ("CPU", options.cpus_per_trial, cores)):
            if value is not None and not value <= most:
                raise ValueError(
                    f"--{unit.lower()}s-per-trial is {value:g}, but this machine has {counted(most, unit)}"
                )
    if options.max_gpu_hours is not None and is_local and not count_local_gpus():
        raise ValueError(
            f"--max-gpu-hours is {options.max_gpu_hours:g}, but this machine has no GPU; leave out --max-gpu-hours"
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


def plan_from(options: LaunchOptions, earlier: Plan | None = None) -> tuple[Plan, str]:
    """Build the plan from a profile or the study that --continue names, the lines of a --plan file, and the options.

    Later sources override earlier ones.

    Args:
        earlier: the plan of the study that --continue names.

    Returns:
        The plan and its origin, such as `profile mini`, `plan FILE` or `continued`.

    Raises:
        ValueError: if an option is invalid, or sets a value that --continue determines.
    """
    base, origin = _read_base(options, earlier)
    if options.include:
        trainables.include(options.include, named="--include")
    elif not (folder := base.include):
        method_files.include(None)
    elif options.plan and (earlier is None or folder != earlier.include):
        trainables.include(folder, named=f"--plan {options.plan}: include =")
        base = replace(base, include=str(Path(folder).resolve()))
    else:
        include_folder(base.methods, folder)
    names = [name for name in Plan.__struct_fields__ if name not in ("profile", "epochs", "settings")]
    typed = {name: value for name in names if (value := getattr(options, name, None)) not in (None, [])}
    values = _read_comparing(options.compare) | typed
    name_readers: dict[str, Callable[[Any], object]] = {
        "methods": lambda texts: _resolve_names(texts, profiles.list_methods(base.profile), _resolve_method),
        "tasks": lambda texts: _resolve_names(texts, profiles.list_tasks(), _resolve_task),
        "sampler": resolve_sampler,
        "baseline": resolve_method,
    }
    if options.plan:
        base = _resolve_file_names(base, options.plan, name_readers)
    readers = name_readers | {
        "include": lambda folder: str(Path(folder).resolve()),
        "select_by": read_select_by,
        "early_stopping": _read_early_stopping,
        "search_only": lambda texts: _resolve_names(texts, (), str),
    }
    changes = {name: readers[name](value) if name in readers else value for name, value in values.items()}
    is_cut = options.plan is not None and earlier is None
    kept_settings = _keep_named_arms(base, changes) if is_cut else base.settings
    settings = read_settings(options)
    changes["settings"] = override_settings(kept_settings, settings)
    plan = replace(base, **{name: value for name, value in changes.items() if name != "start_from"})
    if plan.backbone is None and plan.profile in profiles.NEED_BACKBONE:
        raise ValueError(
            f"--profile {plan.profile} names no backbone; add --backbone with a folder that study.pretrain wrote, or "
            "with a hub name such as nreimers/MiniLM-L6-H384-uncased"
        )
    _check_search_only(settings, plan)
    if options.start_from:
        plan = replace(plan, start_from=_read_starts(options.start_from, plan))
    if options.first_from:
        if plan.samples == 0:
            raise ValueError(
                "--first-from chooses the first trials of searches, but --samples 0 searches nothing; leave out one "
                "of the two options"
            )
        plan = replace(plan, first={**(base.first or {}), **read_winners(Path(options.first_from), plan)})
    if options.data is not None and plan.tasks and not {*TRAINABLE_TASKS} & {*plan.tasks}:
        raise ValueError(
            f"--data chooses the data of GLUE tasks, but the study only has {', '.join(plan.tasks)}; leave out --data"
        )
    return plan, origin


def _keep_named_arms(plan: Plan, changes: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the settings of a plan, except those of methods and tasks that --method or --task leaves out."""
    left_out = {*plan.methods} - {*changes.get("methods", plan.methods)}
    left_out |= {*plan.tasks} - {*changes.get("tasks", plan.tasks)}
    return {key: setting for key, setting in plan.settings.items() if not left_out & {*split_key(key)[0].split("/")}}


def _read_comparing(compare: str | None) -> dict[str, object]:
    """Return the fields of a plan that --compare sets."""
    if compare is None:
        return {}
    preset, _, repeats = compare.partition(":")
    allowed = range(2, MOST_REPEATS + 1)
    if preset != "methods" or (compare != preset and repeats not in map(str, allowed)):
        raise ValueError(f"--compare is {compare!r}; allowed: methods, methods:2 to methods:{MOST_REPEATS}")
    return {**COMPARING_METHODS, **({"search_repeats": int(repeats)} if repeats else {})}


def _read_early_stopping(text: str) -> EarlyStopping | None:
    rule, colon, fields = text.partition(":")
    if text == "none":
        return None
    if rule != "asha" or (colon and not fields):
        raise ValueError(f"--early-stopping is {text!r}; allowed: none, asha, asha:grace=1,factor=3")
    values = dict[str, Value]()
    for pair in filter(None, fields.split(",")):
        add_once(values, *read_setting(pair, "a field of --early-stopping"), "--early-stopping asha:")
    return from_plain(EarlyStopping, values, where=f"--early-stopping {text}")


def read_settings(options: LaunchOptions) -> dict[str, Setting]:
    """Return the settings that the options give: fixed values (--set, --epochs) and ranges (--search).

    A key is `FIELD` or `SCOPE:FIELD`.

    Raises:
        ValueError: if an option is malformed, or a field is given twice.
    """
    fixed, searched = dict[str, Value](), dict[str, Choices | Interval]()
    epochs = [] if options.epochs is None else [f"epochs={options.epochs}"]
    for text in [*(f"--set {text}" for text in options.settings), *(f"--search {text}" for text in options.search)]:
        if epochs and text.partition(" ")[2].startswith("epochs="):
            raise ValueError(f"--epochs {options.epochs} and {text} both give epochs; allowed: only one of the two")
    for text in [*epochs, *options.settings]:
        key, value = read_setting(text, "--set", "[SCOPE:]FIELD=VALUE")
        if isinstance(value, str) and ("," in value or ".." in value):
            raise ValueError(
                f"--set {text} has more than one value; allowed: one value; for a range or choices: --search {text}"
            )
        add_once(fixed, _spell_key(key, f"--set {key}"), value, "--set")
    for text in options.search:
        key, ranged = read_pair("--search", text, f"[SCOPE:]FIELD={FORMS}")
        try:
            add_once(searched, _spell_key(key, f"--search {key}"), read_searched(ranged), "--search")
        except ValueError as error:
            fault = str(error).removeprefix(f"--search {key}: ").removeprefix(f"{ranged}: ")
            raise ValueError(f"--search {text}: {fault}") from None
    return merge_settings(fixed, searched)


def _check_search_only(settings: Mapping[str, Setting], plan: Plan) -> None:
    """Raise ValueError if a --search or --set contradicts --search-only or --samples 0."""
    ranges = [key for key, setting in settings.items() if is_searched(setting)]
    if ranges and plan.samples == 0:
        raise ValueError(
            f"--search {ranges[0]} gives a range, but --samples 0 searches nothing; leave out one of the two options"
        )
    if plan.search_only is UNSET:
        return
    only = ",".join(plan.search_only)
    for key, setting in settings.items():
        field = split_key(key)[1]
        if is_searched(setting) and field not in plan.search_only:
            raise ValueError(
                f"--search {key} tunes a field that --search-only {only} excludes; allowed: --search-only "
                f"{only},{field}"
            )
        if key in plan.search_only and not is_searched(setting):
            raise ValueError(
                f"--set {key} fixes a field that --search-only {only} tunes; allowed: only one of the two options"
            )


def trace_settings(options: LaunchOptions, plan: Plan) -> dict[str, str]:
    """Return the origin of each setting that is not from --set or --search, and of fields that no option sets.

    For example, `--set beta` maps to `--plan FILE: beta`.
    """
    settings = read_settings(replace(options, epochs=None))
    short_forms = {} if options.epochs is None else {"epochs": "--epochs"}
    file = f"--plan {options.plan}" if options.plan else f"--continue {options.continue_study}"
    return {f"--{name.replace('_', '-')}": f"{file}: {name}" for name in LINES_OF_PLAN_FILE} | {
        format_option(key, setting): short_forms.get(key, f"{file}: {key}")
        for key, setting in plan.settings.items()
        if key not in settings
    }


def _spell_key(key: str, option: str) -> str:
    """Return a setting's key with its method and task in standard spelling, such as `palbert/rte:epochs`."""
    scope, field = split_key(key)
    if not scope:
        return field
    method, slash, task = scope.partition("/")
    try:
        return f"{resolve_method(method)}{slash}{_resolve_task(task) if slash else ''}:{field}"
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def _read_base(options: LaunchOptions, earlier: Plan | None) -> tuple[Plan, str]:
    if earlier is not None:
        for name in ("profile", "name", "out"):
            if (value := getattr(options, name)) is not None:
                flag = f"--continue {options.continue_study}"
                raise ValueError(f"--{name} is {value}, but {flag} already determines it; leave --{name} out")
    if options.plan is not None:
        plan = read_toml(Path(options.plan), partial(_choose_base, options, earlier))
        return plan, f"plan {options.plan}"
    return (earlier, "continued") if earlier is not None else _choose_profile(options.profile)


def _choose_base(options: LaunchOptions, earlier: Plan | None, profile: str | None) -> Plan:
    """Return the plan that the lines of the --plan file override.

    Args:
        profile: the profile that the file names, if it names one.

    Raises:
        ValueError: if the file names another profile than --profile or the continued study.
    """
    base = earlier or _choose_profile(options.profile or profile)[0]
    if profile is not None and profile != base.profile:
        other = f"--continue {options.continue_study}" if earlier else f"--profile {options.profile}"
        raise ValueError(f"profile is {profile}, but {other} means {base.profile}; leave one of them out")
    return base


def _choose_profile(name: str | None) -> tuple[Plan, str]:
    profile = resolve_name(name or "auto", ["auto", *profiles.list_profiles()], what="profile")
    if profile != "auto":
        return profiles.load(profile), f"profile {profile}"
    if gpus := count_local_gpus():
        return profiles.load("paper"), f"profile paper, because this machine has {counted(gpus, 'GPU')}"
    return profiles.load("mini"), "profile mini, because this machine has no GPU"


def _resolve_file_names(plan: Plan, file: str, readers: Mapping[str, Callable[[Any], object]]) -> Plan:
    """Spell the methods, tasks, sampler and scopes of a plan in the standard way."""
    changes = dict[str, object]()
    for name, read in readers.items():
        try:
            changes[name] = (value := getattr(plan, name)) and read(value)
        except ValueError as error:
            raise ValueError(f"--plan {file}: {name}: {error}") from None
    tables = {key: "search" if is_searched(setting) else "set" for key, setting in plan.settings.items()}
    settings = {_spell_key(key, f"--plan {file}: [{tables[key]}] {key}"): value for key, value in plan.settings.items()}
    return replace(plan, **changes, settings=settings)


def _resolve_names(texts: Sequence[str], menu: Sequence[str], resolve: Callable[[str], str]) -> tuple[str, ...]:
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(each for name in names for each in (menu if name == "all" else [resolve(name)])))


def _resolve_method(name: str) -> str:
    try:
        return resolve_method(name)
    except ValueError as error:
        is_known = any(is_same_name(base_method(name), known) for known in method_files.names())
        if not is_known and method_files.included() is None:
            raise ValueError(f"{error} (a method of your own needs --include FOLDER)") from None
        raise


def _resolve_task(name: str) -> str:
    try:
        return resolve_name(name, trainable_tasks(), what="task")
    except ValueError as error:
        advice = "" if method_files.included() else " (a task of your own needs --include FOLDER)"
        raise ValueError(f"{error}{advice}") from None


def _read_starts(texts: list[str], plan: Plan) -> dict[str, str]:
    """Read the values of --start-from: `RTE=MNLI` gives {"rte": "mnli"}; either side may be METHOD/TASK."""
    starts = dict[str, str]()
    for text in texts:
        pair = read_pair("--start-from", text, "ARM=ARM")
        try:
            arm, source = map(_resolve_arm_or_task, pair)
        except ValueError as error:
            raise ValueError(f"--start-from {text}: {error}") from None
        method, _, task = arm.rpartition("/")
        if task not in plan.tasks or method not in ("", *plan.methods):
            raise ValueError(
                f"--start-from {text}: {arm} is not studied; allowed: {', '.join(plan.tasks)} or METHOD/TASK"
            )
        add_once(starts, arm, source, "--start-from")
    return starts


def _resolve_arm_or_task(name: str) -> str:
    method, slash, task = name.rpartition("/")
    return f"{resolve_method(method) if slash else ''}{slash}{_resolve_task(task)}"
