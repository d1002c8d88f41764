"""A plan as a file that a person writes and keeps: TOML, laid over the profile that it names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

from study import profiles
from study.plans.plan import Plan
from trainables.schema import from_plain, to_plain
from trainables.spelling import no_such

NONE = "none"  # TOML has no word for it


def plan_as_toml(plan: Plan) -> str:
    """What the file of a plan says: every field that has a value, or whose profile has one."""
    import tomli_w

    default = to_plain(profiles.load(plan.profile))
    fields = {
        name: NONE if value is None else value
        for name, value in to_plain(plan).items()
        if value is not None or default.get(name) is not None
    }
    return tomli_w.dumps(fields)


def read_toml(path: Path) -> Plan:
    """The plan of a file; what it does not say is as its profile has it, `mini` where it names none.

    Raises:
        ValueError: it cannot be read, is no TOML, or says something else than a plan has.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise ValueError(f"--plan {path}: {reason}; allowed: a TOML file, as --dry-run --toml prints it") from None
    for name in fields:
        if name not in Plan.__struct_fields__:
            raise ValueError(f"--plan {path}: {no_such('field', name, Plan.__struct_fields__)}")
    profile = fields.get("profile", "mini")
    if not isinstance(profile, str):
        raise ValueError(f"--plan {path}: profile is {profile!r}; allowed: {', '.join(profiles.available())}")
    try:
        default = to_plain(profiles.load(profile))
    except ValueError as error:
        raise ValueError(f"--plan {path}: profile: {error}") from None
    said = {name: None if value == NONE else value for name, value in fields.items()}
    try:
        return from_plain(Plan, {**default, **said}, where=f"--plan {path}")
    except ValueError as error:  # in the words of TOML
        raise ValueError(str(error).replace(" or null", ' or "none"').replace(" an object", " a table")) from None


def of_settings_in_file(fault: str, plan: Plan, *, path: str, typed: Collection[str]) -> str:
    """What is wrong with a plan, with file and field where it is of a setting that the file says.

    Args:
        fault: in the words of options: `--set NAME: ...`, or `METHOD: NAME is ...`.
        typed: the settings that the command line has laid over the file.
    """
    found = re.match(rf"(?:--set (\w+)|(?:{'|'.join(map(re.escape, plan.methods))}): (\w+) is\b)", fault)
    field = found and (found[1] or found[2])
    if found is None or field not in plan.settings or field in typed:
        return fault
    rest = fault.removeprefix(f"--set {field}: ")
    return f"--plan {path}: {f'settings.{field}: ' if found[1] else 'settings: '}{rest}"
