"""The blocks of docs/questions.md, run in the order of the page: pytest tests/study/test_questions.py"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.launches import WITHOUT_RAY
from helpers.own_tasks import write_page_task
from helpers.places import PATIENCE_SECONDS, ROOT

from study.facts.study_facts import read_facts

PAGE = (ROOT / "docs" / "questions.md").read_text()
BLOCKS = [
    (question, language, text)
    for question, answer in re.findall(r"^### \.\.\. (.*)\n((?:(?!##).*\n)*)", PAGE, re.M)
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", answer, re.M | re.S)
]
BEGINS = "-m study.launch (?!.*(--continue|--plan best|--dry-run))"  # a study that the page begins: made small here
SMALL = ["--samples", "1", "--seeds", "1", "--epochs", "1"]
HERE = " ".join([*WITHOUT_RAY, "--tracking-uri", "none"])
HF = f"{sys.executable} -m huggingface_hub.cli.hf"

pytestmark = [pytest.mark.slow, pytest.mark.long]


def run(place: Path, command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, shell=True, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the two studies of the page and the task of docs/own_task.md."""
    place = tmp_path_factory.mktemp("questions")
    (place / ".venv").symlink_to(sys.prefix)
    write_page_task(place / "tasks")
    begin = f"{sys.executable} -m study.launch --task rte,mrpc --samples 2 --seeds 2 --epochs 2 {HERE}"
    run(place, f"{begin} --method albert,palbert --name mine")
    run(place, f"{begin} --method pabee --name other")
    yield place


def runnable(line: str) -> str:
    """The command of a line of the page: a study that it begins is a small one, and without its needs a dry run."""
    command, _, needs = line.partition("  # needs ")
    if "-m study.launch " in command:
        small = SMALL if re.search(BEGINS, command) else []
        return " ".join([command, *small, HERE, *["--dry-run"] * bool(needs)])
    return f"{command.replace('.venv/bin/hf', HF)} --help" if needs else command


@pytest.mark.parametrize(("question", "language", "text"), BLOCKS, ids=[question for question, _, _ in BLOCKS])
def test_block_of_the_page_runs(place: Path, question: str, language: str, text: str) -> None:
    assert language in ("sh", "python", "toml", "text"), f"{question}: {language}"  # text: needs a reader's own files
    if language == "python":
        compile(text, question, "exec")
        for package in re.findall(r"  # needs (\w+)$", text, re.M):
            pytest.importorskip(package)
        (place / "block.py").write_text(text)
        run(place, ".venv/bin/python block.py")
    key = next(record.key for record in read_facts(place / "runs" / "mine").records if record.phase == "search")
    for line in text.replace("\\\n", " ").splitlines() if language == "sh" else ():
        run(place, runnable(line).replace(" KEY", f" {key}"))


def test_page_has_each_question_once() -> None:
    questions = re.findall(r"^### \.\.\. (.*)$", PAGE, re.M)
    assert len(questions) == len(set(questions)) >= 36
    assert len(BLOCKS) == PAGE.count("```") // 2  # no block stands outside the questions or without a language


def test_each_question_stands_in_one_of_a_few_groups() -> None:
    head, *groups = re.split(r"^## (?!\.)", PAGE, flags=re.M)
    assert 4 <= len(groups) <= 6 and "## ..." not in head
    assert all(group.count("\n### ... ") >= 3 for group in groups)
