"""Where trials keep their states and models: a folder that every node sees, or a URI such as s3://bucket/path.

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
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from urllib.parse import parse_qsl, urlsplit

from study.record import Record
from trainables.atomic_files import write_atomically

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

P = ParamSpec("P")
R = TypeVar("R")

PARAMETERS = {
    "file": (),
    "gs": ("endpoint_override", "retry_limit_seconds", "scheme"),
    "s3": ("endpoint_override", "region", "scheme"),
}
PREDICTIONS = "predictions.npz"
OUTAGE_SECONDS = 600.0  # pyarrow itself gives up after some
STATE_NAME = re.compile(r"state-(\d+)-(\d+)\.zip")


def is_uri(text: str) -> bool:
    return "://" in text


def storage_address(text: str) -> str:
    """The whole path, or the URI, that `--storage` names. ValueError if it is not a kind of URI that is allowed."""
    if not is_uri(text):
        return str(Path(text).resolve())
    scheme, host, path, query, _ = urlsplit(text)
    if scheme not in PARAMETERS:
        raise ValueError(f"--storage is a {scheme} address; allowed: a folder, file:///PATH, gs://BUCKET, s3://BUCKET")
    if ":" in host or "@" in host + query:  # an unquoted "/" in a secret ends the host before the "@"
        raise ValueError(
            f"--storage holds a user, a password or a port; allowed: {scheme}://BUCKET/PATH, {CREDENTIALS}"
        )
    foreign = [name for name, _ in parse_qsl(query, keep_blank_values=True) if name not in PARAMETERS[scheme]]
    if foreign:
        allowed = ", ".join(PARAMETERS[scheme]) or "none"
        raise ValueError(f"--storage has the parameter {foreign[0]!r}; allowed: {allowed}; {CREDENTIALS}")
    if (scheme == "file") == bool(host) or not host + path.strip("/"):
        place = "file:///PATH, from the root" if scheme == "file" else f"{scheme}://BUCKET/PATH"
        raise ValueError(f"--storage is {text}; allowed: {place}")
    return text


CREDENTIALS = "credentials are taken from the usual variables (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, ...)"


def join(address: str, name: str) -> str:
    """The path or URI of `name` under `address`; a URI keeps its parameters."""
    if not is_uri(address):
        return str(Path(address) / name)
    parts = urlsplit(address)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


def open_uri(uri: str) -> tuple[FileSystem, str]:
    """The file system of the URI, and the path within it."""
    from pyarrow.fs import FileSystem

    if uri.startswith("gs://") and "retry_limit_seconds=" not in uri:  # Google's client tries for 15 minutes
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds=10"
    return FileSystem.from_uri(uri)


def exists(uri: str) -> bool:
    files, path = open_uri(uri)
    return files.get_file_info(path).type.name != "NotFound"


def make_writable(address: str) -> None:
    """Makes the folder, or the place under the URI, and writes in it, for once. ValueError if that cannot be done."""
    if is_uri(address):
        with small_object(address):
            return
    try:
        Path(address).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=address).close()
    except OSError as error:
        raise ValueError(f"folder {address} cannot be written: {error.strerror}") from None


@contextmanager
def small_object(uri: str) -> Iterator[str]:
    """The URI of an empty object under `uri`, for a while. ValueError if it cannot be written or deleted."""
    name = join(uri, f".written-{uuid.uuid4().hex}")
    with _one_line_errors(f"{uri} cannot be written"):
        files, path = open_uri(name)
        _make_parent(files, path)
        files.open_output_stream(path).close()
    try:
        yield name
    finally:
        with _one_line_errors(f"{uri} cannot be written"):
            files.delete_file(path)


def keeps_model(record: Record) -> bool:
    """The study's one rule of what stays: a completed confirm trial keeps its best model, all else goes."""
    return record.phase == "confirm" and record.status == "completed"


def _through_outages(action: Callable[P, R]) -> Callable[P, R]:
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
        """The trial's folder, once no other process works in it: an actor whose launcher was killed lives on a bit."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "trial.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._folder

    def send_state(self, folder: Path, *, epoch: int) -> None:
        """Nothing: it is there."""

    def send_outcome(self, model: Path) -> str:
        """The model's address; it is there."""
        return str(model)

    def fetch_predictions(self, target: Path) -> None:
        """Nothing: the trial wrote them to the study's folder."""

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
        self._files, self._path = _through_outages(open_uri)(uri)

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
        """The model's address, once it and the predictions beside it are under the URI."""
        for path in (*model.iterdir(), model.with_name(PREDICTIONS)):
            self._send(path, str(path.relative_to(model.parent)))
        return join(self._uri, model.name)

    def fetch_predictions(self, target: Path) -> None:
        """Puts the predictions of the ended trial into `target`, whole or not at all. ValueError if there are none."""
        try:
            write_atomically(target, lambda file: self._fetch(f"{self._path}/{PREDICTIONS}", file))
        except FileNotFoundError:
            rule = "--storage must be that of the launch that was interrupted"
            raise ValueError(f"{join(self._uri, PREDICTIONS)} is not there; {rule}") from None

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

    @_through_outages
    def _contents(self) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        return self._files.get_file_info(FileSelector(self._path, allow_not_found=True))

    @_through_outages
    def _delete(self, info: FileInfo) -> None:
        self._files.delete_file(info.path)

    @_through_outages
    def _delete_all(self) -> None:
        self._files.delete_dir(self._path)

    @_through_outages
    def _send(self, path: Path, name: str) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        target = f"{self._path}/{name}"
        _make_parent(self._files, target)
        copy_files(str(path), target, LocalFileSystem(), self._files)

    @_through_outages
    def _fetch(self, path: str, target: Path) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        copy_files(path, str(target), self._files, LocalFileSystem())


def trial_address(storage: str, key: str) -> str:
    """Where the trial keeps its state while it runs, and its best model afterwards."""
    return join(storage, f"trials/{key}")


def place_at(address: str) -> TrialFolder | TrialObjects:
    """The trial's place at its address."""
    return TrialObjects(address) if is_uri(address) else TrialFolder(Path(address))


def model_exists(model: str | None) -> bool:
    """Whether the model of a record's `model` is still there. ValueError if nobody answers."""
    if model is None or not is_uri(model):
        return model is not None and Path(model).is_dir()
    with _one_line_errors(f"{model} cannot be read"):
        return exists(join(model, "model.json"))


@contextmanager
def local_model(model: str) -> Iterator[Path]:
    """A folder on this machine, for a while, with the model of a record's `model`."""
    if not is_uri(model):
        yield Path(model)
        return
    from pyarrow.fs import LocalFileSystem, copy_files

    with tempfile.TemporaryDirectory(prefix="glue-exit-study-") as temporary:
        with _one_line_errors(f"{model} cannot be read"):
            files, path = open_uri(model)
            copy_files(path, temporary, files, LocalFileSystem())
        yield Path(temporary)


@contextmanager
def _one_line_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(f"{what}: {str(error).splitlines()[0]}") from None


def _make_parent(files: FileSystem, path: str) -> None:
    """Object stores need no folders."""
    if files.type_name == "local":
        files.create_dir(os.path.dirname(path))
