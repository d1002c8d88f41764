"""docs/architecture.md is the house as it stands: pytest tests/house/test_architecture.py"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from helpers.places import ROOT

import search_spaces
import trainables
from study.facts import events
from study.facts.events import BaseEvent, Report
from trainables import objectives
from trainables.configuration import TrainingConfig

PACKAGES = ("trainables", "study", "analysis")
ROOTS = (*PACKAGES, "search_spaces", "benchmarks", "tests")
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def section(title: str) -> str:
    """The text below a heading, up to the next one of its depth."""
    depth, start = next((m[1], m.end()) for m in re.finditer(r"^(#+) (.*)$", PAGE, re.M) if m[2].startswith(title))
    end = re.search(rf"^#{{1,{len(depth)}}} ", PAGE[start:], re.M)
    return PAGE[start : start + end.start()] if end else PAGE[start:]


def table(text: str, first_column: str) -> dict[str, str]:
    """First and second column of the table whose first column has this title."""
    block = text[text.index(f"| {first_column} |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]
    return {cells[0]: cells[1] for cells in rows}


def names(text: str) -> list[str]:
    """What stands between backticks, at commas apart."""
    return [name for quoted in re.findall(r"`([^`]+)`", text) for name in quoted.split(", ")]


def modules(package: str) -> set[str]:
    files = (ROOT / package).rglob("*.py")
    return {str(path.relative_to(ROOT / package)) for path in files if path.name != "__init__.py"}


def named_modules(package: str) -> list[str]:
    """Modules in the table of a package's section, and those of the sentence on commands above it."""
    text = section(package)
    above = text.partition("| module |")[0]
    return [name for name in [*names(above), *names(" ".join(table(text, "module")))] if name.endswith(".py")]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_named_once_and_exists(package: str) -> None:
    assert sorted(named_modules(package)) == sorted(modules(package))


def test_every_event_is_there_with_its_fields() -> None:
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(events.Event)}
    expected = {tag: [name for name in kind.__struct_fields__ if name != "time"] for tag, kind in kinds.items()}
    assert {event.strip("`"): names(fields) for event, fields in table(PAGE, "event").items()} == expected
    assert set(kinds.values()) == set(BaseEvent.__subclasses__())


def test_the_fields_of_a_report_are_there() -> None:
    sentence = next(line for line in section("Events").split("\n\n") if line.startswith("A `report` has"))
    assert names(sentence)[1:10] == list(Report.__struct_fields__)


def test_every_choice_of_a_configuration_is_there() -> None:
    found: dict[str, str] = {}
    for method in trainables.available():
        hints = get_type_hints(trainables.load(method).Config)
        for field, hint in hints.items():
            for option in (hint, *get_args(hint)):
                if get_origin(option) is Literal:
                    found[field] = ", ".join(get_args(option))
    assert {field.strip("`"): choices for field, choices in table(PAGE, "field").items()} == found


def test_the_shared_fields_of_a_configuration_are_all_named() -> None:
    paragraph = next(text for text in section("Methods").split("\n\n") if text.startswith("Fields of every method"))
    assert names(paragraph) == list(TrainingConfig.__struct_fields__)


def test_every_name_of_a_search_space_file_is_there() -> None:
    named = set(names(" ".join(table(section("Methods"), "name"))))
    for method in search_spaces.available():
        module = importlib.import_module(f"search_spaces.{method.replace('-', '_')}")
        public = {name for name in vars(module) if name.isupper() and not name.startswith("_")}
        assert public <= named, method


@pytest.mark.slow
def test_no_class_is_large_and_no_file_is_long() -> None:
    for path in [path for root in ROOTS for path in (ROOT / root).rglob("*.py")]:
        text = path.read_text()
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
                assert len(methods) <= 20, f"{path}: {node.name} has {len(methods)} methods"


def test_no_two_files_have_one_name_but_the_two_of_a_method_or_of_an_objective() -> None:
    files: dict[str, list[Path]] = {}
    for root in ROOTS:
        for path in (ROOT / root).rglob("*.py"):
            if path.name not in ("__init__.py", "conftest.py"):
                files.setdefault(path.name, []).append(path)
    twins = [*trainables.available(), *objectives.available()]
    assert {name for name, paths in files.items() if len(paths) > 1} == {
        f"{name.replace('-', '_')}.py" for name in twins
    }


def test_every_room_of_tests_is_run_by_one_of_the_two_commands() -> None:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    rooms = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert {"/".join(room.split("/")[:2]) for room in rooms} == {*configuration["testpaths"], "tests/cluster"}


@pytest.mark.slow
def test_every_decision_that_is_cited_is_there() -> None:
    decisions = (ROOT / "docs" / "decisions.md").read_text()
    anchors = re.findall(r'<a id="([\w-]+)"></a>', decisions)
    assert len(anchors) == len(set(anchors)) == len(re.findall(r"^## ", decisions, re.M))
    installed = {".venv", "build"}
    sources = [path for path in ROOT.rglob("*") if path.suffix in (".py", ".md") and not installed & {*path.parts}]
    cited = {anchor for path in sources for anchor in re.findall(r"decisions\.md#([\w-]+)", path.read_text())}
    assert cited <= set(anchors)
