"""Others of our packages' names that Python finds first: pytest tests/study/terminal/test_processes.py"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from helpers.messages import says
from helpers.places import ROOT

from study.console import COMMANDS

CONSOLE = Path(sysconfig.get_path("scripts")) / "glue-study"
AS_MODULE = [sys.executable, "-m"]


def run(*command: str | Path, cwd: Path, first: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command in a folder, with ours where an installed package lies: behind the folder, and behind `first`."""
    path = os.pathsep.join(str(place) for place in (first, ROOT) if place)
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def other(folder: Path, name: str) -> Path:
    """A package or module of somebody else's; what imports it says so."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.write_text("print('somebody else')\n")
        return path
    path.mkdir()
    (path / "__init__.py").write_text("print('somebody else')\n")
    return path / "__init__.py"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("study.status", "trainables.py"),
        ("study.launch", "trainables"),
        ("study.launch", "search_spaces"),
        ("study.launch", "analysis.py"),
        ("study.launch", "analysis"),
        ("analysis.tables", "study.py"),
        ("analysis.verify", "study"),
        ("analysis.report", "search_spaces.py"),
    ],
)
def test_shadowing_package_in_working_folder_is_named(tmp_path, command, name):
    path, package = other(tmp_path, name), name.removesuffix(".py")
    done = run(*AS_MODULE, command, "--dry-run" if command == "study.launch" else "runs/s", cwd=tmp_path)
    assert done.stdout == "" and done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
    assert says(done.stderr, f"imports {path} instead of {ROOT / package}, ", "another folder, ", f" in {tmp_path}\n")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"), [("study.status", "study"), ("analysis.tables", "analysis"), ("analysis.explain", "study")]
)
@pytest.mark.parametrize("argument", ["runs/s", "--help"])
def test_one_that_finds_our_modules_within_it_says_so_too(tmp_path, command, name, argument):
    """As where ours are installed in place: what another package of the name lacks is looked for among them."""
    path = other(tmp_path, name)
    path.write_text("from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n")
    done = run(*AS_MODULE, command, argument, cwd=tmp_path)
    assert done.stdout == "" and done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
    assert f"imports {path} instead of {ROOT / name}, " in done.stderr


def test_python_is_first_where_a_module_has_the_name_behind_m(tmp_path):
    other(tmp_path, "study.py")
    done = run(*AS_MODULE, "study.launch", cwd=tmp_path)
    assert done.returncode == 1 and "__path__ attribute not found on 'study'" in done.stderr


@pytest.mark.parametrize(("command", "name"), [("status", "trainables"), ("tables", "search_spaces.py")])
def test_one_on_the_path_of_python_is_named_too(tmp_path, command, name):
    path = other(tmp_path / "first", name)
    done = run(CONSOLE, command, "runs/s", cwd=tmp_path, first=tmp_path / "first")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert f"Python imports {path} instead of {ROOT / name.removesuffix('.py')}" in done.stderr
    assert done.stderr.endswith(
        f"remove {tmp_path / 'first'} from PYTHONPATH, or rename the package in {tmp_path / 'first'}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["study", "study.py", "analysis", "trainables"])
def test_console_ignores_working_folder_unlike_launch(tmp_path, name):
    path = other(tmp_path, name)
    done = run(CONSOLE, "status", "gone", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("study.status: there is no folder gone")
    done = run(CONSOLE, "launch", "--dry-run", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert f"study.launch: Python imports {path} instead of " in done.stderr


def test_a_folder_of_our_name_without_code_is_in_nobodys_way(tmp_path):
    (tmp_path / "analysis").mkdir()
    (tmp_path / "study").mkdir()
    done = run(*AS_MODULE, "study.launch", "--dry-run", "--profile", "mini", "--task", "rte", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""


def test_what_is_imported_of_ours_elsewhere_raises_an_import_error(tmp_path):
    other(tmp_path, "trainables")
    done = run(sys.executable, "-c", "try: import study\nexcept ImportError as error: print(error)", cwd=tmp_path)
    assert done.stderr == "" and f" instead of {ROOT / 'trainables'}" in done.stdout


@pytest.mark.parametrize("command", [module for module, _ in COMMANDS.values()])
def test_python_without_dependencies_names_the_right_one(command):
    bare = [sys.executable, "-S", "-m", command, "--help"]  # -S: without installed packages
    done = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1, done.stderr
    assert "lacks the package msgspec; " in done.stderr and ".venv/bin/python -m ..." in done.stderr


def test_program_that_imports_us_without_dependencies_gets_an_import_error():
    done = subprocess.run([sys.executable, "-S", "-c", "import study"], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: ") and "lacks the package msgspec" in done.stderr


WITHOUT_HOME = """
import pwd
def fail(user): raise KeyError(user)
pwd.getpwuid = fail
import study.launch
from study.cluster.ray_cluster import describe_readable_token
assert describe_readable_token() is None
"""


def test_a_user_without_a_home_imports_the_launch(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "RAY_AUTH_TOKEN_PATH")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOME], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
