"""Generated tasks in the original TSV layout: data in a folder, which can be moved away."""

from __future__ import annotations

from pathlib import Path

from trainables.data import mini_glue
from trainables.data.tasks import TASKS

LABELS = ("entailment", "not_entailment")


def write_glue(folder: Path, *, rows: int | None = None) -> Path:
    """The folder, with train and dev of RTE in it; `rows`: of each at most."""
    task = TASKS["rte"]
    (folder / task.folder).mkdir(parents=True)
    for split in ("train", "dev"):
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for number, texts, label in mini_glue.generate(task, split)[:rows]:
            lines.append("\t".join([str(number), *texts, LABELS[int(label or 0)]]))
        (folder / task.folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder
