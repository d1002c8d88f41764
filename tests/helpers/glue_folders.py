"""Generated tasks in the original TSV layout: data in a folder, which can be moved away."""

from __future__ import annotations

from pathlib import Path

from trainables.data import mini_glue
from trainables.data.tasks import TASKS

LABELS = ("entailment", "not_entailment")


def write_glue(folder: Path, *, rows: int | None = None) -> Path:
    """The folder, with RTE in it; `rows`: of each split at most."""
    task = TASKS["rte"]
    (folder / task.folder).mkdir(parents=True)
    for split in ("train", "dev", "test"):
        lines = ["\t".join(["index", "sentence1", "sentence2", "label"][: 3 if split == "test" else 4])]
        for number, texts, label in mini_glue.generate(task, split)[:rows]:
            lines.append("\t".join([str(number), *texts, *([] if label is None else [LABELS[int(label)]])]))
        (folder / task.folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder
