"""Mirrors a study into MLflow, while it runs or afterwards: `python -m study.mirror runs/NAME`.

Reads the study's journal and never writes to the study, but for its own lock and the default store. Running it again
changes nothing; after an outage of the tracking server it goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from study.mirrored_runs import Run, StudyFacts, StudyRuns
from study.record import read_records
from study.tracking import Tracking, default_uri, is_fatal, masked, outages, prepare_environment, reason

POLL_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0
LOCK_SECONDS = 300.0  # how long a follower waits for the follower of the launch before
FILES = {"": ("plan.json", "report.html"), "tables": ("tables/*",), "pictures": ("pictures/*",)}


class EventTail:
    """The events of a journal as they come: whole lines only, so that a torn last line is left for later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._line = 0

    def read(self) -> list[dict[str, Any]]:
        """The events since the last call. ValueError names file and line of one that is not JSON."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [self._parse(line) for line in whole.splitlines()]

    def _parse(self, line: bytes) -> dict[str, Any]:
        self._line += 1
        try:
            return json.loads(line)
        except ValueError:
            raise ValueError(f"{self._path}:{self._line}: not a JSON object: {line[:60]!r}") from None


class Mirror:
    """One study folder on its way into one tracking store."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder, self.uri = folder, uri
        self.facts = StudyFacts()
        self.tracking: Tracking | None = None
        self._tail = EventTail(folder / "events.jsonl")
        self._changed: set[str] = set()  # keys of trials to be written

    def read(self) -> None:
        """Takes in what the journal says by now."""
        for event in self._tail.read():
            key = self.facts.apply(event)
            self._changed |= {key} if key else self._open_trials()

    def launch_is_over(self) -> bool:
        return self.facts.last_launch is not None and self.facts.last_launch.is_over()

    def write(self, *, final: bool) -> None:
        """Writes what changed; with `final` also tables and report, and what became of trials that were cut off."""
        if self.facts.last_launch is None:
            return
        if final:
            self._changed |= self._open_trials()
        if self.tracking is None:
            self.tracking = self._connect()
            self._changed = set(self.facts.trials)
        for run in self._runs(final):
            self.tracking.write(run)
            self._changed.discard(run.key)

    def _runs(self, final: bool) -> list[Run]:
        """Parents before children, because a child names its parent's id."""
        runs = StudyRuns(self.folder.resolve().name, json.loads((self.folder / "plan.json").read_text()), self.facts)
        arms = dict.fromkeys(self.facts.trials[key].arm for key in self.facts.trials if key in self._changed)
        return [
            runs.study(files=self._files() if final else {}, note=self._table()),
            *(runs.arm(method, task) for method, task in arms),
            *(runs.trial(key) for key in self.facts.trials if key in self._changed),
        ]

    def _open_trials(self) -> set[str]:
        return {key for key, trial in self.facts.trials.items() if trial.ended is None}

    def _connect(self) -> Tracking:
        return Tracking(
            self.uri,
            experiment=self.folder.resolve().name,
            study_id=self._study_id(),
            artifacts=self.folder.resolve() / "mlartifacts",
        )

    def _study_id(self) -> str:
        """Tells this study from others of its name: a digest of the first line ever written to its journal."""
        with (self.folder / "events.jsonl").open("rb") as file:
            return hashlib.sha256(file.readline()).hexdigest()[:12]

    def _table(self) -> str:
        path = self.folder / "tables" / "dev.md"
        return path.read_text() if path.exists() else ""

    def _files(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(str(path) for pattern in patterns for path in sorted(self.folder.glob(pattern)))
            for name, patterns in FILES.items()
        }


def mirror(folder: Path, uri: str, *, follow: bool = False, patience: float = 60.0) -> Mirror:
    """Writes the study in `folder` to the store at `uri`; with `follow` until its launch is over.

    TimeoutError: the store was away for `patience` seconds after that. ValueError: a broken journal, or a store that
    refuses.
    """
    mirrored, pause, deadline = Mirror(folder, uri), POLL_SECONDS, None
    while True:
        final = not follow or mirrored.launch_is_over()  # asked before reading: what came before the end is read below
        mirrored.read()
        try:
            mirrored.write(final=final)
        except outages() as error:
            if is_fatal(error):
                raise ValueError(f"{masked(uri)} refuses: {reason(error)}") from None
            mirrored.tracking, pause = None, min(2 * pause, LONGEST_PAUSE_SECONDS)
            deadline = deadline or (time.monotonic() + patience if final else None)
            if deadline and time.monotonic() > deadline:
                raise TimeoutError(f"{masked(uri)} is away: {reason(error)}") from None
        else:
            pause = POLL_SECONDS
            if final:
                return mirrored
        time.sleep(pause)


def register_models(mirrored: Mirror) -> None:
    """Puts the confirm models into the registry, and says so of each."""
    from study.registration import register

    assert mirrored.tracking is not None, "a mirrored study has its store"
    records = read_records(mirrored.folder / "records.jsonl")
    for model in register(mirrored.tracking, records, study=mirrored.folder.resolve().name):
        print(f"registered {model.name} version {model.version} (trial {model.key})", flush=True)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    folder: Path = options.folder
    uri = options.tracking_uri or default_uri(folder)
    if not (folder / "events.jsonl").exists():
        print(f"study.mirror: no events.jsonl in {folder}; allowed: the folder of a study", file=sys.stderr)
        return 2
    prepare_environment()
    began = time.monotonic()
    try:
        with FileLock(folder / "mirror.lock", timeout=LOCK_SECONDS if options.follow else 0):
            mirrored = mirror(folder, uri, follow=options.follow, patience=options.patience)
            if options.register:
                register_models(mirrored)
    except Timeout:
        print(f"study.mirror: {folder} is being mirrored by another process; try again when it ended", file=sys.stderr)
    except ValueError as error:
        print(f"study.mirror: {error}", file=sys.stderr)
    except TimeoutError as error:
        later = f"python -m study.mirror {folder} --tracking-uri {masked(uri)}"
        print(f"study.mirror: {error}. Nothing is lost; mirror later: {later}", file=sys.stderr)
    else:
        seconds = time.monotonic() - began
        print(f"mirrored {len(mirrored.facts.trials)} trials of {folder} to {masked(uri)} in {seconds:.1f} s")
        return 0
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m study.mirror", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the study's folder, runs/NAME")
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow store or server (default: FOLDER/mlflow.db)")
    parser.add_argument("--follow", action="store_true", help="go on until the study's launch is over")
    parser.add_argument("--register", action="store_true", help="register the confirm models of each arm afterwards")
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="wait for a server that is away (%(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
