"""A trial's place in the storage, a folder or a URI: what a worker finds there, leaves there, and what stays.

In a shared folder a trial works in place. Under a URI it works in a temporary folder of its node, and sends from there

    trials/KEY/state-3-81920.zip    all that goes on after epoch 3: one object of 81920 bytes
    trials/KEY/model-epoch-2/       the selected model of a confirm trial that has ended
    trials/KEY/predictions.npz      until the launcher has fetched it

A state is one object, so no part of it can be of another epoch, and its name says how many bytes it has, so one whose
upload broke off is passed over. Each has a name of its own: the state before is deleted after the new one is there.
"""

from __future__ import annotations

import fcntl
import functools
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from study.facts.record import Record
from study.storage.addresses import exists, is_uri, join, make_parent, open_uri
from trainables.atomic_files import write_atomically

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

P = ParamSpec("P")
R = TypeVar("R")

PREDICTIONS = "predictions.npz"
DESCRIPTION = "model.json"  # in a model's folder
OUTAGE_SECONDS = 600.0  # pyarrow itself gives up after some
STATE_NAME = re.compile(r"state-(\d+)-(\d+)\.zip")


class OutcomeGone(ValueError):
    """A trial has ended, and what it left is not there: it is handed out again."""


class TrialPlace(Protocol):
    """What is done with a trial's place, by its worker and by the launcher."""

    def work(self) -> AbstractContextManager[Path]:
        """Worker: the folder that the trial works in on this node, with its newest whole state."""
        ...

    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Worker: replaces the state by the one in `folder`, after each saved epoch and before its report."""
        ...

    def send_outcome(self, model: Path) -> str:
        """Worker: the address of a model that stays, once it and the predictions beside it, if any, are safe."""
        ...

    def has_work(self) -> bool:
        """Launcher: whether anything of the trial is there that would have to be done again."""
        ...

    def fetch_predictions(self, target: Path) -> None:
        """Launcher: puts the predictions of a trial into `target`, before its record is written.

        Raises:
            OutcomeGone: there are none.
        """
        ...

    def check_model(self, model: str) -> None:
        """Launcher: passes if the model of an ended trial is there, before its record is written.

        Raises:
            OutcomeGone: it is not.
        """
        ...

    def prune(self, record: Record) -> None:
        """Launcher: deletes what does not stay, after the record is written."""
        ...


def keeps_model(record: Record) -> bool:
    """The study's one rule of what stays: the model of a completed confirm trial, all else goes."""
    return record.phase == "confirm" and record.status == "completed"


def through_outages(action: Callable[P, R]) -> Callable[P, R]:
    """The action, tried again for a while where nobody answers: a trial is not to blame for that."""

    @functools.wraps(action)
    def patient(*args: P.args, **kwargs: P.kwargs) -> R:
        deadline = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                return action(*args, **kwargs)
            except FileNotFoundError:
                raise  # an answer
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)

    return patient


class TrialFolder:
    """A trial's place in a folder that every node sees."""

    def __init__(self, folder: Path):
        self._folder = folder

    @contextmanager
    def work(self) -> Iterator[Path]:
        """The trial's folder, once no other process works in it: an actor whose launcher was killed lives on a bit.

        The launcher has made the folder above it; one that is away (a share that is not mounted) is not made anew.
        """
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "trial.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._folder

    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Nothing: it is there."""

    def send_outcome(self, model: Path) -> str:
        """The model's address.

        Raises:
            FileNotFoundError: it is not there any more.
        """
        if not model.is_dir():
            raise FileNotFoundError(f"model {model} is missing")
        return str(model)

    def has_work(self) -> bool:
        """Whether the trial has saved an epoch there; its predictions are elsewhere."""
        return (self._folder / "state.pt").exists()

    def fetch_predictions(self, target: Path) -> None:
        """Nothing: the trial wrote them to the study's folder.

        Raises:
            OutcomeGone: it did, and they are there no more.
        """
        if not target.exists():
            raise OutcomeGone(f"the predictions are not in {target}")

    def check_model(self, model: str) -> None:
        """Passes if the model of the ended trial is there.

        Raises:
            OutcomeGone: it is not.
        """
        if not (Path(model) / DESCRIPTION).exists():
            raise OutcomeGone(f"the model is not in {model}")

    def prune(self, record: Record) -> None:
        """Deletes what does not stay now that the trial has ended."""
        if not keeps_model(record):
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for name in ("state.pt", "clock.json", "trial.lock"):
            (self._folder / name).unlink(missing_ok=True)


class TrialObjects:
    """A trial's place under a URI."""

    def __init__(self, uri: str):
        self._uri = uri
        self._files, self._path = through_outages(open_uri)(uri)

    @contextmanager
    def work(self) -> Iterator[Path]:
        """A temporary folder of this node with the newest whole state, if there is one."""
        with tempfile.TemporaryDirectory(prefix="glue-exit-study-") as temporary:
            folder = Path(temporary) / "trial"
            folder.mkdir()
            whole = {epoch: info for epoch, size, info in self._states() if size == info.size}
            if whole:
                archive = folder.with_name("state.zip")
                self._fetch(whole[max(whole)].path, archive)
                with suppress(zipfile.BadZipFile):  # then there is no state: the trial is trained anew
                    zipfile.ZipFile(archive).extractall(folder)
                archive.unlink()
            yield folder

    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Replaces the state under the URI by the one in `folder`."""
        archive = folder.with_name("state.zip")
        with zipfile.ZipFile(archive, "w") as file:  # not compressed: weights hardly shrink
            for path in folder.rglob("*"):
                file.write(path, path.relative_to(folder))
        self._send(archive, f"state-{epoch}-{archive.stat().st_size}.zip")
        archive.unlink()
        for earlier, _, info in self._states():
            if earlier < epoch:
                self._delete(info)

    def send_outcome(self, model: Path) -> str:
        """The model's address, once it and the predictions beside it, if any, are under the URI."""
        for path in (*model.iterdir(), *model.parent.glob(PREDICTIONS)):
            self._send(path, str(path.relative_to(model.parent)))
        return join(self._uri, model.name)

    def has_work(self) -> bool:
        """Whether a whole state is under the URI, or predictions that wait for the launcher."""
        is_waiting = any(info.base_name == PREDICTIONS for info in self._contents())
        return is_waiting or any(size == info.size for _, size, info in self._states())

    def fetch_predictions(self, target: Path) -> None:
        """Puts the predictions of the ended trial into `target`, whole or not at all.

        Raises:
            OutcomeGone: there are none.
        """
        try:
            write_atomically(target, lambda file: self._fetch(f"{self._path}/{PREDICTIONS}", file))
        except FileNotFoundError:
            raise OutcomeGone(f"the predictions are not in {join(self._uri, PREDICTIONS)}") from None

    def check_model(self, model: str) -> None:
        """Passes if the model of the ended trial is there.

        Raises:
            OutcomeGone: it is not.
        """
        if not through_outages(exists)(join(model, DESCRIPTION)):
            raise OutcomeGone(f"the model is not in {model}")

    def prune(self, record: Record) -> None:
        """Deletes what does not stay now that the trial has ended."""
        contents = self._contents()
        if contents and not keeps_model(record):
            self._delete_all()
            return
        for info in contents:
            if info.is_file:
                self._delete(info)

    def _states(self) -> Iterator[tuple[int, int, FileInfo]]:
        """Epoch and full size in bytes of each state, and what is there of it."""
        for info in self._contents():
            if named := STATE_NAME.fullmatch(info.base_name):
                yield int(named[1]), int(named[2]), info

    @through_outages
    def _contents(self) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        return self._files.get_file_info(FileSelector(self._path, allow_not_found=True))

    @through_outages
    def _delete(self, info: FileInfo) -> None:
        self._files.delete_file(info.path)

    @through_outages
    def _delete_all(self) -> None:
        self._files.delete_dir(self._path)

    @through_outages
    def _send(self, path: Path, name: str) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        target = f"{self._path}/{name}"
        make_parent(self._files, target)
        copy_files(str(path), target, LocalFileSystem(), self._files)

    @through_outages
    def _fetch(self, path: str, target: Path) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        copy_files(path, str(target), self._files, LocalFileSystem())


def trial_address(storage: str, key: str) -> str:
    """Where the trial keeps its state while it runs, and its best model afterwards."""
    return join(storage, f"trials/{key}")


def place_at(address: str) -> TrialPlace:
    """The trial's place at its address."""
    return TrialObjects(address) if is_uri(address) else TrialFolder(Path(address))
