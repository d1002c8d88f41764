"""A trial's place with made-up states, for tests of the storage."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.places import PATIENCE_SECONDS

from study.facts.study_facts import read_facts
from study.storage.study_storage import StudyStorage
from study.storage.trial_places import TrialPlace


def send(place: TrialPlace, *, epoch: int) -> None:
    """A made-up state, told apart by its epoch."""
    with place.work() as folder:
        for name in ("state.pt", "clock.json", f"model-epoch-{epoch}/model.json"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{epoch} " * 1000)
        (folder / "predictions.npz").write_text("answers")
        place.send_state(folder, epoch=epoch)
        place.send_outcome(folder / f"model-epoch-{epoch}")


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@contextmanager
def s3_server(port: int) -> Iterator[None]:
    """An S3 server of this machine with one empty bucket."""
    where = ["-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-m", "moto.server", *where], **quiet)
    try:
        _make_bucket(f"http://127.0.0.1:{port}/bucket", server)
        yield
    finally:
        server.terminate()
        server.wait()


def _make_bucket(url: str, server: subprocess.Popen) -> None:
    for _ in range(2 * PATIENCE_SECONDS):
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5)
            return
        except OSError:
            assert server.poll() is None
            time.sleep(0.1)
    raise TimeoutError(url)


def address_of(folder: Path) -> str:
    """Where the last launch of a study kept its trials: its own area in a storage that studies share."""
    began = read_facts(folder).last_launch.began
    return StudyStorage(began.storage or str(folder), began.area).address
