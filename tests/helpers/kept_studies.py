"""Studies of released formats, one per format, kept as test data: tests/study/formats/N.

    python -m helpers.kept_studies

writes that of today's format anew, with the schema of its files. Once a format is released, its folder stays as it is.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from helpers.launches import WITHOUT_RAY
from helpers.places import PATIENCE_SECONDS, ROOT

from study.facts.events import FILE, FORMAT, Event
from study.facts.plan_file import PlanFile
from study.facts.study_facts import read_facts

FORMATS = ROOT / "tests" / "study" / "formats"
STUDY = ["--method", "palbert", "--task", "rte", "--profile", "mini", "--samples", "2", "--seeds", "2", "--epochs", "2"]
STUDY += ["--selection", "dev"]  # of the study of format 2; the profile now has a holdout


def launch(folder: Path) -> None:
    """Runs the study of that name to its end, or goes on with it."""
    where = ["--out", str(folder.parent), "--name", folder.name, "--tracking-uri", "none", *WITHOUT_RAY]
    command = [sys.executable, "-m", "study.launch", *STUDY, *where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr


def schema(predictions: Path) -> list[str]:
    """A line for each field of events and plan, and for each array of predictions."""
    lines = [*_fields()]
    with np.load(predictions, allow_pickle=False) as arrays:
        lines += [f"predictions {name}: {array.dtype.kind}, {array.ndim} axes" for name, array in arrays.items()]
    return sorted(lines)


def _fields() -> Iterator[str]:
    for name, definition in msgspec.json.schema_components([Event, PlanFile])[1].items():
        for field, schema in definition.get("properties", {}).items():
            need = "required" if field in definition.get("required", []) else "optional"
            plain = json.dumps(schema, sort_keys=True).replace("#/$defs/", "").replace('{"$ref": ', "{")
            yield f"{name}.{field}: {need}, {plain}"


def keep(target: Path, home: Path) -> None:
    """Puts a study there that was killed in the first epoch of its last trial."""
    folder = home / "study"
    launch(folder)
    last = [*read_facts(folder).trials][-1]
    lines = (folder / FILE).read_bytes().splitlines(keepends=True)
    reported = next(number for number, line in enumerate(lines) if b"epoch_reported" in line and last.encode() in line)
    shutil.rmtree(target, ignore_errors=True)
    (target / "predictions").mkdir(parents=True)
    (target / "schema.txt").write_text("\n".join(schema(folder / "predictions" / f"{last}.npz")) + "\n")
    shutil.copy(folder / "plan.json", target)
    (target / FILE).write_bytes(b"".join(lines[: reported + 1]))
    for path in (folder / "predictions").glob("*.npz"):
        if path.stem != last:
            shutil.copy(path, target / "predictions")


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        keep(FORMATS / str(FORMAT), Path(home))


if __name__ == "__main__":
    main()
