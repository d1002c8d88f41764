"""The storage of a study, a folder or a URI: a trial's place in it, what a worker finds and leaves there, what stays.

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
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from msgspec.structs import replace

from study.facts.record import Record
from study.facts.study_facts import StudyFacts
from study.storage.addresses import exists, is_uri, join, make_parent, one_line_errors, open_uri, storage_address
from trainables.atomic_files import write_atomically

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

P = ParamSpec("P")
R = TypeVar("R")

PREDICTIONS = "predictions.npz"
DESCRIPTION = "model.json"  # in a model's folder
HELD_SECONDS = 60.0  # that a process waits for another one to leave the folder of a trial
OUTAGE_SECONDS = 600.0  # pyarrow itself gives up after some
MARK = ".launch-"  # how the name of a mark begins
STATE_NAME = re.compile(r"state-(\d+)-(\d+)\.zip")


class NotShared(OSError):
    """A place that is not the storage of the launch."""


class OutcomeGone(ValueError):
    """A trial that has ended without the files that it should have left: it is handed out again."""


def through_outages(action: Callable[P, R]) -> Callable[P, R]:
    """Repeat the action for a while if nobody answers: a trial is not to blame for that."""

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


_exists = through_outages(exists)


class TrialPlace(ABC):
    """The operations on a trial's place, by its worker and by the launcher."""

    @abstractmethod
    def work(self) -> AbstractContextManager[Path]:
        """Worker: yield the folder that the trial works in on this node, with its latest complete state."""

    def check_held(self, folder: Path) -> None:
        """Worker: check that the working folder exists; some places also check that the worker still owns the trial.

        A missing folder, such as an unmounted share, is not created again: its files would be in the way of the mount.
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"folder {folder} is missing")

    @abstractmethod
    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Worker: replace the state by the one in `folder`, after each saved epoch and before its report."""

    @abstractmethod
    def send_outcome(self, model: Path) -> str:
        """Worker: store the model to be kept, with its predictions, and return the model's address."""

    @abstractmethod
    def has_work(self) -> bool:
        """Launcher: check whether any stored work would be lost by a restart of the trial."""

    @abstractmethod
    def fetch_predictions(self, target: Path) -> None:
        """Launcher: put a trial's predictions into `target`, whole or not at all, before its record is written.

        Raises:
            OutcomeGone: they are missing.
        """

    def check_model(self, model: str) -> None:
        """Launcher: raise OutcomeGone unless the model of an ended trial is there, before its record is written."""
        if not _exists(join(model, DESCRIPTION)):
            raise OutcomeGone(f"the model is not in {model}")

    @abstractmethod
    def prune(self, record: Record) -> None:
        """Launcher: delete what is not kept after a trial has ended; call after its record is written."""


def keeps_model(record: Record) -> bool:
    """Check the study's one rule: the model of a completed confirm trial stays, dropped or not; all else goes."""
    return record.phase == "confirm" and record.status in ("completed", "dropped")


class TrialFolder(TrialPlace):
    """A trial's place in a folder that every node sees."""

    def __init__(self, folder: Path):
        """Take the folder, which may have to be made."""
        self._folder, self._lock, self._held = folder, folder / "trial.lock", 0

    @contextmanager
    def work(self) -> Iterator[Path]:
        """Yield the trial's folder once no other process works in it: the actor of a killed launcher may still.

        One that does so for longer, such as on a frozen node, loses it. The launcher has made the folder above it; one
        that is away (a share that is not mounted) is not made anew.
        """
        self._folder.mkdir(exist_ok=True)
        deadline = time.monotonic() + HELD_SECONDS
        while True:
            with self._lock.open("wb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        self._lock.unlink(missing_ok=True)  # whoever holds it finds another in its place
                    time.sleep(0.1)
                    continue
                self._held = os.fstat(lock.fileno()).st_ino
                if self._is_held():  # by nobody else meanwhile
                    yield self._folder
                    return

    def check_held(self, folder: Path) -> None:
        """Check that the folder is there, and locked by this process."""
        super().check_held(folder)
        if not self._is_held():
            raise NotShared(f"{self._folder} is in use by another process, which took this one for dead")

    def _is_held(self) -> bool:
        with suppress(FileNotFoundError):
            return self._lock.stat().st_ino == self._held
        return False

    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Do nothing: the state is there."""

    def send_outcome(self, model: Path) -> str:
        """Check the model's folder, and return its path."""
        if not model.is_dir():
            raise FileNotFoundError(f"model {model} is missing")
        return str(model)

    def has_work(self) -> bool:
        """Check if the trial has saved an epoch there; its predictions are elsewhere."""
        return (self._folder / "state.pt").exists()

    def fetch_predictions(self, target: Path) -> None:
        """Check that the trial wrote them to the study's folder."""
        if not target.exists():
            raise OutcomeGone(f"the predictions are not in {target}")

    def prune(self, record: Record) -> None:
        """Delete the folder, or all but the model that stays."""
        if not keeps_model(record):
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for name in ("state.pt", "clock.json", "trial.lock"):
            (self._folder / name).unlink(missing_ok=True)


class TrialObjects(TrialPlace):
    """A trial's place under a URI."""

    def __init__(self, uri: str):
        """Open the file system of the URI."""
        self._uri = uri
        self._files, self._path = through_outages(open_uri)(uri)
        self._delete = through_outages(self._files.delete_file)

    @contextmanager
    def work(self) -> Iterator[Path]:
        """Yield a temporary folder of this node with the newest whole state, if there is one."""
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
        """Upload the state as one object, and delete earlier ones."""
        archive = folder.with_name("state.zip")
        with zipfile.ZipFile(archive, "w") as file:  # not compressed: weights hardly shrink
            for path in folder.rglob("*"):
                file.write(path, path.relative_to(folder))
        self._send(archive, f"state-{epoch}-{archive.stat().st_size}.zip")
        archive.unlink()
        for earlier, _, info in self._states():
            if earlier < epoch:
                self._delete(info.path)

    def send_outcome(self, model: Path) -> str:
        """Upload the model and the predictions beside it."""
        for path in (*model.iterdir(), *model.parent.glob(PREDICTIONS)):
            self._send(path, str(path.relative_to(model.parent)))
        return join(self._uri, model.name)

    def has_work(self) -> bool:
        """Check if a whole state is under the URI, or predictions that wait for the launcher."""
        is_waiting = any(info.base_name == PREDICTIONS for info in self._contents())
        return is_waiting or any(size == info.size for _, size, info in self._states())

    def fetch_predictions(self, target: Path) -> None:
        """Download the predictions."""
        try:
            write_atomically(target, lambda file: self._fetch(f"{self._path}/{PREDICTIONS}", file))
        except FileNotFoundError:
            raise OutcomeGone(f"the predictions are not in {join(self._uri, PREDICTIONS)}") from None

    def prune(self, record: Record) -> None:
        """Delete the place, or all files but the model that stays."""
        contents = self._contents()
        if contents and not keeps_model(record):
            through_outages(self._files.delete_dir)(self._path)
            return
        for info in contents:
            if info.is_file:
                self._delete(info.path)

    def _states(self) -> Iterator[tuple[int, int, FileInfo]]:
        """Yield epoch and full size in bytes of each state, with what is there of it."""
        for info in self._contents():
            if named := STATE_NAME.fullmatch(info.base_name):
                yield int(named[1]), int(named[2]), info

    @through_outages
    def _contents(self) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        return list(self._files.get_file_info(FileSelector(self._path, allow_not_found=True)))

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
    """Make the address of the trial's state while it runs, and of its best model afterwards."""
    return join(storage, f"trials/{key}")


def open_place(address: str) -> TrialPlace:
    """Open the trial's place at its address."""
    return TrialObjects(address) if is_uri(address) else TrialFolder(Path(address))


# ---- models that trials left, for whoever loads them


def model_exists(model: str | None) -> bool:
    """Check if the model of a record's `model` is still there.

    Raises:
        ValueError: nobody answers.
    """
    if model is None or not is_uri(model):
        return model is not None and Path(model).is_dir()
    with one_line_errors(f"{model} cannot be read"):
        return exists(join(model, DESCRIPTION))


@contextmanager
def local_model(model: str) -> Iterator[Path]:
    """Yield a folder on this machine, for a while, with the model of a record's `model`."""
    if not is_uri(model):
        yield Path(model)
        return
    from pyarrow.fs import LocalFileSystem, copy_files

    with tempfile.TemporaryDirectory(prefix="glue-exit-study-") as temporary:
        with one_line_errors(f"{model} cannot be read"):
            files, path = open_uri(model)
            copy_files(path, temporary, files, LocalFileSystem())
        yield Path(temporary)


def find_model_address(model: str, *, folder: Path, key: str) -> str:
    """Find a trial's model in this study folder, if that was moved or copied with it; else keep its address."""
    beside = folder / "trials" / key / Path(model).name
    return str(beside) if beside.is_dir() else model


def locate_model(record: Record, folder: Path) -> Record:
    """Copy the record with the address that its model has now."""
    return replace(record, model=record.model and find_model_address(record.model, folder=folder, key=record.key))


# ---- the storage of a launch, and its marks: what every worker must find there before it trains. Where a share is not
# mounted, the same path is a folder of the node's own disk, and what is written there is seen by nobody.


def storage_for(asked: str | None, folder: Path, facts: StudyFacts) -> str:
    """Choose the storage of a launch: that of `--storage`, or else that of the last launch, which is printed.

    Raises:
        ValueError: trials under way would train anew, since their states lie in the storage of the last launch.
    """
    last = facts.last_launch
    before = (last.began.storage if last else None) or str(folder.resolve())
    if asked is None:
        if last and last.began.storage:
            print(f"--storage is {before}, as in the launch before", file=sys.stderr)
        return before
    storage = storage_address(asked)
    if storage != before:
        _check_states(storage, before, facts)
    return storage


def _check_states(storage: str, before: str, facts: StudyFacts) -> None:
    saved = [trial for trial in facts.under_way.values() if trial.epochs]
    absent = [trial for trial in saved if not open_place(trial_address(storage, trial.key)).has_work()]
    left = [trial for trial in absent if open_place(trial_address(before, trial.key)).has_work()]
    if left:
        raise ValueError(
            f"--storage is {storage}, but the states of {len(left)} trials under way are in {before}; allowed: "
            f"--storage {before}, or copy its folder trials there"
        )
    if absent:
        print(f"the states of {len(absent)} trials under way are gone from {before}: trained anew", file=sys.stderr)


@contextmanager
def launch_marks(storage: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """Make the marks of this launch with the trials and, if workers write there, the predictions.

    It yields their paths or URIs. Those of launches that were killed are deleted.

    Raises:
        ValueError: they cannot be written.
    """
    places = [join(storage, "trials"), *([] if is_uri(storage) else [str(folder / "predictions")])]
    marks = tuple(join(place, f"{MARK}{uuid.uuid4().hex}") for place in places)
    try:
        for place, mark in zip(places, marks, strict=True):
            with one_line_errors(f"{place} cannot be written"):
                _delete_all(place)
                _write(mark)
        yield marks
    finally:
        for place in places:
            with suppress(OSError):
                _delete_all(place)


def check_marks(marks: Sequence[str]) -> None:
    """Raise NotShared unless all marks of the launch are seen from here."""
    for mark in marks:
        if not (_exists(mark) if is_uri(mark) else _is_listed(Path(mark))):
            place = mark.partition("?")[0].rpartition("/")[0]
            raise NotShared(f"{place} is not what the launch sees there; mount the shared storage on this node too")


def _is_listed(mark: Path) -> bool:
    """Check if it is there. Opening its folder has a network's file system ask the server; paths may be cached."""
    try:
        return mark in mark.parent.iterdir()
    except (FileNotFoundError, NotADirectoryError):
        return False


def _write(mark: str) -> None:
    if not is_uri(mark):
        Path(mark).touch()
        return
    files, path = open_uri(mark)
    files.open_output_stream(path).close()


def _delete_all(place: str) -> None:
    """Delete the marks in a place."""
    if not is_uri(place):
        for mark in Path(place).glob(f"{MARK}*"):
            mark.unlink()
        return
    from pyarrow.fs import FileSelector

    files, path = open_uri(place)
    for info in files.get_file_info(FileSelector(path, allow_not_found=True)):
        if info.base_name.startswith(MARK):
            files.delete_file(info.path)
