"""Flips one bit of one file of an interrupted or finished study, launches the study again, and compares its records.

    python -m helpers.bit_flips --flips 200

The long form of tests/study/test_bit_flips.py. A study is stopped for a moment at each of its events, and all of its
files are copied: the study's folder, the storage and the cache of tokenised data. Each flip begins with such a copy.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
from helpers.launches import ONE_AT_A_TIME
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.started_processes import kill_all

from analysis.verify import verify
from study.facts.events import read_events
from study.facts.study_facts import read_facts
from study.storage.models import DamagedModel, local_model, locate_model
from trainables.configuration.schema import to_plain

WAYS = {  # name -> arguments of a launch; HOME stands for the folder with all files
    "local": "--driver local --tracking-uri none",
    "local, --storage FOLDER": "--driver local --tracking-uri none --storage HOME/storage",
    "local, --storage URI": "--driver local --tracking-uri none --storage file://HOME/storage",
    "local, MLflow": "--driver local",
    "ray": "--driver ray --tracking-uri none",
    "ray, --storage FOLDER": "--driver ray --tracking-uri none --storage HOME/storage",
}
SMALLEST = "--method albert --task rte --profile mini --samples 1 --sampler random --early-stopping none"
KINDS = {  # kind of file -> pattern of its path
    "plan.json": r"plan\.json",
    "events.jsonl": r"events\.jsonl",
    "launch.lease": r"launch\.lease",
    "logs": r".*\.log|steps\.json|browse\.txt",
    "predictions": r"predictions/.*|.*/predictions\.npz",
    "state": r".*/(state\.pt|state-.*\.zip)",
    "clock.json": r".*/clock\.json",
    "weights": r".*/model\.safetensors",
    "model.json": r".*/model\.json",
    "tokenizer": r".*/model-epoch-\d+/tokenizer.*",
    "tokens": r"glue-exit-study/.*",
    "MLflow": r"mlflow\.db.*|mlartifacts/.*",
    "exports": r"(tables|pictures)/.*|report\.html|records\.jsonl|best\.toml|optuna\.journal",
}
LONGEST_SECONDS = 600.0  # of a launch
RESULTS = ("status", "score", "epoch", "predictions_digest", "model_digest")
FAULTS = ("wrong records", "traceback", "unnoticed", "too slow")  # outcomes that may not happen


@dataclass
class Flip:
    """A flipped bit: what was launched, when it was interrupted, and which bit of which file was flipped."""

    way: str
    events: int
    kind: str
    path: str
    bit: int
    outcome: str = ""
    word: str = ""

    def __str__(self) -> str:
        return f"{self.outcome}: {self.way}, {self.events} events, {self.path}, bit {self.bit}: {self.word}"


@dataclass
class Imaged:
    """A study that ran undisturbed, and copies of its files after each of its events."""

    way: str
    home: Path
    images: Path
    more: list[str]

    def __post_init__(self) -> None:
        self.study = self.home / "runs" / "study"
        for name in ("runs", "storage", "cache"):
            (self.home / name).mkdir(parents=True)
        self._take_images()
        self.results, self.restarts = self._results(), self._count_restarts()

    def _take_images(self) -> None:
        """Stop the launch and all that it started for a moment, whenever the journal has grown."""
        launcher, size, deadline = self._launch(), 0, time.monotonic() + PATIENCE_SECONDS
        try:
            while launcher.poll() is None:
                assert time.monotonic() < deadline, self._printed()
                if self._journal_size() != size:
                    with _stopped(launcher):
                        size = self._journal_size()
                        self._copy()
                time.sleep(0.005)
        finally:
            kill_all(launcher)
        assert launcher.returncode == 0, self._printed()
        self._copy()

    def _journal_size(self) -> int:
        with suppress(FileNotFoundError):
            return (self.study / "events.jsonl").stat().st_size
        return 0

    def _copy(self) -> None:
        shutil.copytree(self.home, self.images / f"{len(list(self.images.glob('*'))):03}", symlinks=True)

    @cached_property
    def files(self) -> dict[str, list[tuple[Path, Path]]]:
        """Kind -> the image and the path of each file of this kind that is not empty."""
        found: dict[str, list[tuple[Path, Path]]] = {}
        for image in sorted(self.images.iterdir()):
            for path in sorted(image.rglob("*")):
                if path.is_file() and path.stat().st_size and (kind := find_kind(path.relative_to(image))):
                    found.setdefault(kind, []).append((image, path.relative_to(image)))
        return found

    def flip(self, kind: str, draw: random.Random) -> Flip:
        """Flip a random bit of a random file of this kind, launch the study again, and judge what happened."""
        image, path = draw.choice(self.files[kind])
        shutil.rmtree(self.home)
        shutil.copytree(image, self.home, symlinks=True)
        flip = Flip(self.way, len(read_events(self.study)), kind, str(path), flip_bit(self.home / path, draw))
        launcher = self._launch()
        try:
            launcher.wait(timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            flip.outcome = "too slow"
            return flip
        finally:
            kill_all(launcher)
        flip.outcome, flip.word = self._judge(launcher.returncode, path)
        return flip

    def _judge(self, status: int, path: Path) -> tuple[str, str]:
        """Return the outcome of a flip, and what was said of it."""
        printed = self._printed().splitlines()
        if any("Traceback" in line for line in printed):
            return "traceback", printed[-1]
        if status and not printed:
            return "unnoticed", f"exit status {status}"
        if status:
            with suppress(ValueError):  # the journal is what was damaged
                if not all(self.results.get(key) == found for key, found in self._results().items()):
                    return "wrong records", printed[-1]
            return "refused", printed[-1]
        if (found := self._results()) != self.results:
            return "wrong records", f"{found}, not {self.results}"
        said = [*verify(self.study), *self._damaged_models()]
        if said:
            return (
                "named" if all(path.parent.name in line or path.name in line for line in said) else "unnoticed"
            ), said[0]
        if self._count_restarts() > self.restarts:
            word = next((line for line in printed if "starts again" in line), "")
            return "restarted" if word else "unnoticed", word
        return "equal", ""

    def _damaged_models(self) -> list[str]:
        lines = []
        for record in read_facts(self.study).records:
            if record.model and record.phase == "confirm":
                try:
                    with local_model(locate_model(record, self.study).model or "", record.model_digest):
                        pass
                except DamagedModel as error:
                    lines.append(str(error))
        return lines

    def _results(self) -> dict[str, dict[str, Any]]:
        plain = {record.key: to_plain(record) for record in read_facts(self.study).records}
        return {key: {name: record[name] for name in RESULTS} for key, record in plain.items()}

    def _count_restarts(self) -> int:
        return (self.study / "events.jsonl").read_bytes().count(b'"event":"trial_restarted"')

    def _launch(self) -> subprocess.Popen:
        how = [*SMALLEST.split(), *self.more, *WAYS[self.way].replace("HOME", str(self.home)).split(), *ONE_AT_A_TIME]
        command = [sys.executable, "-m", "study.launch", *how, "--out", str(self.study.parent), "--name", "study"]
        own = {"XDG_CACHE_HOME": str(self.home / "cache"), "OMP_NUM_THREADS": "1"}
        with (self.home / "printed").open("w") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=os.environ | own)

    def _printed(self) -> str:
        return (self.home / "printed").read_text(errors="replace").strip()


class _stopped:  # noqa: N801  # used like a function
    """Stops a process and all that it has started inside the context."""

    def __init__(self, started: subprocess.Popen) -> None:
        self._root, self._all = psutil.Process(started.pid), list[psutil.Process]()

    def __enter__(self) -> None:
        for process in (self._root, *self._root.children(recursive=True)):
            with suppress(psutil.Error):
                process.suspend()
                self._all.append(process)

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._all):
            with suppress(psutil.Error):
                process.resume()


def find_kind(path: Path) -> str | None:
    """The kind of a file, by its path below the folder with all files; None: it is not the study's."""
    name = re.sub(r"^(runs/study|storage|cache)/", "", path.as_posix())
    return next((kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, name)), None)


def flip_bit(path: Path, draw: random.Random) -> int:
    """Flip a random bit of a file, and return its number. Size and dates stay, as on a bad disk."""
    content, status = bytearray(path.read_bytes()), path.stat()
    bit = draw.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return bit


def run_flips(
    home: Path, way: str, *, flips: int, seed: int, kinds: Iterable[str] = KINDS, more: Iterable[str]
) -> list[Flip]:
    """Flip so many bits of a study, of each kind of file in turn."""
    images = home / "images"
    images.mkdir(parents=True)
    imaged, draw, done = Imaged(way, home / "home", images, list(more)), random.Random(seed), list[Flip]()
    there = [kind for kind in kinds if kind in imaged.files]
    while len(done) < flips:
        done.append(imaged.flip(there[len(done) % len(there)], draw))
        print(done[-1], flush=True)
    return done


def tabulate(flips: Iterable[Flip]) -> str:
    """How many flips had which outcome, per kind of file."""
    counts = Counter((flip.kind, flip.outcome) for flip in flips)
    outcomes = sorted({outcome for _, outcome in counts})
    rows = [["file", *outcomes], *([kind, *(str(counts[kind, each]) for each in outcomes)] for kind in KINDS)]
    return "\n".join(" | ".join(f"{cell:>14}" for cell in row) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--way", choices=WAYS, action="append", help="default: each in turn, Ray more rarely")
    options = parser.parse_args()
    ways = options.way or list(WAYS)
    flips: list[Flip] = []
    for number, way in enumerate(ways):
        share = options.flips * (number + 1) // len(ways) - options.flips * number // len(ways)
        with tempfile.TemporaryDirectory() as temporary:
            more = ["--seeds", "2", "--epochs", "3"]
            flips += run_flips(Path(temporary), way, flips=share, seed=options.seed + number, more=more)
    print(tabulate(flips))
    if faults := [str(flip) for flip in flips if flip.outcome in FAULTS]:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
