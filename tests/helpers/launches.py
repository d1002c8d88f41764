"""Launches of a study in processes of their own, killed and launched again by whoever asks."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from helpers.places import PATIENCE_SECONDS, ROOT

ONE_AT_A_TIME = ("--cpus-per-trial", "1.6")  # on two cores, each with one thread: one actor to start instead of two
WITHOUT_RAY = ("--driver", "local", *ONE_AT_A_TIME)  # for what is not about Ray, which takes long to start


def local_workers(launcher: int) -> list[psutil.Process]:
    """The processes that train of a launch with `--driver local`."""
    found = []
    for child in psutil.Process(launcher).children():
        with suppress(psutil.Error):  # it may be ending
            found += [child] * ("study.drivers.trial_process" in child.cmdline())
    return found


@dataclass
class Launches:
    """Launches of one study, one after another; where they print lies beside its folder."""

    folder: Path
    arguments: list[str]
    random: random.Random

    def launch(self, *more: str) -> subprocess.Popen:
        """The study's next launch, in a process."""
        command = [sys.executable, "-m", "study.launch", *self.arguments, *more]
        where = ["--out", str(self.folder.parent), "--name", self.folder.name, "--tracking-uri", "none"]
        with self._log.open("a") as log:
            return subprocess.Popen([*command, *where], stdout=log, stderr=log, cwd=ROOT)

    def wait_for(self, epochs: int, launcher: subprocess.Popen) -> bool:
        """Waits until so many epochs are in the journal, and one more since the last kill; False: the study is done."""
        epochs, deadline = max(epochs, self.epochs() + 1), time.monotonic() + PATIENCE_SECONDS
        while self.epochs() < epochs:
            if launcher.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.printed()
            time.sleep(0.05)
        time.sleep(self.random.random() / 10)
        return launcher.poll() is None

    def epochs(self) -> int:
        """Epochs in the journal."""
        events = self.folder / "events.jsonl"
        return events.read_bytes().count(b'"event":"epoch_reported"') if events.exists() else 0

    def finish(self, launcher: subprocess.Popen) -> None:
        """Waits for the end of the study."""
        assert launcher.wait(timeout=PATIENCE_SECONDS) == 0, self.printed()

    def printed(self) -> str:
        """The end of what the launches have said."""
        return self._log.read_text()[-4000:]

    @property
    def _log(self) -> Path:
        return self.folder.parent / "launches.log"
