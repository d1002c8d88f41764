"""The files of a plan: `plan.json` of a study, the TOML file of --plan, and the folder of --include.

`compare_plans` lists the forbidden changes to the plan of an existing study.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import trainables
from study.facts import events
from study.facts.provenance import Provenance
from study.plans import profiles
from study.plans.plan import Plan
from study.plans.resolved_plan import Arm, ResolvedPlan, digest
from study.plans.settings import NONE, find_keys, format_toml, override_settings, read_tables, split_key
from study.plans.sweeps import add_vary_table
from study.terminal.text import list_first
from trainables import base_method
from trainables.configuration import Count, TrainingConfig
from trainables.configuration.ranges import Choices, Interval, format_searched
from trainables.configuration.schema import Typed, Value, from_plain, to_plain
from trainables.configuration.spelling import suggest_nearest
from trainables.data.glue import classify_data, fingerprint
from trainables.data.tasks import TASKS
from trainables.files import method_files
from trainables.files.atomic_files import write_json

FILE = "plan.json"
_NAMED = ("data", "backbone", "tokenizer")  # fields whose errors quote their value
TABLES = ("set", "search")  # TOML tables of a plan's settings
VARY = "vary"  # TOML table of values that are studied as methods
MOST_NAMED = 5  # arms in a message
INCLUDE = (
    "folder with your own methods (NAME.py and NAME_space.py) and tasks (NAME/task.toml with its files); the study "
    "remembers the folder"
)
INCLUDE_NOW = "folder where your own methods are now, if it was moved"


class PlanFile(Typed, frozen=True, kw_only=True):
    """The content of `plan.json`: the plan, and facts about the launch that wrote the file."""

    format: Count = events.FIRST_FORMAT
    name: str  # name of the study
    created: str  # UTC, ISO 8601
    command: str
    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str
    protocol_hash: str
    plan: ResolvedPlan

    @classmethod
    def build(
        cls, folder: Path, plan: ResolvedPlan, code: Provenance | events.LaunchBegan, *, created: str, command: str
    ) -> PlanFile:
        """Build the file's content for a launch; `created` is the time of the study's first launch."""
        return cls(
            format=events.FORMAT,
            name=folder.resolve().name,  # also of `.`
            created=created,
            command=command,
            versions=code.versions,
            git_commit=code.git_commit,
            code_digest=code.code_digest,
            protocol_hash=plan.protocol_hash,
            plan=plan,
        )


def read_plan(folder: Path) -> PlanFile | None:
    """Read the plan of a study folder; None if `plan.json` is missing.

    Raises:
        ValueError: the file cannot be read, is not a plan, was edited, or has an unsupported format.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text())
        number = content.get("format", events.FIRST_FORMAT)
        if isinstance(number, int):  # checked before the digest, which another format may compute differently
            events.check_format(number, where=str(path))
        written = content.pop("digest")
    except FileNotFoundError:
        return None
    except OSError as error:  # such as a file in place of the folder, or a folder in place of the file
        raise ValueError(f"{path} cannot be read: {error.strerror}; allowed: the folder of a study") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is not a plan: {fault}; {_describe_repair(folder)}") from None
    if digest(content) != written:
        fault = f"the digest in the file is {written}, but the digest of the content is {digest(content)}"
        raise ValueError(f"{path} was edited: {fault}; {_describe_repair(folder)}")
    if isinstance(number, int) and number != events.FORMAT:
        content["plan"] = events.migrate_plan(content["plan"], number)
    try:
        return _register_tasks(from_plain(PlanFile, content, where=str(path)))
    except ValueError as error:  # the digest matches, so the file was not edited
        raise ValueError(f"{error}; another version of glue-exit-study wrote the file") from None


def _describe_repair(folder: Path) -> str:
    """Explain how to restore an invalid `plan.json`."""
    try:
        lost = _read_journal(folder)
    except ValueError:
        lost = None
    return "delete the file, then repeat the launch of this study" + (f": {lost.command}" if lost else "")


def find_data(folder: Path, plan: ResolvedPlan, task: str, *, recorded: str) -> str:
    """Find the data of a study, as `--data` names them, after its launch.

    A folder is looked for at its path in the plan, and then where a trial read it. Its rows must be the study's.

    Args:
        recorded: path of the folder in the description of a trial's model; "" if no model is stored.

    Raises:
        ValueError: the folder is not there, or has other rows of the task.
    """
    data = plan.request.data
    if classify_data(data) != "folder" or TASKS[task].place:
        return data
    remedy = f"first run study.launch --continue {shlex.quote(str(folder))} --data with the current path"
    places = [place for place in (data, recorded) if place and Path(place).is_dir()]
    if not places:
        raise ValueError(describe_lost_folder("data", data, remedy=remedy))
    wanted = next((arm.data_fingerprint for arm in plan.arms if arm.task == task), None)
    if found := next((place for place in places if fingerprint(TASKS[task], place) == wanted), None):
        return found
    raise ValueError(f"{places[0]} has other rows of {task} than those of the study; {remedy}")


def describe_lost_folder(name: str, value: str, *, remedy: str) -> str:
    """Describe a folder that the plan's field `name` names but that is not there, as after a move."""
    plan = f"{name} is {value} in the plan of the study"
    if Path(value).is_absolute():
        return f"there is no folder {value}; {plan}; {remedy}"
    began = "relative to the folder where the study began; run the command there, or"
    return f"there is no folder {value} in {Path.cwd()}; {plan}, {began} {remedy}"


def write_plan(folder: Path, content: PlanFile) -> None:
    """Replace the `plan.json` of a study folder atomically."""
    plain = to_plain(content)
    write_json(folder / FILE, {**plain, "digest": digest(plain)})


def find_plan(folder: Path) -> PlanFile | None:
    """Read the plan of a study folder from `plan.json`, or else from the journal; None if neither has a plan.

    Raises:
        ValueError: the file is invalid or was edited, or the journal is damaged.
    """
    return read_plan(folder) or _read_journal(folder)


def require_plan(folder: Path) -> PlanFile:
    """Read the plan of a study folder from `plan.json`, never from the journal.

    Raises:
        ValueError: the file is missing, invalid or edited.
    """
    if file := read_plan(folder):
        return file
    if lost := _read_journal(folder):
        raise ValueError(
            f"{folder} has no {FILE}; to restore the file from the journal, repeat the launch: {lost.command}"
        )
    fault = f"{folder} has no {FILE}" if folder.is_dir() else f"there is no folder {folder}"
    raise ValueError(f"{fault}; allowed: the folder of a study")


def _read_journal(folder: Path) -> PlanFile | None:
    launches = [event for event in events.read_events(folder) if isinstance(event, events.LaunchBegan)]
    if not launches:
        return None
    created, last = launches[0].time, launches[-1]
    return _register_tasks(PlanFile.build(folder, last.plan, last, created=created, command=last.command))


def _register_tasks(file: PlanFile) -> PlanFile:
    """Register the plan's user-defined tasks, and return the file. Known names are not registered again."""
    for name, task in (file.plan.own_tasks or {}).items():
        TASKS.setdefault(name, task)
    return file


def format_plan(plan: Plan) -> str:
    """Format the plan as TOML.

    UNSET is omitted. None is written as `none`, but only if the profile has another value.
    """
    default = to_plain(profiles.load_profile(plan.profile))
    fields = {
        name: NONE if value is None else value
        for name, value in to_plain(plan).items()
        if name != "settings" and (value is not None or default.get(name) is not None)
    }
    return format_toml(fields, plan.settings)


def _load_profile(name: str | None) -> Plan:
    return profiles.load_profile(name or "mini")


def read_toml(path: Path, choose_base: Callable[[str | None], Plan] = _load_profile) -> Plan:
    """Read a plan from a TOML file, whose lines override the fields of a base.

    Args:
        choose_base: returns the base for the name of the file's profile, or for None if the file names no profile.

    Raises:
        ValueError: the file cannot be read, is not TOML, or has an unknown field or an invalid value.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise ValueError(
            f"--plan {path} cannot be read: {reason}; allowed: a TOML file, as --dry-run --toml prints it"
        ) from None
    try:
        return _from_tables(tables, choose_base)
    except ValueError as error:
        fault = str(error).removeprefix(": ").replace(" or null", ' or "none"').replace(" an object", " a table")
        raise ValueError(f"--plan {path}: {fault}") from None


def _from_tables(tables: Mapping[str, Any], choose_base: Callable[[str | None], Plan]) -> Plan:
    profile = tables.get("profile")
    if not isinstance(profile, str | None):
        raise ValueError(f"profile is {profile!r}; allowed: {', '.join(profiles.list_profiles())}")
    base = choose_base(profile)
    allowed = [*(name for name in Plan.__struct_fields__ if name not in ("epochs", "settings")), *TABLES, VARY]
    for name in tables:
        if name not in allowed:
            near = suggest_nearest(name, allowed)
            if name in TrainingConfig.__struct_fields__:
                near = f"; fields of methods belong in [set]: {name} = ..."
            raise ValueError(f"a plan has no field named {name}; available: {', '.join(allowed)}{near}")
    fields = {name: None if value == NONE else value for name, value in tables.items() if name not in (*TABLES, VARY)}
    if VARY in tables:
        fields = add_vary_table(fields, tables[VARY], is_searched="search" in tables)
    plan = from_plain(Plan, {**to_plain(base), **fields}, where="")
    return replace(plan, settings=override_settings(base.settings, read_tables(tables)))


def blame_plan_file(fault: str, plan: Plan, *, path: str, typed: Collection[str]) -> str:
    """If the invalid value comes from the --plan file, name this file and the key in the error message.

    Args:
        fault: the error message: `--set KEY: ...`, `--search KEY is ...`, `METHOD: FIELD is ...`, `--seeds ...`.
        typed: plan fields and setting keys that the user gave on the command line.
    """
    methods = "|".join(map(re.escape, sorted(plan.methods, key=len, reverse=True)))
    if option := re.match(r"--(set|search) (\S+?)(:? .*)", fault, re.DOTALL):
        table, key, rest = option.groups()
    elif value := re.match(rf"(?:{methods}): (\w+) is\b", fault):
        key = next((key for key in plan.settings if split_key(key)[1] == value[1] and key not in typed), "")
        table, rest = "set", f": {fault}"
    elif (field := re.match(r"--([a-z-]+)|\w+(?= is\b)", fault)) and (
        name := field[0].removeprefix("--").replace("-", "_")
    ) in Plan.__struct_fields__:
        return fault if name in typed else f"--plan {path}: {name}{fault[field.end() :]}"
    else:
        default = profiles.load_profile(plan.profile)
        changed = {name: value for name in _NAMED if (value := getattr(plan, name)) != getattr(default, name)}
        name = next((name for name, value in changed.items() if name not in typed and value and value in fault), "")
        return f"--plan {path}: {name}: {fault}" if name else fault
    return fault if key in typed or key not in plan.settings else f"--plan {path}: [{table}] {key}{rest}"


def describe_data_change(earlier: Plan, later: Plan) -> str:
    """Format the --data options of two plans for an error: `--data mini -> --data hub`."""
    return f"--data {earlier.data} -> --data {later.data}"


def mismatch_error(folder: Path, changed: Iterable[str], *, is_continued: bool) -> ValueError:
    """Build the error for a command that does not match the study on disk; `changed` is from `compare_plans`."""
    keeping = f", or --continue {shlex.quote(str(folder))} to keep all other settings"
    advice = " instead of --continue" if is_continued else keeping
    return ValueError(
        f"study {folder} does not match this command; differences (study -> command): {'; '.join(changed)}. "
        f"Choose another --name{advice}"
    )


def compare_plans(earlier: ResolvedPlan, later: ResolvedPlan, *, settled: Collection[str] | None = None) -> list[str]:
    """List the forbidden changes between two plans of a study, with the earlier and the later value of each.

    Arms in `settled` must not change. If `settled` is None, no arm may change.
    """
    changed = list_changes("protocol", to_plain(earlier.protocol), to_plain(later.protocol))
    before, arms_by_change = {arm.name: arm for arm in earlier.arms}, dict[str, list[str]]()
    compared = [arm for arm in later.arms if arm.name in before and (settled is None or arm.name in settled)]
    for arm in compared:
        own = f"{arm.method}/{arm.task}"
        fields = {field for plan in (earlier, later) for field in find_keys(plan.request.settings, own)}
        for change in compare_arms(before[arm.name], arm, set_by_hand=fields):
            is_of_data = change.startswith("data_fingerprint ") and earlier.request.data != later.request.data
            line = describe_data_change(earlier.request, later.request) if is_of_data else change
            arms_by_change.setdefault(line, []).append(arm.name)
    changes_by_arms = dict[tuple[str, ...], list[str]]()
    for change, arms in arms_by_change.items():
        changes_by_arms.setdefault(tuple(arms), []).append(change)
    for names, lines in changes_by_arms.items():
        changed.append(f"{list_first(names, MOST_NAMED)}: " * (len(names) < len(compared)) + ", ".join(lines))
    return changed


def compare_arms(before: Arm, after: Arm, *, set_by_hand: Collection[str] | None = None) -> list[str]:
    """List the differences between two arms, with the earlier and the later value of each.

    Args:
        set_by_hand: the fields in the settings of two plans of one study. If any other value differs, the message
            names the new default. If None, the arms are of two studies.
    """
    fields = dict.fromkeys(name for arm in (before, after) for name in (*arm.fixed, *arm.searched_fields))
    pairs = {name: (before.read_field(name), after.read_field(name)) for name in fields}
    changed = [
        f"{name} {' -> '.join(map(_format_field, pair))}"
        + _explain_exit_setting(name, before, after)
        + _explain_default(name, before, after, set_by_hand)
        for name, pair in pairs.items()
        if pair[0] != pair[1]
    ]
    for fact in ("backbone_fingerprint", "tokenizer_fingerprint", "data_fingerprint", "start_from"):
        changed += list_changes(fact, getattr(before, fact), getattr(after, fact))
    return changed


def _format_field(value: Choices | Interval | Value) -> str:
    return format_searched(value) if isinstance(value, Interval | tuple) else json.dumps(value)


def _explain_exit_setting(name: str, before: Arm, after: Arm) -> str:
    """Explain why an exit setting is chosen by the search of only one of the arms; "" for any other field."""
    sides = (before, after), (after, before)
    is_alone = any(name in one.exit_settings and name in other.fixed and not other.space for one, other in sides)
    return " (an exit setting, which is searched only if another field is tuned)" if is_alone else ""


def _explain_default(name: str, before: Arm, after: Arm, set_by_hand: Collection[str] | None) -> str:
    """Explain how to keep the value of a field whose default has changed since the study; "" for any other field."""
    is_fixed = name in before.fixed and name in after.fixed and before.backbone == after.backbone
    if set_by_hand is None or name in set_by_hand or not is_fixed:
        return ""
    kept = f"--set {before.method}:{name}={json.dumps(before.fixed[name])}"
    return f" (a new default; {kept} keeps the study's value)"


def list_changes(where: str, before: object, after: object) -> list[str]:
    """List the differences between two JSON-like values as lines `WHERE PATH BEFORE -> AFTER`."""
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(before.keys() | after.keys())
        return [line for name in names for line in list_changes(f"{where} {name}", before.get(name), after.get(name))]
    return [f"{where} {json.dumps(before)} -> {json.dumps(after)}"]


def include_folder(methods: Iterable[str], folder: str, *, option: str = "--include") -> None:
    """Register the methods in a folder. The folder may be missing if all `methods` are known.

    Raises:
        ValueError: one of `methods` is still unknown, or the folder is not a folder of methods.
    """
    known, is_there = method_files.included(), all(Path(one).is_dir() for one in method_files.split_folders(folder))
    if known is None or known.folder != folder:
        method_files.include(None)
        if is_there:
            trainables.include(folder, named="--include")
    if missing := [method for method in methods if base_method(method) not in method_files.names()]:
        lost = f"the folder {folder} with the study's method {missing[0]} is missing"
        fault = f"the folder {folder} does not contain the study's method {missing[0]}" if is_there else lost
        raise ValueError(f"{fault}; allowed: {option} with a folder of all methods of the study")
