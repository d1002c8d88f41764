"""Generated tasks in the original TSV layout: data in a folder, which can be moved away."""

from __future__ import annotations

from pathlib import Path

from trainables.data import mini_glue
from trainables.data.tasks import TASKS


def write_glue(folder: Path, *, task: str = "rte", rows: int | None = None, easy_share: float | None = None) -> Path:
    """The folder, with the task in it; `rows`: of each split at most; `easy_share`: as in `mini_glue.generate`."""
    kind = TASKS[task]
    (folder / kind.folder).mkdir(parents=True)
    for split in ("train", "dev", "test"):
        labelled = split != "test"
        headed = ["index", *kind.file_columns, *([kind.label_column] if labelled else [])]
        columns = kind.headerless if labelled and kind.headerless else headed
        lines = [] if columns == kind.headerless else ["\t".join(columns)]
        for number, texts, label in mini_glue.generate(kind, split, easy_share=easy_share)[:rows]:
            values = dict(zip(kind.file_columns, texts, strict=True))
            if label is not None:
                values[kind.label_column] = kind.file_labels[int(label)]
            lines.append("\t".join(values.get(column, str(number)) for column in columns))
        (folder / kind.folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder
