"""Imports point one way, and the quick commands stay quick: pytest tests/test_imports.py"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("study", "search_spaces", "trainables", "analysis")
HEAVY = ("torch", "ray", "transformers", "datasets", "optuna", "mlflow")
RAY_MODULES = {"study.engine", "study.trainable", "study.run", "study.doctor"}
MLFLOW_MODULES = {"study.tracking", "study.registration", "study.served_model"}

# Refuses to import the packages named in its first argument, as if they were not installed; then runs the second.
BLOCKING = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
names = sys.argv.pop(1).split(",")
sys.meta_path.insert(0, Blocked())
code = sys.argv.pop(1)
exec(code)
"""


def modules(package: str) -> dict[str, Path]:
    """The dotted name and file of each module of a package."""
    files = sorted((REPOSITORY / package).rglob("*.py"))
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path for path in files
    }


def imported(path: Path) -> set[str]:
    """The full names that a file imports, at its top or within a function, those for type checkers left out."""
    names: set[str] = set()
    for node in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _statements(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return []
    return [node, *(found for child in ast.iter_child_nodes(node) for found in _statements(child))]


def roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


def run_blocked(code: str, *arguments: str, blocked: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKING, ",".join(blocked), code, *arguments]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.mark.parametrize("module", modules("search_spaces"))
def test_search_spaces_know_distributions_only(module: str) -> None:
    foreign = {name for name in imported(modules("search_spaces")[module]) if name.startswith(("optuna", *PACKAGES))}
    assert all(name.startswith(("optuna.distributions.", "search_spaces.")) for name in foreign)
    assert not roots(modules("search_spaces")[module]) & (set(HEAVY) - {"optuna"})


@pytest.mark.parametrize("module", modules("trainables"))
def test_trainables_know_nothing_of_who_calls_them(module: str) -> None:
    assert not roots(modules("trainables")[module]) & {"ray", "optuna", "mlflow", "study", "search_spaces", "analysis"}


@pytest.mark.parametrize("module", modules("analysis"))
def test_analysis_knows_records_their_ledger_and_tasks_only(module: str) -> None:
    names = imported(modules("analysis")[module])
    assert not roots(modules("analysis")[module]) & {*HEAVY, "search_spaces"}
    ours = {name for name in names if name.startswith(("study", "trainables"))}
    assert all(name.startswith(("study.record", "study.ledger", "trainables.data.tasks")) for name in ours), ours


@pytest.mark.parametrize(("package", "allowed"), [("ray", RAY_MODULES), ("mlflow", MLFLOW_MODULES)])
def test_only_few_modules_import(package: str, allowed: set[str]) -> None:
    importers = {name for root in PACKAGES for name, path in modules(root).items() if package in roots(path)}
    assert importers <= allowed


def test_analysis_works_without_the_heavy_packages(tmp_path: Path) -> None:
    run = run_blocked("; ".join(f"import {name}" for name in modules("analysis")), blocked=HEAVY, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_method_files_are_importable_without_torch(tmp_path: Path) -> None:
    code = "import trainables\nfor method in trainables.available(): trainables.load(method).Config"
    run = run_blocked(code, blocked=HEAVY, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("study.launch", "--help"),
        ("study.launch", "--dry-run", "--method", "palbert", "--task", "rte"),
        ("study.doctor", "--help"),
        ("study.mirror", "--help"),
        ("study.status", "--help"),
    ],
    ids=" ".join,
)
def test_quick_commands_import_none_of_the_heavy_packages(command: tuple[str, ...], tmp_path: Path) -> None:
    code = f"import runpy; sys.argv = {list(command)}; runpy.run_module({command[0]!r}, run_name='__main__')"
    run = run_blocked(code, blocked=("torch", "ray", "mlflow", "transformers", "datasets"), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.iterdir()) == []


def test_importing_every_module_does_nothing_else(tmp_path: Path) -> None:
    names = [name for root in PACKAGES for name in modules(root)]
    code = f"""
import importlib, logging, os
import datasets, torch, transformers  # these change the environment by themselves
before = dict(os.environ)
for name in {names}:
    if name not in {sorted(RAY_MODULES | {"study.served_model"})}:
        importlib.import_module(name)
assert not logging.getLogger().handlers, "a module sets up logging"
ours = {{name for name in os.environ if os.environ[name] != before.get(name) and "INDUCTOR" not in name}}
assert not ours, f"a module changes the environment: {{ours}}"
"""
    run = run_blocked(code, blocked=("ray", "mlflow"), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.iterdir()) == []
