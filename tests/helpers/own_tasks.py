"""The task of docs/own_task.md, as files, and larger ones to learn from."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from helpers.places import ROOT

from trainables.data.tasks import GLUE_TASKS, TASKS
from trainables.files import method_files

PAGE = (ROOT / "docs" / "own_task.md").read_text()
_COLOURS = ("red", "blue", "green", "black")
_THINGS = ("car", "boat", "house", "tree", "lamp")
CLAIMS = """
texts = ["claim", "evidence"]
label = "verdict"
labels = ["supported", "refuted", "open"]
metrics = ["accuracy", "f1_macro"]
"""
STARS = """
title = "Stars"
texts = ["text"]
label = "stars"
regression = true
metrics = ["pearsonr", "spearmanr"]
"""


def forget_tasks() -> None:
    """Leave GLUE's tasks and the built-in methods alone, as in a new process."""
    method_files.include(None)
    for name in {*TASKS} - {*GLUE_TASKS, "ax"}:
        del TASKS[name]


def write_page_task(folder: Path) -> Path:
    """The folder of tasks of the page, its files taken out of its blocks."""
    files = re.findall(r"^`tasks/(claims/\w+\.\w+)` .*?^```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["claims/task.toml", "claims/train.csv", "claims/dev.csv"]
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def write_learnable_tasks(folder: Path, *, train: int = 300, dev: int = 90) -> Path:
    """Two texts with three labels as TSV, and a regression of one text as JSON Lines."""
    draw = random.Random(0)
    for name, toml in (("claims", CLAIMS), ("stars", STARS)):
        (folder / name).mkdir(parents=True)
        (folder / name / "task.toml").write_text(toml)
    for split, rows in (("train", train), ("dev", dev)):
        with (folder / "claims" / f"{split}.tsv").open("w") as file:
            file.write("id\tclaim\tevidence\tverdict\n")
            file.writelines(f"{row}\t" + "\t".join(_claim(draw)) + "\n" for row in range(rows))
        with (folder / "stars" / f"{split}.jsonl").open("w") as file:
            file.writelines(json.dumps(_stars(draw)) + "\n" for _ in range(rows))
    return folder


def _claim(draw: random.Random) -> tuple[str, str, str]:
    colour, thing = draw.choice(_COLOURS), draw.choice(_THINGS)
    evidence = {
        "supported": f"there is a {colour} {thing}",
        "refuted": f"there is no {thing}",
        "open": f"we like {draw.choice(_THINGS)}",
    }
    verdict = draw.choice(list(evidence))
    return f"a {colour} {thing} stands here", evidence[verdict], verdict


def _stars(draw: random.Random) -> dict[str, object]:
    stars = draw.randrange(5)
    return {"text": f"{'good ' * stars}{'bad ' * (4 - stars)}{draw.choice(_THINGS)}", "stars": stars / 2}
