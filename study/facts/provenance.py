"""Describes and compares the code and data of a process."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import pkgutil
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from study.plans.resolved_plan import digest
from trainables import base_method
from trainables.configuration.schema import Typed, to_plain
from trainables.files.method_files import included
from trainables.files.sources import hash_now
from trainables.runs.trial import Content

_TITLES = {
    "data_fingerprint": "data",
    "tokens_digest": "tokenised data",
    "backbone_fingerprint": "backbone",
    "backbone_digest": "backbone files",
    "tokenizer_fingerprint": "tokenizer",
}
_DIGESTS = ("tokens_digest", "backbone_digest")  # known once the first trial of an arm has reported them

DISTRIBUTIONS = ("ray", "torch", "transformers", "datasets", "optuna", "mlflow", "pandas", "numpy", "msgspec")
TRAINS = ("trainables",)  # our packages whose code affects a trial's results
ENGINE = ("search_spaces", "study")  # our packages that only choose trials; plan and journal record the choices
ROOT = Path(__file__).parents[2]


class HasCode(Protocol):
    """What records the code that ran."""

    @property
    def code_digest(self) -> str:
        """The digest of the training code."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of Python and of the installed packages."""


class Provenance(Typed, frozen=True, kw_only=True):
    """The code and package versions of a launch."""

    versions: Mapping[str, str]
    git_commit: str | None
    code_digest: str  # of the training code
    included: Mapping[str, str] = {}  # method of an included folder -> digest of its files


def code_of_method(code: Provenance, method: str) -> Provenance:
    """Return the code and package versions that train one method.

    The code digest of a user's own method also covers the files of the method.
    """
    files = code.included.get(base_method(method))
    sources = code.code_digest if files is None else digest([code.code_digest, files])
    return Provenance(versions=code.versions, git_commit=code.git_commit, code_digest=sources)


def attest(content: Content, *, method: str) -> Attestation:
    """Describe the data and code of this process.

    `content` describes the data that the process has read. `method` is a method or a pretraining objective.
    """
    code = code_of_method(read_loaded_provenance(), method)
    return Attestation(**to_plain(content), code_digest=code.code_digest, versions=code.versions)


def read_loaded_provenance() -> Provenance:
    """Describe the code that every trial of this process runs, even if files are edited later."""
    _load_training_code()
    return read_provenance()


@lru_cache(maxsize=1)
def _load_training_code() -> None:
    """Import all training code. Otherwise the first trial of each method would import it as it is then."""
    for name in TRAINS:
        for module in pkgutil.walk_packages([str(ROOT / name)], f"{name}.", onerror=lambda name: None):
            with contextlib.suppress(Exception):  # a broken file, or a missing package: nothing can train with it
                importlib.import_module(module.name)
    _read_project_code.cache_clear()  # the digest must not be older than what was imported


def read_provenance() -> Provenance:
    """Describe the code of this process, including the user's own methods."""
    code, methods = _read_project_code(), included()
    return code if methods is None else replace(code, included=methods.digests)


@lru_cache(maxsize=1)
def _read_project_code() -> Provenance:
    """Describe the code of this project.

    The digest of the packages in `ENGINE` is stored as the version of `study`.
    """
    trains, engine = (compute_code_digest(ROOT / name for name in names) for names in (TRAINS, ENGINE))
    return Provenance(versions=versions() | {"study": engine}, git_commit=read_git_commit(), code_digest=trains)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages among `DISTRIBUTIONS`."""
    installed = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def read_git_commit() -> str | None:
    """Return the git commit of this project's files, with `-dirty` if files have changed; None outside a checkout."""
    # `describe --dirty` would lock the repository, and a killed launch would leave the lock behind.
    git = ["git", "-C", str(ROOT), "--no-optional-locks"]
    commands = [*git, "rev-parse", "HEAD"], [*git, "status", "--porcelain", "--untracked-files=no"]
    try:
        commit, changes = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit.strip()}{'-dirty' * bool(changes.strip())}"


def compute_code_digest(folders: Iterable[Path]) -> str:
    """Hash the names and contents of the Python files under these folders; return 16 hexadecimal digits."""
    sha256 = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            sha256.update(f"{folder.name}/{path.relative_to(folder).as_posix()} {hash_now(path)}\n".encode())
    return sha256.hexdigest()[:16]


def join_code(method: str, launches: Iterable[Provenance]) -> Provenance:
    """Combine the code and versions of several launches that trained a method.

    Different values are joined as `OLD, NEW`. Each value appears once, also if some were joined before.
    """
    codes = [code_of_method(launch, method) for launch in launches]
    names = dict.fromkeys(name for code in codes for name in code.versions)
    return Provenance(
        versions={name: _join(code.versions.get(name) for code in codes) for name in names},
        git_commit=_join(code.git_commit for code in codes) or None,
        code_digest=_join(code.code_digest for code in codes),
    )


def _join(values: Iterable[str | None]) -> str:
    separate = ", ".join(value for value in values if value is not None).split(", ")
    latest_first = dict.fromkeys(reversed(separate))
    return ", ".join(reversed(latest_first))


class Attestation(Content, frozen=True, kw_only=True):
    """The data, backbone and code of a trial, as found by a worker or as expected by the launch."""

    code_digest: str  # of the training code
    versions: Mapping[str, str]  # of Python and of the installed packages


def list_contradictions(attested: Attestation, expected: Attestation) -> list[str]:
    """List how the data and code of a worker differ from what the launch expects.

    Builds of the same package version (`2.8.0+cpu`, `2.8.0+cu128`) count as equal.
    """
    differences = []
    for name, title in _TITLES.items():
        value, wanted = getattr(attested, name), getattr(expected, name)
        if value != wanted and not (name in _DIGESTS and wanted is None):
            differences.append(f"{title} {value}, not {wanted}")
    return differences + list_other_code(attested, expected)


def list_other_code(code: HasCode, wanted: HasCode) -> list[str]:
    """List the differences in code and package versions. Packages that only one argument has are ignored."""
    packages = [name for name in code.versions if name in wanted.versions]
    values = [("code", code.code_digest, wanted.code_digest)]
    values += [(name, _release(code.versions[name]), _release(wanted.versions[name])) for name in packages]
    return [f"{name} {value}, not {expected}" for name, value, expected in values if value != expected]


def _release(version: str) -> str:
    return version.partition("+")[0]
