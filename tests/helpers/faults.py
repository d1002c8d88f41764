"""Breaks what a running study stands on, at random moments, and mends it again, until the study is done.

    python -m helpers.faults --faults 30

The long form of tests/study/test_faults.py. Only processes and files of the study are touched.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import psutil
from helpers import shifted_clock
from helpers.glue_folders import write_glue
from helpers.launches import local_workers
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.started_processes import descendants, kill, kill_all
from helpers.trials import check_as_alone

from analysis.verify import verify
from study.facts.study_facts import read_facts

BAD_NODE_SECONDS = 300.0  # for its start, and for trials to break off there
HOUR_SECONDS = 3600
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
    """A study on this machine; its data and its storage lie beside it. What is away is so for `away_seconds`."""

    home: Path
    arguments: list[str]
    seeds: int  # so many confirm trials, and more where the study is done before the faults are
    random: random.Random
    away_seconds: float
    driver: str = "ray"
    caused: Counter = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.folder, self.data, self.storage = self.home / "study", self.home / "data", self.home / "storage"
        write_glue(self.data)
        (self.home / "python").mkdir()
        shutil.copy(shifted_clock.__file__, self.home / "python" / "sitecustomize.py")
        self._set_clock(0)
        self.kinds: dict[str, Callable[[], bool]] = {
            "clock jumps": self._jump,
            "data away": lambda: self._move_away(self.data),
            "storage away": lambda: self._move_away(self.storage),
            "disk full": self._fill_disk,
            "damaged state": self._damage_state,
            "missing model": self._remove_model,
            "frozen process": self._freeze,
            "killed process": self._kill,
        }
        of_ray: dict[str, Callable[[], bool]] = {
            "bad node": self._join_bad_node,
            "killed raylet": lambda: self._kill_of_ray("raylet"),
            "killed GCS": lambda: self._kill_of_ray("gcs_server"),
        }
        self.kinds |= of_ray if self.driver == "ray" else {}

    def run(self, *, faults: int, epochs: int) -> None:
        """Breaks something `faults` times, each kind in turn, spread over the `epochs` that the study will report.

        What the end of a launch left nothing of to break comes first in the next one.
        """
        self._launch()
        try:
            kinds = cycle(self.kinds)
            kind = next(kinds)
            while True:
                while (caused := sum(self.caused.values())) < faults:
                    if not self._wait_for(int(epochs * (caused + self.random.random()) / (faults + 1))):
                        break
                    kind = next(kinds) if self._cause(kind) else kind
                assert self._launcher.wait(timeout=PATIENCE_SECONDS) == 0, self.log()
                if caused >= faults:
                    return
                self.seeds += 2
                self._launch()
        finally:
            self._launcher.terminate()

    def log(self) -> str:
        """The end of what the launch has printed."""
        return (self.home / "launch.log").read_text()[-4000:]

    def count(self, event: str) -> int:
        """Events of a kind in the journal."""
        events = self.folder / "events.jsonl"
        return events.read_bytes().count(f'"event":"{event}"'.encode()) if events.exists() else 0

    def _launch(self) -> None:
        asked = [*self.arguments, "--seeds", str(self.seeds), "--tracking-uri", "none", "--driver", self.driver]
        command = [sys.executable, "-m", "study.launch", *asked]
        where = ["--data", self.data, "--storage", self.storage, "--out", self.home, "--name", self.folder.name]
        own = {"PYTHONPATH": str(self.home / "python"), "SHIFTED_CLOCK": str(self.home / "clock")}
        own["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"  # Ray waits for a minute
        with (self.home / "launch.log").open("a") as log:
            launched = [*command, *map(str, where)]
            self._launcher = subprocess.Popen(launched, stdout=log, stderr=log, cwd=ROOT, env=os.environ | own)

    def _wait_for(self, epochs: int) -> bool:
        """Waits until so many epochs are in the journal, and one more since the last fault; False: it is done."""
        epochs = max(epochs, self.count("epoch_reported") + 1)
        return self._wait_until(lambda: self.count("epoch_reported") >= epochs) and self._launcher.poll() is None

    def _wait_until(self, happened: Callable[[], bool]) -> bool:
        """False: the launch has ended before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            if self._launcher.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        return True

    def _cause(self, kind: str) -> bool:
        """Waits until there is something of the kind to break; False: the launch has ended before. A bad node is tried
        once, and that is it: it takes its own time."""
        cause, is_bad_node = self.kinds[kind], kind == "bad node"
        done = cause() if is_bad_node else self._wait_until(cause)
        self.caused[kind] += done
        print(f"{self.count('epoch_reported')} epochs, {kind}: {'caused' if done else 'nothing to break'}", flush=True)
        return done or is_bad_node

    def _processes(self, name: str) -> list[psutil.Process]:
        """Those of the launch with this in their name."""
        return descendants(self._launcher.pid, name)

    def _workers(self) -> list[psutil.Process]:
        """Those that train."""
        if self.driver == "local":
            return local_workers(self._launcher.pid)
        return self._processes("ResourceTrainable")

    def _move_away(self, folder: Path) -> bool:
        away = folder.rename(folder.with_name("away"))
        time.sleep(self.away_seconds)
        assert not folder.exists(), f"{folder} was made anew"
        away.rename(folder)
        return True

    def _fill_disk(self) -> bool:
        """A limit on the size of files stands in for the disk."""
        workers = self._workers()
        if not workers:
            return False
        for worker in workers:
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
        time.sleep(self.away_seconds)
        for worker in workers:
            if worker.is_running():
                resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return True

    def _damage_state(self) -> bool:
        """After the workers are gone: a trial that ends takes its state away."""
        if not any(self.storage.glob("*/trials/*/state.pt")) or not self._kill():
            return False
        states = sorted(self.storage.glob("*/trials/*/state.pt"))
        for state in states:
            state.write_bytes(state.read_bytes()[: self.random.randrange(1000)])
        return bool(states)

    def _remove_model(self) -> bool:
        """Of trials that are not over: a model that is lost after that is lost for good."""
        if not unfinished_models(self.folder, self.storage) or not self._kill():
            return False
        models = unfinished_models(self.folder, self.storage)
        for model in models:
            shutil.rmtree(model)
        return bool(models)

    def _freeze(self) -> bool:
        workers = self._workers()
        if workers:
            frozen = self.random.choice(workers)
            frozen.send_signal(signal.SIGSTOP)
            time.sleep(self.away_seconds)
            frozen.send_signal(signal.SIGCONT)
        return bool(workers)

    def _kill(self) -> bool:
        workers = self._workers()
        kill(workers)
        psutil.wait_procs(workers, timeout=PATIENCE_SECONDS)
        return bool(workers)

    def _jump(self) -> bool:
        """Hours ahead, then back to hours ago."""
        self._set_clock(self.random.randrange(1, 12) * HOUR_SECONDS)
        time.sleep(self.away_seconds)
        self._set_clock(-self.random.randrange(1, 12) * HOUR_SECONDS)
        return True

    def _set_clock(self, shift: int) -> None:
        (self.home / "next").write_text(str(shift))
        (self.home / "next").replace(self.home / "clock")

    def _kill_of_ray(self, name: str) -> bool:
        """The launch ends by itself, and is launched again, as a person would."""
        kill(self._processes(name))
        status = self._launcher.wait(timeout=PATIENCE_SECONDS)
        if status:
            self._launch()
        return bool(status)

    def _join_bad_node(self) -> bool:
        """A second node of the launch's Ray, on which nothing can be cached; until a trial has broken off there."""
        raylets = self._processes("raylet")
        if not raylets:
            return False
        (address,) = [word for word in raylets[0].cmdline() if word.startswith("--gcs-address=")]
        command = [sys.executable, "-m", "helpers.joined_node", address.partition("=")[2]]
        broken = {"XDG_CACHE_HOME": "/proc/none", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "RAY_AUTH_MODE": "token"}
        before, until = self.count("trial_retried"), time.monotonic() + BAD_NODE_SECONDS
        with (self.home / "node.log").open("a") as log:
            node = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | broken)
        try:
            self._wait_until(lambda: self.count("trial_retried") > before or time.monotonic() > until)
        finally:
            kill_all(node)
        return self.count("trial_retried") > before


def unfinished_models(folder: Path, storage: Path) -> list[Path]:
    """Of trials that are not over."""
    trials = read_facts(folder).under_way
    return [model for key in trials for model in storage.glob(f"*/trials/{key}/model-epoch-*")]


def run_faulty(
    home: Path,
    arguments: list[str],
    *,
    driver: str,
    seeds: int,
    faults: int,
    seed: int,
    epochs: int,
    away_seconds: float = 4.0,
) -> FaultyStudy:
    """A study in a new folder, to its end; `epochs`: that it will report, for the moments of the faults."""
    study = FaultyStudy(home, arguments, seeds, random.Random(seed), away_seconds, driver)
    study.run(faults=faults, epochs=epochs)
    return study


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=35)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--driver", choices=("ray", "local"), default="ray")
    options = parser.parse_args()
    # A trial is longer than an actor's start, and more wait than run: a node that joins is used.
    arguments = [*ARGUMENTS, "--samples", "5", "--epochs", "30"]
    arguments[arguments.index("grid")] = "random"
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        how = {"driver": options.driver, "faults": options.faults, "seed": options.seed}
        study = run_faulty(home / "faulty", arguments, seeds=9, epochs=14 * 30, **how)
        print(f"{sum(study.caused.values())} faults {dict(study.caused)}")
        counts = check_as_alone(study.folder, home / "cache")
        assert set(counts) == {"completed"}, counts
        print(f"{counts['completed']} trials are as they are where nothing happens")
        assert (study.folder / "tables" / "dev.csv").exists()
        if drift := verify(study.folder):
            raise SystemExit("\n".join(drift))


if __name__ == "__main__":
    main()
