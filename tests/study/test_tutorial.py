"""Runs what docs/tutorial.md and docs/commands.md tell people to type: pytest tests/study/test_tutorial.py"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.glue_folders import write_glue
from helpers.places import PATIENCE_SECONDS, ROOT

from study.facts.plan_file import require_plan
from study.facts.study_facts import read_facts

COMMANDS = re.findall(
    r"^\.venv/bin/.*$",
    "".join(re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/tutorial.md").read_text(), re.M | re.S)),
    re.M,
)
SNIPPET = re.search(r"^```python\n(.*?)^```", (ROOT / "docs/commands.md").read_text(), re.M | re.S)

pytestmark = [pytest.mark.slow, pytest.mark.long]


def run(place: Path, command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, shell=True, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder in which all commands of the tutorial were typed, one after the other, and what each printed."""
    place = tmp_path_factory.mktemp("tutorial")
    write_glue(place / "glue", task="sst2", rows=64)
    (place / ".venv").symlink_to(sys.prefix)
    (place / "benchmarks").symlink_to(ROOT / "benchmarks")
    yield place, {command: run(place, command) for command in COMMANDS}


def said(outputs: dict[str, str], part: str) -> str:
    """What the first command with this in it printed."""
    return next(text for command, text in outputs.items() if part in command)


def test_the_study_of_the_tutorial_has_its_table_and_seven_seeds(place: tuple[Path, dict[str, str]]) -> None:
    folder, outputs = place
    assert require_plan(folder / "runs" / "sst2").plan.request.seeds == 7
    confirmed = [r for r in read_facts(folder / "runs" / "sst2").records if r.phase == "confirm"]
    assert len(confirmed) == 14
    assert "mean over 7 seeds" in said(outputs, "--continue")
    assert "agree" in said(outputs, "analysis.verify")


def test_the_kept_study_has_the_table_of_the_tutorial(place: tuple[Path, dict[str, str]]) -> None:
    _, outputs = place
    shown = said(outputs, "analysis.tables benchmarks")
    page = (ROOT / "docs/tutorial.md").read_text()
    table = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(table) > 4 and "\n".join(table) in page


def test_the_answers_of_the_tutorial_are_there(place: tuple[Path, dict[str, str]]) -> None:
    folder, _ = place
    _header, *rows = (folder / "answers.tsv").read_text().splitlines()
    assert len(rows) == 64 and {row.split("\t")[1] for row in rows} <= {"0", "1"}


def test_the_snippet_predicts_with_early_exit(place: tuple[Path, dict[str, str]]) -> None:
    folder, _ = place
    assert SNIPPET is not None
    (folder / "snippet.py").write_text(SNIPPET[1].replace('"FOLDER"', '"sst2-palbert"'))
    answer = run(folder, ".venv/bin/python snippet.py")
    assert re.fullmatch(r"tensor\(\[[01], [01]\]\) tensor\(\[[1-6], [1-6]\]\)\n", answer)
