"""The files of trials in a study's storage: states of running trials, models and predictions of ended trials.

Each study has a storage of its own: its folder, or its area, which is a folder of this study alone under `--storage`.
If the storage is a folder that all nodes share, a trial works directly in a subfolder. If the storage is a URI, a trial
works in a temporary folder of its node, and uploads

    trials/KEY/state-3-81920.zip    the state after epoch 3: one object of 81920 bytes
    trials/KEY/model-epoch-2/       the selected model of a confirm trial that has ended
    trials/KEY/predictions.npz      deleted once the launcher has downloaded it

A state is a single object, so it cannot mix two epochs. The name of a state gives its size, so an incomplete upload is
recognised and ignored. The previous state is deleted only after the new one is complete, unless the trial has started
again because the previous state is unusable.

`TrialFolder` and `TrialObjects` have the same methods. The worker calls `work`, `check_held`, `send_state` and
`send_outcome`. The launcher calls `has_work`, `fetch_predictions` and `prune`. An epoch is reported after `send_state`.
The trial's record is written after `fetch_predictions` and before `prune`.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import tempfile
import time
import uuid
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from study.facts.record import Record
from study.storage.addresses import (
    is_uri,
    join,
    make_parent,
    open_uri,
    retry_outages,
)
from study.storage.models import OutcomeGone, keeps_model
from trainables.files.atomic_files import DiskFull, naming_full_disk, write_atomically

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

PREDICTIONS = "predictions.npz"
HELD_SECONDS = 60.0  # wait for another process to release a trial's folder
STATE_NAME = re.compile(r"state-(\d+)-(\d+)\.zip")


class NotShared(OSError):
    """Raised if a node cannot see the launch's storage, or another process has taken over a trial's folder."""


class TrialFolder:
    """The files of a trial in a folder that every node sees."""

    def __init__(self, folder: Path):
        """Use this folder; `work` creates it if it is missing."""
        self._folder, self._lock, self._token = folder, folder / "trial.lock", uuid.uuid4().hex

    @contextmanager
    def work(self) -> Iterator[Path]:
        """Lock and yield the trial's folder, which contains the latest state if there is one.

        If another process still holds the lock after `HELD_SECONDS`, this process takes the folder over. The lock file
        names its holder, because some network shares grant every lock. The parent folder is not created, because a
        network share may be unmounted.
        """
        self._folder.mkdir(exist_ok=True)
        deadline = time.monotonic() + HELD_SECONDS
        while True:
            with self._lock.open("ab") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        self._lock.unlink(missing_ok=True)  # the holder notices in `check_held`
                    time.sleep(0.1)
                    continue
                lock.truncate(0)
                lock.write(self._token.encode())
                lock.flush()
                if self._is_held():  # false if another process has replaced the lock file
                    yield self._folder
                    return

    def check_held(self, folder: Path) -> None:
        """Check that the working folder exists and still belongs to this process.

        Raises:
            FileNotFoundError: if the folder is missing.
            NotShared: if another process has taken the folder over.
        """
        _check_folder(folder)
        if not self._is_held():
            raise NotShared(f"{self._folder} is in use by another process, which assumed that this process had ended")

    def _is_held(self) -> bool:
        with suppress(FileNotFoundError):
            return self._lock.read_text() == self._token
        return False

    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Do nothing: the state is already in the shared folder."""

    def send_outcome(self, model: Path) -> str:
        """Check that the model's folder exists, and return its path."""
        _check_folder(model)
        return str(model)

    def has_work(self) -> bool:
        """Check whether the folder has a saved state."""
        return (self._folder / "state.pt").exists()

    def fetch_predictions(self, target: Path) -> None:
        """Check that the predictions are in `target`, or raise OutcomeGone."""
        if not target.exists():
            raise OutcomeGone(f"the predictions are not in {target}")

    def prune(self, record: Record) -> None:
        """Delete the folder, but keep the model if `keeps_model` is true for the record."""
        if not keeps_model(record):
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        for name in ("state.pt", "clock.json", "trial.lock"):
            (self._folder / name).unlink(missing_ok=True)


class TrialObjects:
    """The files of a trial, stored under a URI."""

    def __init__(self, uri: str):
        """Open the file system of the URI."""
        self._uri = uri
        self._files, self._path = retry_outages(open_uri)(uri)
        self._delete = retry_outages(self._files.delete_file)
        self._before: set[tuple[str, int]] = set()  # path and time of the states that `work` found

    @contextmanager
    def work(self) -> Iterator[Path]:
        """Yield a temporary folder, which contains the newest complete state if there is one."""
        with tempfile.TemporaryDirectory(prefix="glue-exit-study-") as temporary:
            folder = Path(temporary) / "trial"
            folder.mkdir()
            complete = {epoch: info for epoch, size, info in self._list_states() if size == info.size}
            self._before = {(info.path, info.mtime_ns) for info in complete.values()}
            if complete:
                archive = folder.with_name("state.zip")
                self._fetch(complete[max(complete)].path, archive)
                with naming_full_disk(folder.parent):
                    _extract(archive, folder)
                archive.unlink()
            yield folder

    def check_held(self, folder: Path) -> None:
        """Check that the working folder exists, or raise FileNotFoundError."""
        _check_folder(folder)

    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Upload the state as one object, and delete the earlier states.

        If the trial has started again, delete first the states that `work` found, because they may be of later epochs.
        States that another process has saved since then are kept.
        """
        if epoch == 1:
            for _, _, info in self._list_states():
                if (info.path, info.mtime_ns) in self._before:
                    self._delete(info.path)
        archive = folder.with_name("state.zip")
        with (
            naming_full_disk(folder.parent),
            zipfile.ZipFile(archive, "w") as file,
        ):  # uncompressed: weights hardly shrink
            for path in folder.rglob("*"):
                file.write(path, path.relative_to(folder))
        self._send(archive, f"state-{epoch}-{archive.stat().st_size}.zip")
        archive.unlink()
        for earlier, _, info in self._list_states():
            if earlier < epoch:
                self._delete(info.path)

    def send_outcome(self, model: Path) -> str:
        """Upload the model's folder, and the predictions next to this folder. Return the model's URI."""
        for path in (*model.iterdir(), *model.parent.glob(PREDICTIONS)):
            self._send(path, str(path.relative_to(model.parent)))
        return join(self._uri, model.name)

    def has_work(self) -> bool:
        """Check whether there is a complete state, or predictions to download."""
        is_waiting = any(info.base_name == PREDICTIONS for info in self._list_contents())
        return is_waiting or any(size == info.size for _, size, info in self._list_states())

    def fetch_predictions(self, target: Path) -> None:
        """Download the predictions to `target` atomically, or raise OutcomeGone."""
        try:
            write_atomically(target, lambda file: self._fetch(f"{self._path}/{PREDICTIONS}", file))
        except FileNotFoundError:
            raise OutcomeGone(f"the predictions are not in {join(self._uri, PREDICTIONS)}") from None

    def prune(self, record: Record) -> None:
        """Delete everything under the URI, but keep the model if `keeps_model` is true for the record."""
        contents = self._list_contents()
        if contents and not keeps_model(record):
            retry_outages(self._files.delete_dir)(self._path)
            return
        for info in contents:
            if info.is_file:
                self._delete(info.path)

    def _list_states(self) -> Iterator[tuple[int, int, FileInfo]]:
        """Yield the epoch, the size in bytes and the uploaded object of each state; an unfinished upload is smaller."""
        for info in self._list_contents():
            if match := STATE_NAME.fullmatch(info.base_name):
                yield int(match[1]), int(match[2]), info

    @retry_outages
    def _list_contents(self) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        return list(self._files.get_file_info(FileSelector(self._path, allow_not_found=True)))

    @retry_outages
    def _send(self, path: Path, name: str) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        target = f"{self._path}/{name}"
        try:
            with naming_full_disk(Path(self._path)):  # the path leads to a folder only for a local file system
                make_parent(self._files, target)
                copy_files(str(path), target, LocalFileSystem(), self._files)
        except DiskFull:
            with suppress(OSError):
                self._files.delete_file(target)  # the incomplete upload takes up space
            raise

    @retry_outages
    def _fetch(self, path: str, target: Path) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        with naming_full_disk(target.parent):
            copy_files(path, str(target), self._files, LocalFileSystem())


def _extract(archive: Path, folder: Path) -> None:
    """Extract a state into an empty folder. If the state is damaged, the folder stays empty, and the trial restarts."""
    try:
        zipfile.ZipFile(archive).extractall(folder)
    except Exception as error:  # zipfile may raise any error on foreign bytes
        if isinstance(error, OSError) and error.errno != EINVAL:  # EINVAL: a damaged place in the zip file
            raise
        shutil.rmtree(folder)
        folder.mkdir()


TrialPlace = TrialFolder | TrialObjects


def _check_folder(folder: Path) -> None:
    """Raise FileNotFoundError if a working folder or a model's folder is missing."""
    if not folder.is_dir():
        raise FileNotFoundError(f"folder {folder} is missing")


def trial_address(storage: str, key: str) -> str:
    """Return the path or URI of the trial's files."""
    return join(storage, f"trials/{key}")


@retry_outages
def list_trial_files(storage: str) -> dict[str, set[str]]:
    """Map the key of each trial with files in the storage to the names of its files and folders, in one listing."""
    if is_uri(storage):
        from pyarrow.fs import FileSelector

        files, root = open_uri(join(storage, "trials"))
        listed = files.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        paths = [PurePosixPath(info.path).relative_to(root).parts for info in listed]
    else:
        paths = [path.parts[-2:] for path in Path(storage, "trials").glob("*/*")]
    names = defaultdict[str, set[str]](set)
    for parts in paths:
        if len(parts) > 1:
            names[parts[0]].add(parts[1])
    return names


def open_place(address: str) -> TrialPlace:
    """Return an object that reads and writes the trial's files at this path or URI."""
    return TrialObjects(address) if is_uri(address) else TrialFolder(Path(address))
