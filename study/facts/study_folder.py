"""The files in a study's folder: their paths, digests and exported contents."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from study.facts.events import FILE
from study.plans.resolved_plan import digest
from study.terminal.text import counted
from trainables.files.sources import hash_now

RUNS = "runs"  # folder of studies, in the working directory
RECORDS = "records.jsonl"  # an export
DEV_TABLE = "tables/dev.md"  # written by `analysis`
DEV_NUMBERS = "tables/dev.json"  # written by `analysis`: the numbers of `DEV_TABLE` in full
ANSWER = "tables/answer.md"  # written by `analysis`
BROWSE = "browse.txt"  # written by `study.mirror`: how to browse the runs
MIRROR_LOG = "mirror.log"  # output of the process that copies the study into MLflow
WORKERS_LOG = "workers.log"  # output of the training processes
_BEGAN, _ENDED, _STARTED = (b'{"event":"%b"' % name for name in (b"launch_began", b"launch_ended", b"trial_started"))


def read_export(folder: Path, name: str) -> str:
    """Read a text file that `analysis` wrote, such as `DEV_TABLE`; "" if the file is missing."""
    return (folder / name).read_text() if (folder / name).is_file() else ""


def read_mean_intervals(folder: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    """Read the confidence intervals of mean scores from `DEV_NUMBERS`; return {} if the file is missing.

    A key of the result is the tuple of keys of the averaged records. A value is the interval (low, high).
    """
    numbers = json.loads(read_export(folder, DEV_NUMBERS) or "{}")
    records = {(cell["row"], cell["task"]): tuple(cell["records"]) for cell in numbers.get("cells", [])}
    return {records[mean["row"], mean["task"]]: (mean["low"], mean["high"]) for mean in numbers.get("means", [])}


@dataclass(frozen=True)
class JournalDigest:
    """The digest of a study's journal, as shown in tables, in the report and in MLflow."""

    sha256: str
    lines: int

    def describe(self) -> str:
        """Format the digest, all of its digits, and the number of lines: `DIGEST, 412 lines`."""
        return f"{self.sha256}, {counted(self.lines, 'line')}"

    @property
    def short(self) -> str:
        """The first 16 digits of the digest and the number of lines, for captions."""
        return f"{self.sha256[:16]} ({counted(self.lines, 'line')})"


def compute_journal_digest(folder: Path, *, first: int | None = None) -> JournalDigest:
    """Compute the SHA-256 of the journal's complete lines, as `head -n LINES events.jsonl | sha256sum` does.

    A final `launch_ended` line is ignored, because it is written after the tables and the report, and so are blank
    lines at the end. `first` is the maximum number of lines.
    """
    path = folder / FILE
    content = path.read_bytes() if path.exists() else b""
    lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
    while lines and not lines[-1].strip():
        lines.pop()
    if lines and lines[-1].startswith(_ENDED):
        lines.pop()
    lines = lines[:first]
    return JournalDigest(hashlib.sha256(b"".join(lines)).hexdigest(), len(lines))


def compute_plan_digest(folder: Path) -> str:
    """Compute the digest of the plan at the start of the first trial; "" if the journal has no launch."""
    plan = None
    with (folder / FILE).open("rb") as file:
        for line in file:
            if line.startswith(_STARTED) or not line.endswith(b"\n"):
                break
            plan = json.loads(line)["plan"] if line.startswith(_BEGAN) else plan
    return digest(plan) if plan else ""


def predictions_file(folder: Path, key: str) -> Path:
    """Return the path of a confirm trial's file of predictions."""
    return folder / "predictions" / f"{key}.npz"


def compute_predictions_digest(folder: Path, key: str) -> str | None:
    """Compute the SHA-256 of a confirm trial's file of predictions; None if the file is missing."""
    path = predictions_file(folder, key)
    return hash_now(path) if path.exists() else None
