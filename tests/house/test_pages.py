"""What the pages tell people to type is there: pytest tests/house/test_pages.py"""

from __future__ import annotations

import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.places import ROOT

from study.console import COMMANDS
from trainables.configuration.spelling import suggest_nearest

PAGES = [*ROOT.glob("*.md"), *(page for page in ROOT.glob("docs/*.md") if page.name != "decisions.md")]  # what was
OURS = {module: name for name, (module, _) in COMMANDS.items()}
COMMAND = re.compile(r"-m ((?:study|analysis)\.\w+)|glue-study (\w[\w-]*)")


def commands() -> Iterator[tuple[str, str, list[str]]]:
    """Page, module and words of every command that a page shows, in a block or between backticks."""
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text())
        shown = [part for pair in re.findall(r"^```\w*\n(.*?)^```|`([^`]+)`", text, re.M | re.S) for part in pair]
        for line in "\n".join(shown).splitlines():
            for found in COMMAND.finditer(line):
                module = found[1] or COMMANDS.get(found[2], (found[2], ""))[0]
                rest = line[found.end() :].split(" #")[0].split("`")[0]
                yield page.name, module, re.findall(r"(?<![\w-])--[a-z][\w-]*", rest.split('"')[0])


def test_every_command_on_a_page_exists_with_its_options() -> None:
    found = list(commands())
    assert len({page for page, _, _ in found}) > 5 and len(found) > 30
    for page, module, options in found:
        assert module in OURS or (ROOT / f"{module.replace('.', '/')}.py").exists(), f"{page}: {module}"
        parser = importlib.import_module(module).main.parser()
        known = {flag for action in parser._actions for flag in action.option_strings}
        for option in options:
            assert option in known, f"{page}: {module} has no {option}{suggest_nearest(option, known)}"


def test_every_link_of_a_page_leads_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text())]
    assert len(links) > 10
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def anchors_of(page: Path) -> set[str]:
    """What a link into a page can name on GitHub: anchors, and headings in small letters without punctuation."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {
        *re.findall(r'<a id="([^"]+)">', text),
        *(re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in shown),
    }


def test_every_link_into_a_page_leads_to_its_heading() -> None:
    links = [(page, *link) for page in PAGES for link in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", page.read_text())]
    assert len(links) > 10
    lost = [
        f"{page.name}: {name}#{a}"
        for page, name, a in links
        if a not in anchors_of(page.parent / name if name else page)
    ]
    assert lost == []


def test_commands_of_own_methods_run_in_the_environment() -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "docs" / "own_method.md").read_text(), re.M | re.S)
    lines = "".join(text for language, text in blocks if not language).splitlines()
    assert len(lines) > 4 and all(line.startswith(".venv/bin/python -m ") for line in lines)


def test_every_test_folder_runs_in_one_command() -> None:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    rooms = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert {"/".join(room.split("/")[:2]) for room in rooms} == {*configuration["testpaths"], "tests/cluster"}


@pytest.mark.slow
def test_every_decision_that_is_cited_is_there() -> None:
    decisions = (ROOT / "docs" / "decisions.md").read_text()
    anchors = re.findall(r'<a id="([\w-]+)"></a>', decisions)
    assert len(anchors) == len(set(anchors)) == len(re.findall(r"^## ", decisions, re.M))
    installed = {".venv", "build"}
    files = [path for path in ROOT.rglob("*") if path.suffix in (".py", ".md")]
    sources = [path for path in files if not installed & {*path.relative_to(ROOT).parts}]
    cited = {anchor for path in sources for anchor in re.findall(r"decisions\.md#([\w-]+)", path.read_text())}
    assert cited and cited <= set(anchors)


def test_troubleshooting_messages_exist_in_code() -> None:
    packages = ("analysis", "search_spaces", "study", "trainables")
    code = "".join(path.read_text() for package in packages for path in (ROOT / package).rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)  # a text that goes over two lines
    shown = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/troubleshooting.md").read_text(), re.M)
    assert len(shown) >= 20 and [message for message in shown if message not in joined] == []


def test_tree_of_architecture_names_every_folder_and_file() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = text[text.index("## The tree") : text.index("`tests/house/test_imports.py`")]
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    shown: dict[str, set[str]] = {}  # folder at the root -> the folders that its lines name
    top = ""
    for line in tree.splitlines():
        if found := re.match(r"(\w+)/ ", line):
            shown[top := found[1]] = set()
        shown.get(top, set()).update(re.findall(r"\b(\w+)/ ", line[2:]))
        for name in re.findall(r"[a-z_/]+\.(?:py|toml|csv)\b", line):
            assert any(file.startswith(f"{top}/") and file.endswith(f"/{name}") for file in files), f"{top}: {name}"
    for package in ("analysis", "search_spaces", "study", "trainables"):
        folders = {file.split("/")[1] for file in files if re.fullmatch(rf"{package}/\w+/.*\.py", file)}
        assert folders <= shown[package], package
        deep = [file for file in files if re.fullmatch(rf"{package}/(?!.*objectives/)\w+/\w.*\.py", file)]
        names = {file.rsplit("/", 1)[1].removesuffix(".py") for file in deep} - {"__init__"}
        assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", tree)] == [], package
