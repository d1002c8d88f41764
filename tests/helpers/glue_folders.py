"""Generated tasks in the original TSV layout: data in a folder, which can be moved away."""

from __future__ import annotations

from pathlib import Path

from trainables.data import mini_glue
from trainables.data.tasks import TASKS


def write_glue(folder: Path, *, task: str = "rte", rows: int | None = None) -> Path:
    """The folder, with the task in it; `rows`: of each split at most."""
    kind = TASKS[task]
    (folder / kind.folder).mkdir(parents=True)
    for split in ("train", "dev", "test"):
        lines = ["\t".join(["index", *kind.file_columns, *(["label"] if split != "test" else [])])]
        for number, texts, label in mini_glue.generate(kind, split)[:rows]:
            lines.append("\t".join([str(number), *texts, *([] if label is None else [kind.file_labels[int(label)]])]))
        (folder / kind.folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder
