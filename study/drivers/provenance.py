"""Describes the code of this process: package versions, the git commit, and a digest of the sources."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from study.facts.attestation import Attestation, Provenance
from trainables.method_files import included
from trainables.runs.trial import Content
from trainables.schema import to_plain

DISTRIBUTIONS = ("ray", "torch", "transformers", "datasets", "optuna", "mlflow", "pandas", "numpy", "msgspec")
TRAINS = ("trainables",)  # our packages whose code affects a trial's results
ENGINE = ("search_spaces", "study")  # our packages that only choose trials; plan and journal record the choices
ROOT = Path(__file__).parents[2]


def attest(content: Content, *, method: str) -> Attestation:
    """Describe the data that this process has read, and the code with which it trains the method or objective."""
    code = provenance().for_method(method)
    return Attestation(**to_plain(content), code_digest=code.code_digest, versions=code.versions)


def provenance() -> Provenance:
    """Describe the code of this process, with the methods that it has loaded from outside this package."""
    code, methods = _read_project_code(), included()
    return code if methods is None else replace(code, included=methods.digests)


@lru_cache(maxsize=1)
def _read_project_code() -> Provenance:
    """Describe this project's code, read once per process; the version of `study` is the digest of `ENGINE`."""
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
    """Return the commit of the checkout, with `-dirty` if files have changed, or None outside a checkout."""
    # `describe --dirty` would lock the repository, and a killed launch would leave the lock behind.
    git = ["git", "-C", str(ROOT), "--no-optional-locks"]
    commands = [*git, "rev-parse", "HEAD"], [*git, "status", "--porcelain", "--untracked-files=no"]
    try:
        commit, changes = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit.strip()}{'-dirty' * bool(changes.strip())}"


def find_plan_tag(plan: str) -> str | None:
    """Return the git tag `plan-DIGEST` if the repository of the current folder has it, or None."""
    tag = f"plan-{plan}"
    try:
        listed = subprocess.run(["git", "tag", "--list", tag], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    return tag if listed.strip() == tag else None


def compute_code_digest(folders: Iterable[Path]) -> str:
    """Hash the names and contents of the Python files under these folders; return 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]
