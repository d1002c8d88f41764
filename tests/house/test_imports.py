"""Imports point one way, and the quick commands stay quick: pytest tests/house/test_imports.py"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from helpers.kept_studies import FORMATS
from helpers.launched_studies import launched_study, mini_plan
from helpers.places import ROOT

import trainables
from study import console
from study.facts.events import FORMAT
from study.terminal.processes import EXTRA_MODULES

PACKAGES = ("study", "search_spaces", "trainables", "analysis")
HEAVY = ("torch", "ray", "transformers", "datasets", "optuna", "mlflow")

RAY_IS_IMPORTED_BY = (
    "study.cluster",
    "study.drivers.tune_driver",
    "study.drivers.trial_actor",
    "study.doctor",
)
MLFLOW_IS_IMPORTED_BY = (
    "study.mlflow_mirror.tracking",
    "study.mlflow_mirror.served_model",
)
ANALYSIS_MAY_IMPORT = (
    "analysis",
    "study.facts",
    "study.decisions.progress",
    "study.storage.addresses",
    "study.storage.models",
    "study.plans.plan",
    "study.facts.plan_file",
    "study.plans.settings",
    "study.plans.resolved_plan",
    "study.plans.samplers",
    "study.terminal.command_line",
    "study.terminal.processes.require_package",
    "study.terminal.text",
    "trainables.Departure",
    "trainables.files.method_files",
    "trainables.configuration.schema",
    "trainables.configuration.spelling",
    "trainables.configuration",
    "trainables.files.atomic_files",
    "trainables.files.sources.from_cache_only",
    "trainables.data.glue.fingerprint",
    "trainables.data.glue.load_split",
    "trainables.data.metrics",
    "trainables.data.mini_glue",
    "trainables.data.repeated_texts",
    "trainables.data.tasks",
    "trainables.encoders.backbone_names.find_licence",
    "trainables.models.answer_rules",
    "trainables.models.exit_rules",
    "trainables.models.fronts",
    "trainables.models.safe_exits",
    "trainables.runs.times",
    "trainables.runs.trial",
)
SEARCH_SPACES_MAY_IMPORT = (
    "search_spaces",
    "optuna.distributions",
    "trainables",
    "trainables.files.method_files",
    "trainables.configuration.schema",
    "trainables.configuration.spelling",
    "trainables.encoders.architectures",
)

NEEDED_PACKAGES = {  # command -> the package that it lacks where the extra `train` is not installed
    "analysis.verify kept --again 1": "torch",
    "analysis.verify kept --against sqlite:///mlflow.db": "mlflow",
    "analysis.compare answers.parquet": "pyarrow",
    "study.launch --continue kept": "torch",
    "study.launch --method palbert --task rte --address auto": "ray",
    "study.mirror kept": "mlflow",
    "study.time kept": "torch",
    "study.try palbert --task rte": "torch",
    "study.pretrain mlm --corpus mini --to backbone": "torch",
}


@cache
def modules(package: str) -> dict[str, Path]:
    """The dotted name and file of each module of a package."""
    files = sorted((ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


@cache
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


def importers(package: str) -> set[str]:
    """Our modules that import the package, at their top or within a function."""
    return {name for root in PACKAGES for name, path in modules(root).items() if package in roots(path)}


def outside(names: set[str], places: tuple[str, ...]) -> set[str]:
    """Those of the names that neither are one of the places nor lie within one."""
    return {name for name in names if not any(name == place or name.startswith(f"{place}.") for place in places)}


def run_blocked(code: str, *arguments: str, blocked: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the code where these packages are not installed."""
    command = [sys.executable, "-c", f"import sys, helpers.absent_packages\n{code}", *arguments]
    environment = {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "ABSENT_PACKAGES": ",".join(blocked),
        "PATH": "/usr/bin:/bin",
    }
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.mark.parametrize("module", modules("search_spaces"))
def test_search_spaces_know_distributions_only(module: str) -> None:
    names = {name for name in imported(modules("search_spaces")[module]) if name.startswith(("optuna", *PACKAGES))}
    assert not outside(names, SEARCH_SPACES_MAY_IMPORT)
    assert not roots(modules("search_spaces")[module]) & (set(HEAVY) - {"optuna"})


def test_search_spaces_alone_are_imported_without_the_heavy_packages(tmp_path: Path) -> None:
    run = run_blocked("import search_spaces; search_spaces.list_methods()", blocked=HEAVY, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("module", modules("trainables"))
def test_trainables_know_nothing_of_who_calls_them(module: str) -> None:
    assert not roots(modules("trainables")[module]) & {"ray", "optuna", "mlflow", "study", "search_spaces", "analysis"}


@pytest.mark.parametrize("module", modules("analysis"))
def test_analysis_knows_facts_plans_and_tasks_only(module: str) -> None:
    assert not roots(modules("analysis")[module]) & set(HEAVY)
    names = {name for name in imported(modules("analysis")[module]) if name.startswith(PACKAGES)}
    assert not outside(names, ANALYSIS_MAY_IMPORT)


def test_no_modules_import_each_other() -> None:
    """Imports for type checkers count as well."""
    files = {name: path for package in PACKAGES for name, path in modules(package).items()}
    graph = dict[str, set[str]]()
    for name, path in files.items():
        tree = [*ast.walk(ast.parse(path.read_text()))]
        nodes = [node for node in tree if isinstance(node, ast.ImportFrom)]
        assert not any(node.level for node in nodes), f"{name}: no test of this file looks at relative imports"
        places = [(node.module or "", alias.name) for node in nodes for alias in node.names]
        taken = {f"{module}.{what}" if f"{module}.{what}" in files else module for module, what in places}
        taken |= {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
        graph[name] = {other for other in taken & {*files} - {name} if files[other].stem != "__init__"}
    list(TopologicalSorter(graph).static_order())  # a circle is a CycleError, which names its modules


def test_files_at_the_root_of_study_are_commands() -> None:
    """A module that only another command runs has its own room, however much it looks like a command."""
    files = [path for path in modules("study").values() if path.parent == ROOT / "study" and path.stem != "__init__"]
    named = {module.removeprefix("study.") for module, _ in console.COMMANDS.values() if module.startswith("study.")}
    assert {path.stem for path in files} == {*named, "console"}  # which runs any of them
    assert {path.stem for path in files if "\nmain = Command(" not in path.read_text()} == {"console"}


def test_files_at_the_root_of_trainables_are_methods() -> None:
    files = [path for path in modules("trainables").values() if path.parent == ROOT / "trainables"]
    methods = {method.replace("-", "_") for method in trainables.list_methods()}
    assert {path.stem for path in files} == {"__init__", *methods}


@pytest.mark.parametrize("module", modules("study"))
def test_study_knows_nothing_of_analysis(module: str) -> None:
    assert "analysis" not in roots(modules("study")[module])


@pytest.mark.parametrize(("package", "allowed"), [("ray", RAY_IS_IMPORTED_BY), ("mlflow", MLFLOW_IS_IMPORTED_BY)])
def test_only_few_modules_import(package: str, allowed: tuple[str, ...]) -> None:
    assert not outside(importers(package), allowed)


@pytest.mark.slow
def test_what_decides_tells_and_forecasts_needs_neither_torch_ray_nor_mlflow(tmp_path: Path) -> None:
    rooms = (
        "study.decisions",
        "study.facts",
        "study.plans",
        "study.launching.forecast",
        "study.launching.screen",
        "study.launching.live_view",
    )
    names = set(modules("study")) - outside(set(modules("study")), rooms)
    assert names > set(rooms)
    assert not (importers("ray") | importers("mlflow")) & names
    assert importers("torch") & names == {"study.launching.forecast"}  # in the function that measures a few steps
    run = run_blocked(f"import {', '.join(sorted(names))}", blocked=("torch", "ray", "mlflow"), cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_reader_of_a_study_needs_no_package_of_the_extra(tmp_path: Path) -> None:
    shutil.copytree(FORMATS / str(FORMAT), tmp_path / "kept")
    answers = [f"{name},rte,{seed}" for name in "ab" for seed in (1, 2)]
    rows = [f"{one},{row},{row % 2},{(row + place) % 5 // 3}" for place, one in enumerate(answers) for row in range(20)]
    (tmp_path / "answers.csv").write_text("\n".join(["method,task,seed,example,label,answer", *rows]))
    code = """
import importlib
from analysis import compare, explain, load, report, tables, verify
from study import console, status

assert tables.main(["kept"]) == report.main(["kept"]) == 0
assert explain.main(["kept", "palbert/rte"]) == 0
assert compare.main(["answers.csv"]) == 0
assert len(load("kept").predictions) == 250
assert verify.main(["kept"]) == 1  # its model was not kept
assert status.main(["kept"]) == 1  # it is incomplete
for module, _ in console.COMMANDS.values():
    importlib.import_module(module)
"""
    run = run_blocked(code, blocked=EXTRA_MODULES, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_commands_name_the_extra_that_they_need(tmp_path: Path) -> None:
    shutil.copytree(FORMATS / str(FORMAT), tmp_path / "kept")
    (tmp_path / "answers.parquet").touch()
    code = """
import importlib, io, json
from contextlib import redirect_stderr

for line, package in json.loads(sys.argv[1]).items():
    module, *arguments = line.split()
    with redirect_stderr(io.StringIO()) as printed:
        status = importlib.import_module(module).main(arguments)
    *notes, error = printed.getvalue().splitlines()
    assert status == 2 and " needs the package " + package in error and "[train]'" in error, (line, error)
    assert not any("Traceback" in note for note in notes), (line, notes)
"""
    run = run_blocked(code, json.dumps(NEEDED_PACKAGES), blocked=EXTRA_MODULES, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_every_module_of_analysis_is_imported_without_the_heavy_packages(tmp_path: Path) -> None:
    blocked = (*HEAVY, *EXTRA_MODULES)
    run = run_blocked(f"import {', '.join(modules('analysis'))}", blocked=blocked, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.long
@pytest.mark.slow
def test_analysis_works_without_the_heavy_packages(tmp_path: Path) -> None:
    study = launched_study(tmp_path / "study", mini_plan(methods=("albert", "palbert"), tasks=("rte",), seeds=2))
    code = """
from analysis import explain, load, report, tables, verify
study = sys.argv[1]
assert tables.main([study]) == 0
assert verify.main([study]) == 0
assert report.main([study]) == 0
assert explain.main([study, "palbert/rte"]) == 0
assert len(load(study).records.query("counts")) == 4
"""
    run = run_blocked(code, str(study), blocked=(*HEAVY, *EXTRA_MODULES), cwd=tmp_path)
    assert run.returncode == 0, run.stderr


def test_method_files_are_importable_without_torch(tmp_path: Path) -> None:
    code = "import trainables\nfor method in trainables.list_methods(): trainables.load_method(method).Config"
    run = run_blocked(code, blocked=HEAVY, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_a_launch_needs_no_ray_before_trials_are_to_be_run(tmp_path: Path) -> None:
    heavy = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib")
    run = run_blocked("import study.launch", blocked=heavy, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


QUICK_COMMANDS = (
    ("study.launch", "--help"),
    ("study.launch", "--dry-run", "--method", "palbert", "--task", "rte"),
    ("study.launch", "--dry-run", "--method", "palbert", "--task", "rte", "--profile", "auto"),
    ("study.pretrain", "--help"),
    ("study.pretrain", "mlm", "--corpus", "mini", "--to", "backbone", "--dry-run"),
    ("study.doctor", "--help"),
    ("study.mirror", "--help"),
    ("study.status", "--help"),
    ("study.export", "--help"),
    ("study.predict", "--help"),
)


@pytest.mark.slow
def test_quick_commands_import_none_of_the_heavy_packages(tmp_path: Path) -> None:
    """One process runs them all: a heavy package cannot be imported at any time."""
    code = f"""
import runpy
for command in {QUICK_COMMANDS}:
    sys.argv = [*command]
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code, (command, ended.code)
    else:
        raise AssertionError(f"{{command}} does nothing")
"""
    blocked = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib")
    run = run_blocked(code, blocked=blocked, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.slow
def test_importing_every_module_does_nothing_else(tmp_path: Path) -> None:
    # blocked below, for all the others to show it
    without = importers("ray") | {"study.mlflow_mirror.served_model"}
    names = [name for root in PACKAGES for name in modules(root) if name not in without]
    code = f"""
import importlib, logging, os
import datasets, torch, transformers  # these change the environment by themselves
before = dict(os.environ)
for name in {names}:
    importlib.import_module(name)
assert not logging.getLogger().handlers, "a module sets up logging"
ours = {{name for name in os.environ if os.environ[name] != before.get(name) and "INDUCTOR" not in name}}
assert not ours, f"a module changes the environment: {{ours}}"
"""
    run = run_blocked(code, blocked=("ray", "mlflow"), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.iterdir()) == []
