"""Breaks what a running study stands on, at random moments, and mends it again, until the study is done.

    python -m helpers.faults --faults 30

The long form of tests/study/test_faults.py. Only processes and files of the study are touched.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from helpers.glue_folders import write_glue
from helpers.places import ROOT
from helpers.trials import run_to_the_end

from study.decisions.specs import trial_spec
from study.facts.study_facts import read_facts
from study.plans.plan_file import require_plan

AWAY_SECONDS = 4.0
DEADLINE_SECONDS = 300.0
ARGUMENTS = [
    "--method",
    "albert",
    "--task",
    "rte",
    "--profile",
    "mini",
    "--sampler",
    "grid",
    "--early-stopping",
    "none",
]


@dataclass
class FaultyStudy:
    """A study on this machine; its data and its storage lie beside it."""

    home: Path
    arguments: list[str]
    random: random.Random
    caused: Counter = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.folder, self.data, self.storage = self.home / "study", self.home / "data", self.home / "storage"
        write_glue(self.data)
        self.kinds: dict[str, Callable[[], bool]] = {
            "data away": lambda: self._move_away(self.data),
            "storage away": lambda: self._move_away(self.storage),
            "disk full": self._fill_disk,
            "damaged state": self._damage_state,
            "missing model": self._remove_model,
            "frozen process": self._freeze,
            "killed process": self._kill,
        }

    def run(self, *, faults: int, epochs: int) -> None:
        """Breaks something `faults` times, each kind in turn, spread over the `epochs` that the study will report."""
        with self._launched() as launcher:
            for number in range(faults):
                if not self._wait_for(int(epochs * (number + self.random.random()) / (faults + 1)), launcher):
                    break
                self._cause(list(self.kinds)[number % len(self.kinds)])
            status = launcher.wait(timeout=2 * DEADLINE_SECONDS)
            assert status == 0, self.log()

    def log(self) -> str:
        """The end of what the launch has printed."""
        return (self.home / "launch.log").read_text()[-4000:]

    def epochs(self) -> int:
        """Epochs in the journal."""
        events = self.folder / "events.jsonl"
        return events.read_bytes().count(b'"event":"epoch_reported"') if events.exists() else 0

    @contextmanager
    def _launched(self) -> Iterator[subprocess.Popen]:
        command = [sys.executable, "-m", "study.launch", *self.arguments, "--tracking-uri", "none"]
        where = ["--data", self.data, "--storage", self.storage, "--out", self.home, "--name", self.folder.name]
        with (self.home / "launch.log").open("a") as log:
            launcher = subprocess.Popen([*command, *map(str, where)], stdout=log, stderr=log, cwd=ROOT)
        self._launcher = psutil.Process(launcher.pid)
        try:
            yield launcher
        finally:
            launcher.terminate()

    def _wait_for(self, epochs: int, launcher: subprocess.Popen) -> bool:
        """Waits until so many epochs are in the journal, and one more since the last fault; False: it is done."""
        epochs, deadline = max(epochs, self.epochs() + 1), time.monotonic() + DEADLINE_SECONDS
        while self.epochs() < epochs:
            if launcher.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        return launcher.poll() is None

    def _cause(self, kind: str) -> None:
        """Tries until there is something of the kind to break."""
        deadline = time.monotonic() + AWAY_SECONDS
        while not (done := self.kinds[kind]()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.caused[kind] += done

    def _workers(self) -> list[psutil.Process]:
        """The actors that train."""
        return [child for child in self._launcher.children(recursive=True) if "ResourceTrainable" in child.name()]

    def _move_away(self, folder: Path) -> bool:
        away = folder.rename(folder.with_name("away"))
        time.sleep(AWAY_SECONDS)
        assert not folder.exists(), f"{folder} was made anew"
        away.rename(folder)
        return True

    def _fill_disk(self) -> bool:
        """A limit on the size of files stands in for the disk."""
        workers = self._workers()
        for worker in workers:
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
        time.sleep(AWAY_SECONDS)
        for worker in workers:
            if worker.is_running():
                resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return bool(workers)

    def _damage_state(self) -> bool:
        states = sorted(self.storage.glob("trials/*/state.pt"))
        if not states or not self._workers():
            return False
        for state in states:
            state.write_bytes(state.read_bytes()[: self.random.randrange(1000)])
        return self._kill()

    def _remove_model(self) -> bool:
        models = sorted(path.parent for path in self.storage.glob("trials/*/state.pt") if self._workers())
        for folder in models:
            for model in folder.glob("model-epoch-*"):
                shutil.rmtree(model, ignore_errors=True)
        return bool(models) and self._kill()

    def _freeze(self) -> bool:
        workers = self._workers()
        if workers:
            frozen = self.random.choice(workers)
            frozen.send_signal(signal.SIGSTOP)
            time.sleep(AWAY_SECONDS)
            frozen.send_signal(signal.SIGCONT)
        return bool(workers)

    def _kill(self) -> bool:
        workers = self._workers()
        for worker in workers:
            worker.kill()
        return bool(workers)


def run_faulty(home: Path, arguments: list[str], *, faults: int, seed: int, epochs: int) -> FaultyStudy:
    """A study in a new folder, to its end; `epochs`: that it will report, for the moments of the faults."""
    study = FaultyStudy(home, arguments, random.Random(seed))
    study.run(faults=faults, epochs=epochs)
    return study


def check_undisturbed(folder: Path, cache: Path) -> int:
    """Trains each trial of the study here, where nothing happens to it; how many there are. AssertionErrors say what
    came out otherwise."""
    plan, facts = require_plan(folder).plan, read_facts(folder)
    for record in facts.records:
        assert record.status == "completed", record.error
        run = run_to_the_end(trial_spec(plan, facts, facts.trials[record.key]), cache)
        alone = run.outcome()
        for name in ("score", "metrics", "epoch", "epochs", "mean_layers"):
            assert getattr(record, name) == getattr(alone, name), (record.key, name)
    assert len({record.key for record in facts.records}) == len(facts.records), "a record is doubled"
    return len(facts.records)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=35)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    arguments = [*ARGUMENTS, "--samples", "6", "--seeds", "5", "--epochs", "8"]
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        study = run_faulty(home / "faulty", arguments, faults=options.faults, seed=options.seed, epochs=11 * 8)
        print(f"{sum(study.caused.values())} faults {dict(study.caused)}")
        print(f"{check_undisturbed(study.folder, home / 'cache')} trials are as they are where nothing happens")


if __name__ == "__main__":
    main()
