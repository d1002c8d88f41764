"""The code that runs here, on a launcher or a worker: versions, the commit, a digest of the sources."""

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
TRAINS = ("trainables",)  # packages of this project whose code makes a trial's numbers
ENGINE = ("search_spaces", "study")  # and those that only choose trials: what they choose stands in plan and journal
ROOT = Path(__file__).parents[2]


def attest(content: Content, *, method: str) -> Attestation:
    """Attest the data that this process has read, and the code by which it trains a method or an objective."""
    code = provenance().of_method(method)
    return Attestation(**to_plain(content), code_digest=code.code_digest, versions=code.versions)


def provenance() -> Provenance:
    """Describe the code of this process, with the methods that it has included."""
    code, methods = _read_project_code(), included()
    return code if methods is None else replace(code, included=methods.digests)


@lru_cache(maxsize=1)
def _read_project_code() -> Provenance:
    """Read the code once, since imports stay. The engine is one more version: all nodes need the same."""
    trains, engine = (code_digest(ROOT / name for name in names) for names in (TRAINS, ENGINE))
    return Provenance(versions=versions() | {"study": engine}, git_commit=git_commit(), code_digest=trains)


def versions() -> dict[str, str]:
    """List the versions of Python and of the packages that make numbers; those not installed are left out."""
    installed = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def git_commit() -> str | None:
    """Read the commit of this code's checkout, `-dirty` if it was changed; None outside a checkout."""
    # Without the lock, which a launch that is killed would leave to whoever commits next: `describe --dirty` takes it.
    git = ["git", "-C", str(ROOT), "--no-optional-locks"]
    commands = [*git, "rev-parse", "HEAD"], [*git, "status", "--porcelain", "--untracked-files=no"]
    try:
        commit, changes = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit.strip()}{'-dirty' * bool(changes.strip())}"


def plan_tag(plan: str) -> str | None:
    """Find the git tag `plan-DIGEST` in the repository of the current folder; None if there is none."""
    tag = f"plan-{plan}"
    try:
        listed = subprocess.run(["git", "tag", "--list", tag], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    return tag if listed.strip() == tag else None


def code_digest(folders: Iterable[Path]) -> str:
    """Hash names and content of the Python files under these folders; 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:16]
