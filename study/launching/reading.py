"""Make a plan from the options of `study.launch`, a profile, and a plan file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

import trainables
from search_spaces import resolve_method
from study.cluster.resources import count_local_gpus
from study.decisions.winners import read_winners
from study.facts.plan_file import include_folder, read_toml
from study.facts.study_facts import read_facts
from study.launching.options import (
    COMPARING_METHODS,
    THIS_MACHINE,
    LaunchOptions,
    keep_execution,
    list_execution_options,
)
from study.plans import profiles
from study.plans.plan import LINES_OF_PLAN_FILE, MOST_REPEATS, EarlyStopping, Plan
from study.plans.samplers import read_select_by, resolve_sampler
from study.plans.settings import (
    FORMS,
    Setting,
    format_option,
    is_searched,
    list_scopes,
    merge_settings,
    override_settings,
    read_searched,
    split_key,
)
from study.plans.sweeps import list_value_variants
from study.terminal.command_line import add_once, read_pair, read_setting
from study.terminal.text import counted, print_lines
from trainables import VARIANT, base_method, find_varied_field
from trainables.configuration.ranges import Choices, Interval
from trainables.configuration.schema import Value, from_plain
from trainables.configuration.spelling import is_same_name, resolve_name
from trainables.data import glue
from trainables.data.tasks import GLUE_TASKS, trainable_tasks
from trainables.encoders import backbone_names
from trainables.files import method_files


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
        trainables.include(method_files.join_folders(options.include), named="--include")
    elif not (folder := base.include):
        method_files.include(None)
    elif options.plan and (earlier is None or folder != earlier.include):
        trainables.include(folder, named=f"--plan {options.plan}: include =")
        base = replace(base, include=method_files.join_absolute([folder]))
    else:
        include_folder(base.methods, folder)
    names = [name for name in Plan.__struct_fields__ if name not in ("profile", "epochs", "settings")]
    typed = {name: value for name in names if (value := getattr(options, name, None)) not in (None, [])}
    values = read_comparing(options.compare) | typed
    if options.vary:
        values["methods"] = [*(options.methods or []), *(name for text in options.vary for name in _read_vary(text))]
        is_asked = {"samples", "search_only"} & values.keys() or options.search
        is_searched_too = is_asked or _asks_for_search(options, base)
        values |= {} if is_searched_too or earlier is not None else {"samples": 0}
    name_readers: dict[str, Callable[[Any], object]] = {
        "methods": lambda texts: _resolve_names(texts, profiles.list_methods(base.profile), _resolve_method),
        "tasks": lambda texts: _resolve_names(texts, profiles.list_tasks(), _resolve_task),
        "sampler": resolve_sampler,
        "baseline": resolve_method,
        "data": glue.make_absolute,
        "backbone": backbone_names.make_absolute,
        "tokenizer": backbone_names.make_absolute,
    }
    if options.plan:
        base = _resolve_file_names(base, options.plan, name_readers)
    readers = name_readers | {
        "include": method_files.join_absolute,
        "select_by": read_select_by,
        "early_stopping": _read_early_stopping,
        "search_only": lambda texts: _resolve_names(texts, (), str),
    }
    changes = {name: readers[name](value) if name in readers else value for name, value in values.items()}
    is_cut = options.plan is not None and earlier is None
    kept_settings = _keep_named_arms(base, changes) if is_cut else base.settings
    settings = settings_from(options)
    changes["settings"] = override_settings(kept_settings, settings)
    plan = replace(base, **{name: value for name, value in changes.items() if name != "start_from"})
    if plan.backbone is None and plan.profile in profiles.NEED_BACKBONE:
        raise ValueError(
            f"--profile {plan.profile} names no backbone; add --backbone with a folder that study.pretrain wrote, or "
            "with a hub name such as nreimers/MiniLM-L6-H384-uncased"
        )
    _check_search_only(settings, plan)
    if options.search_only and plan.samples == 0:
        raise ValueError(
            f"--search-only {','.join(plan.search_only or ())} chooses what to tune, but --samples 0 searches nothing; "
            "leave out one of the two options"
        )
    whole = plan if earlier is None else plan.extend(earlier)  # the study after this launch
    if options.start_from:
        kept = {} if earlier is None else earlier.start_from
        plan = replace(plan, start_from={**kept, **_read_starts(options.start_from, whole)})
    if options.first_from:
        if plan.samples == 0:
            raise ValueError(
                "--first-from chooses the first trials of searches, but --samples 0 searches nothing; leave out one "
                "of the two options"
            )
        plan = replace(plan, first={**(base.first or {}), **read_winners(Path(options.first_from), plan)})
    if options.data is not None and whole.tasks and not {*GLUE_TASKS} & {*whole.tasks}:
        raise ValueError(
            f"--data chooses the data of GLUE tasks, but the study only has {', '.join(whole.tasks)}; leave out --data"
        )
    return plan, origin


def _asks_for_search(options: LaunchOptions, plan: Plan) -> bool:
    """Check if a --plan file says more of a search than its profile."""
    profile = profiles.load_profile(plan.profile)
    ranges = [key for key, setting in plan.settings.items() if is_searched(setting) and key not in profile.settings]
    return options.plan is not None and bool(plan.samples != profile.samples or plan.search_only or ranges)


def _keep_named_arms(plan: Plan, changes: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the settings of a plan, except those of methods and tasks that --method or --task leaves out."""
    methods = changes.get("methods", plan.methods)
    kept = {scope for method in methods for scope in list_scopes(method)}
    left_out = {scope for method in plan.methods for scope in list_scopes(method)} - kept
    left_out |= {*plan.tasks} - {*changes.get("tasks", plan.tasks)}
    # Values of a method that is left out itself keep its settings, but for those of the field that they vary.
    varied = {(base_method(name), find_varied_field(name)) for name in {*methods} if base_method(name) not in methods}
    varied = {(method, field) for method, field in varied if method in plan.methods}

    def is_kept(key: str) -> bool:
        scope, field = split_key(key)
        parts = scope.split("/")
        return not left_out & {*parts} and (parts[0], field) not in varied

    return {key: setting for key, setting in plan.settings.items() if is_kept(key)}


def _read_vary(text: str) -> list[str]:
    """Read a value of --vary: the variants of a method with the values of one field, such as `palbert:beta=0.1`."""
    form = "METHOD:FIELD=A,B,C"
    key, values = read_pair("--vary", text, form)
    method, field = split_key(key)
    if not method or "/" in method or VARIANT in method:
        raise ValueError(f"--vary {text}: {method or 'no method'} before the field; allowed: {form}")
    try:
        return list_value_variants(method, field, values.split(","))
    except ValueError as error:
        raise ValueError(f"--vary {text}: {error}") from None


def read_comparing(compare: str | None) -> dict[str, object]:
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


def settings_from(options: LaunchOptions) -> dict[str, Setting]:
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
    settings = settings_from(replace(options, epochs=None))
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
        return profiles.load_profile(profile), f"profile {profile}"
    if gpus := count_local_gpus():
        return profiles.load_profile("paper"), f"profile paper, because this machine has {counted(gpus, 'GPU')}"
    return profiles.load_profile("mini"), "profile mini, because this machine has no GPU"


def _resolve_file_names(plan: Plan, file: str, readers: Mapping[str, Callable[[Any], object]]) -> Plan:
    """Spell the methods, tasks, sampler, rule of selection, arms and scopes of a plan in the standard way."""
    changes = dict[str, object]()
    all_readers: dict[str, Callable[[Any], object]] = {
        **readers,
        "select_by": read_select_by,
        "start_from": _spell_starts,
    }
    for name, read in all_readers.items():
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


def _spell_starts(starts: Mapping[str, str]) -> dict[str, str]:
    """Return the lines of the table `start_from` of a plan file in standard spelling."""
    spelled = dict[str, str]()
    for arm, source in starts.items():
        add_once(spelled, _resolve_arm_or_task(arm), _resolve_arm_or_task(source), "start_from")
    return spelled


def _resolve_arm_or_task(name: str) -> str:
    method, slash, task = name.rpartition("/")
    return f"{resolve_method(method) if slash else ''}{slash}{_resolve_task(task)}"


def complete_execution(options: LaunchOptions) -> LaunchOptions:
    """Let --continue run the trials as the study's last launch did, apart from the options that are given.

    Print the options that are kept.
    """
    last = read_facts(Path(options.continue_study)).last_launch if options.continue_study else None
    if last is not None and last.began.execution is not None:
        given, options = options.execution, keep_execution(options, last.began.execution)
        if kept := list_execution_options(options.execution, beside=given):
            print_lines([f"as in the last launch: {', '.join(kept)}"], sys.stderr)
    return replace(options, address=None) if options.address == THIS_MACHINE else options
