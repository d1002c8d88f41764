"""The files of trials in a study's storage: states of running trials, models and predictions of ended trials.

Each study has a storage of its own: its folder, or its area, which is a folder of this study alone under `--storage`.
If the storage is a folder that all nodes share, a trial works directly in a subfolder. If the storage is a URI, a trial
works in a temporary folder of its node, and uploads

    trials/KEY/state-3-81920.zip    the state after epoch 3: one object of 81920 bytes
    trials/KEY/model-epoch-2/       the selected model of a confirm trial that has ended
    trials/KEY/predictions.npz      deleted once the launcher has downloaded it

A state is a single object, so it cannot mix two epochs. The name of a state gives its size, so an incomplete upload is
recognised and ignored. The previous state is deleted only after the new one is complete.

`TrialFolder` and `TrialObjects` have the same methods. The worker calls `work`, `check_held`, `send_state` and
`send_outcome`. The launcher calls `has_work`, `fetch_predictions` and `prune`. An epoch is reported after `send_state`.
The trial's record is written after `fetch_predictions` and before `prune`.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EINVAL
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from msgspec.structs import replace

from study.facts.events import FILE
from study.facts.record import Record
from study.facts.study_facts import StudyFacts
from study.plans.resolved_plan import digest
from study.storage.addresses import (
    exists,
    is_uri,
    join,
    make_parent,
    one_line_errors,
    open_uri,
    resolve_storage_address,
)
from trainables.files.atomic_files import DiskFull, naming_full_disk, write_atomically
from trainables.files.sources import hash_folder
from trainables.runs.trial import Unavailable

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

P = ParamSpec("P")
R = TypeVar("R")

PREDICTIONS = "predictions.npz"
DESCRIPTION = "model.json"  # in a model's folder
WEIGHTS = "model.safetensors"  # there too
HELD_SECONDS = 60.0  # wait for another process to release a trial's folder
OUTAGE_SECONDS = 600.0  # longest time of retries; without retries, pyarrow gives up within seconds
MARK = ".launch-"  # prefix of the names of marks; see `launch_marks`
STATE_NAME = re.compile(r"state-(\d+)-(\d+)\.zip")


class NotShared(OSError):
    """Raised if a node cannot see the launch's storage, or another process has taken over a trial's folder."""


class OutcomeGone(ValueError):
    """Raised if the model or the predictions of an ended trial are missing or damaged. The trial runs again."""


class DamagedModel(Unavailable):
    """Raised if a stored model differs from the digest that its trial recorded."""


def retry_outages(action: Callable[P, R]) -> Callable[P, R]:
    """If the action raises an `OSError`, retry it for `OUTAGE_SECONDS`."""

    @functools.wraps(action)
    def patient(*args: P.args, **kwargs: P.kwargs) -> R:
        deadline = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                return action(*args, **kwargs)
            except (FileNotFoundError, DiskFull):
                raise  # the storage answered, so this is not an outage
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)

    return patient


_exists = retry_outages(exists)


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

    @contextmanager
    def work(self) -> Iterator[Path]:
        """Yield a temporary folder, which contains the newest complete state if there is one."""
        with tempfile.TemporaryDirectory(prefix="glue-exit-study-") as temporary:
            folder = Path(temporary) / "trial"
            folder.mkdir()
            complete = {epoch: info for epoch, size, info in self._list_states() if size == info.size}
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
        """Upload the state as one object, and delete the earlier states."""
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


def open_place(address: str) -> TrialPlace:
    """Return an object that reads and writes the trial's files at this path or URI."""
    return TrialObjects(address) if is_uri(address) else TrialFolder(Path(address))


# ---- models of ended trials


def check_model(model: str) -> None:
    """Raise OutcomeGone if there is no model at `model`, a path or URI."""
    if not _exists(join(model, DESCRIPTION)):
        raise OutcomeGone(f"the model is not in {model}")


def keeps_model(record: Record) -> bool:
    """Check whether the trial's model is kept. Only completed or dropped confirm trials keep their models."""
    return record.phase == "confirm" and record.status in ("completed", "dropped")


def model_exists(model: str | None) -> bool:
    """Check whether there is still a model with weights at `model`, a path or URI.

    Raises:
        ValueError: if the storage cannot be read.
    """
    if model is None:
        return False
    with one_line_errors(f"{model} cannot be read"):
        return exists(join(model, WEIGHTS))


def check_undamaged(model: str, digest: str | None) -> None:
    """Raise OutcomeGone if the model at `model`, a path or URI, is missing or damaged. All of its files are read."""
    check_model(model)
    try:
        with local_model(model, digest):
            pass
    except DamagedModel as error:
        raise OutcomeGone(str(error)) from None


@contextmanager
def local_model(model: str, digest: str | None) -> Iterator[Path]:
    """Yield a folder on this machine with the model; if `model` is a URI, the folder is a temporary copy.

    Args:
        digest: digest of the model's folder, which is checked; None if its trial recorded none.

    Raises:
        DamagedModel: the files differ from those that the trial wrote.
    """
    with _local_folder(model) as folder:
        if digest is not None and folder.is_dir() and hash_folder(folder) != digest:
            raise DamagedModel(
                f"{model} was damaged: its files do not match the digest in the journal; restore the folder from a copy"
            )
        yield folder


@contextmanager
def _local_folder(model: str) -> Iterator[Path]:
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
    """Return the path of the model in the study's `folder`. If the model is not there, return `model`.

    The folder may have been moved or copied with its models. If it was copied without them, the path in `folder` is
    returned all the same: models in the folder of another study are never used.
    """
    path = folder / "trials" / key / Path(model).name
    return str(path) if path.is_dir() or _find_other_study(model, folder) else model


def _find_other_study(model: str, folder: Path) -> Path | None:
    """Return the folder of another study that contains the model; None if there is none."""
    parents = Path(model).parents
    if is_uri(model) or len(parents) < 3:
        return None
    study = parents[2]  # STUDY/trials/KEY/MODEL
    is_other = (study / FILE).exists() and os.path.realpath(study) != os.path.realpath(folder)
    return study if is_other else None


def locate_model(record: Record, folder: Path) -> Record:
    """Return the record with the current path or URI of its model."""
    return replace(record, model=record.model and find_model_address(record.model, folder=folder, key=record.key))


def explain_missing_model(record: Record, folder: Path) -> str:
    """Explain why the model of a record is not stored, and give the remedy; "" if the reason is unknown."""
    if record.model is None:
        return ""
    address = find_model_address(record.model, folder=folder, key=record.key)
    with one_line_errors(f"{address} cannot be read"):
        if exists(join(address, DESCRIPTION)):
            return "only the description is left, as after study.drop --models; restore the folder from a copy"
    if original := _find_other_study(record.model, folder):
        copied = f"{folder} is a copy without this model, and the models in {original} are not used"
        return f"{copied}, because they may have changed; copy {original / 'trials'} to {folder} too"
    own = folder / "trials" / record.key / Path(record.model).name
    is_elsewhere = not is_uri(address) and os.path.realpath(address) != os.path.realpath(own)
    if is_elsewhere and len(Path(address).parts) > 3:
        return f"it is not in {own.parent} either; restore {folder / 'trials'} from a copy of the study"
    return ""


def delete_weights(model: str) -> int:
    """Delete the files of a model at a path or URI, except its description; return their size in bytes."""
    if not is_uri(model):
        files = [path for path in Path(model).glob("*") if path.name != DESCRIPTION and path.is_file()]
        sizes = {path: path.stat().st_size for path in sorted(files, key=lambda path: path.name != WEIGHTS)}
        for path in sizes:  # the weights first: without them, nobody takes the rest for a model
            path.unlink()
        return sum(sizes.values())
    from pyarrow.fs import FileSelector

    with one_line_errors(f"{model} cannot be changed"):
        system, place = open_uri(model)
        listed = system.get_file_info(FileSelector(place, allow_not_found=True))
        found = [info for info in listed if info.is_file and info.base_name != DESCRIPTION]
        for info in sorted(found, key=lambda info: info.base_name != WEIGHTS):
            system.delete_file(info.path)
    return sum(info.size for info in found)


# ---- the storage of a launch, and its marks: files that every worker must find there before it trains. On a node
# without the share, the same path is a folder on the node's own disk.


class StudyStorage(NamedTuple):
    """The storage of a study. Studies that share a `--storage` have an area each, and touch only their own files."""

    place: str  # --storage, or the study's folder
    area: str | None = None  # folder of this study alone in `place`; None: `place` itself, as in the study's folder

    @property
    def address(self) -> str:
        """The path or URI of the folder that contains `trials`."""
        return join(self.place, self.area) if self.area else self.place


def choose_storage(requested: str | None, folder: Path, facts: StudyFacts) -> tuple[StudyStorage, list[str]]:
    """Choose the storage of a launch: --storage, or the storage of the last launch, or the study's folder.

    A study keeps its area. A study that began under an earlier version may have no area, and then keeps its storage. A
    copy of a study gets an area of its own. Also return lines for the user, for example if the storage is that of the
    last launch.

    Raises:
        ValueError: if states of unfinished trials are in the last launch's storage, but not in --storage.
    """
    own = str(folder.resolve())
    began = facts.last_launch.began if facts.last_launch else None
    before = StudyStorage(began.storage, began.area) if began and began.storage else StudyStorage(own)
    place = before.place if requested is None else resolve_storage_address(requested)
    lines = [f"--storage is {place}, as in the last launch"] if requested is None and place != own else []
    if place == own:
        chosen = StudyStorage(own)
    elif original := find_original(folder, facts):
        chosen = StudyStorage(place, _name_area(folder, uuid.uuid4().hex))
        line = f"this study is a copy of {original}, whose files in {before.address} stay as they are"
        return chosen, [*lines, f"{line}; the copy's unfinished trials restart in {place}"]
    elif place == before.place:
        return before, lines
    else:
        chosen = StudyStorage(place, before.area or _name_area(folder, _identify(facts)))
    return chosen, lines if chosen == before else [*lines, *_check_states(chosen, before, facts)]


def _name_area(folder: Path, identity: str) -> str:
    """Name the folder of a study in a storage, with characters that are safe in any path and URI."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', folder.resolve().name)[:80]}-{digest(identity)}"


def _identify(facts: StudyFacts) -> str:
    """Return a text that no other study has, and that is always the same for a study that has been launched."""
    if first := facts.launches.get(1):
        return f"{first.began.time} {first.began.host} {first.began.pid}"
    return uuid.uuid4().hex


def find_original(folder: Path, facts: StudyFacts) -> Path | None:
    """Find the study with an area in a storage of which the study in `folder` is a copy.

    Return None if it is no copy, or the original is gone.
    """
    began = facts.last_launch.began if facts.last_launch else None
    if began is None or began.folder is None:
        return None
    original, journals = Path(began.folder), (folder / FILE, Path(began.folder) / FILE)
    try:
        if journals[0].samefile(journals[1]):
            return None
        first, other = (journal.open("rb") for journal in journals)
        with first, other:
            return original if first.readline() == other.readline() else None
    except OSError:
        return None


def _check_states(chosen: StudyStorage, before: StudyStorage, facts: StudyFacts) -> list[str]:
    saved = [trial for trial in facts.under_way.values() if trial.epochs]
    absent = [trial for trial in saved if not open_place(trial_address(chosen.address, trial.key)).has_work()]
    remaining = [trial for trial in absent if open_place(trial_address(before.address, trial.key)).has_work()]
    if remaining:
        raise ValueError(
            f"--storage is {chosen.place}, but the states of {len(remaining)} unfinished trials are in "
            f"{before.address}; allowed: --storage {before.place}, or first copy the folder `trials` there to "
            f"{chosen.address}"
        )
    if not absent:
        return []
    return [f"the states of {len(absent)} unfinished trials are missing from {before.address}: these trials restart"]


@contextmanager
def launch_marks(storage: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """Write a mark (an empty file) to each folder that workers write to; yield the paths or URIs of the marks.

    A killed launch leaves its marks behind; see `delete_marks`.

    Raises:
        ValueError: if a mark cannot be written.
    """
    places = _list_places(storage, folder)
    marks = tuple(join(place, f"{_prefix_marks(folder)}{uuid.uuid4().hex}") for place in places)
    try:
        for place, mark in zip(places, marks, strict=True):
            with one_line_errors(f"{place} cannot be written"):
                _write(mark)
        yield marks
    finally:
        for mark in marks:
            with suppress(OSError):
                _delete(mark)


def delete_marks(storage: StudyStorage, folder: Path) -> None:
    """Delete the marks of the study's earlier launches, which were killed, perhaps on other hosts.

    The launch must hold the study's lock. If studies of an earlier version share a storage without areas, only marks
    of this study from this host are deleted there.

    Raises:
        ValueError: if a mark cannot be deleted.
    """
    shared = join(storage.address, "trials") if not storage.area and storage.place != str(folder.resolve()) else None
    for place in _list_places(storage.address, folder):
        prefix = _prefix_marks(folder) if place == shared else MARK
        with one_line_errors(f"{place} cannot be written"):
            for name in _list_names(place):
                if name.startswith(prefix):
                    with suppress(FileNotFoundError):  # a launch that woke has deleted its own mark
                        _delete(join(place, name))


def _list_places(storage: str, folder: Path) -> list[str]:
    return [join(storage, "trials"), *([] if is_uri(storage) else [str(folder / "predictions")])]


def _prefix_marks(folder: Path) -> str:
    return f"{MARK}{digest([socket.gethostname(), str(folder.resolve())])}-"


def check_marks(marks: Sequence[str]) -> None:
    """Check that this node sees all marks of the launch; raise NotShared if one is missing."""
    for mark in marks:
        if not (_exists(mark) if is_uri(mark) else _is_listed(Path(mark))):
            place = mark.partition("?")[0].rpartition("/")[0]
            raise NotShared(f"{place} is not the launch's folder; mount the shared storage on this node too")


def _is_listed(mark: Path) -> bool:
    """List the mark's folder to check if the mark exists. A network file system may cache `Path.exists`."""
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


def _delete(mark: str) -> None:
    if not is_uri(mark):
        Path(mark).unlink()
        return
    files, path = open_uri(mark)
    files.delete_file(path)


def _list_names(place: str) -> list[str]:
    """List the names of the files and folders in a folder or under a URI; [] if it does not exist."""
    if not is_uri(place):
        return [path.name for path in Path(place).glob("*")]
    from pyarrow.fs import FileSelector

    files, path = open_uri(place)
    return [info.base_name for info in files.get_file_info(FileSelector(path, allow_not_found=True))]
