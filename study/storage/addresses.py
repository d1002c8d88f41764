"""Check the addresses that users give for Ray clusters, storages, MLflow stores and outputs.

An address may not contain a password. A storage holds the states and models of trials. Its address is the path of
a folder that every node sees, or a URI (s3://bucket/path).
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from study.terminal.processes import is_installed
from study.terminal.text import SECRET_PARAMETER, masked
from trainables.configuration.error_text import take_first_line
from trainables.files.atomic_files import FULL, DiskFull

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

P = ParamSpec("P")
R = TypeVar("R")

OUTAGE_SECONDS = 600.0  # longest time of retries; without retries, pyarrow gives up within seconds
PARAMETERS = {
    "file": (),
    "gs": ("endpoint_override", "retry_limit_seconds", "scheme"),
    "s3": ("endpoint_override", "region", "scheme"),
}
_CLUSTER_ALLOWED = "auto, HOST:PORT, ray://HOST:PORT"


# ---- a Ray cluster: `--address`, or else RAY_ADDRESS, or else this machine


def read_cluster_address() -> str | None:
    """Return RAY_ADDRESS, or None if Ray runs on this machine alone."""
    address = os.environ.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address  # "local" is Ray's name for this machine


def named(address: str) -> str:
    """Format a cluster's address with its source: `RAY_ADDRESS ...` or `--address ...`."""
    return f"RAY_ADDRESS {address}" if address == os.environ.get("RAY_ADDRESS") else f"--address {address}"


def check_address(address: str) -> None:
    """Raise ValueError if a cluster's address is malformed, or contains a user or password."""
    if "@" in address or "?" in address:
        name, _, _ = named(address).partition(" ")
        raise ValueError(f"{name} holds more than a host and a port; allowed: {_CLUSTER_ALLOWED}")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and (not host or "/" in host or not is_port(port)):
        raise ValueError(f"{named(address)} is not the address of a cluster; allowed: {_CLUSTER_ALLOWED}")


def is_port(text: str) -> bool:
    """Check whether the text is a port number."""
    return text.isascii() and text.isdigit() and 0 < int(text) < 2**16


# ---- a storage


def is_uri(text: str) -> bool:
    """Check if an address is a URI, not a path."""
    return "://" in text


def local_path(address: str) -> Path | None:
    """Return the path of a folder on a disk of this machine; None if the address is the URI of another place."""
    if is_uri(address):
        return Path(urlsplit(address).path) if address.startswith("file://") else None
    return Path(address)


def find_existing(path: Path) -> Path:
    """Return the real path, or else its nearest parent that exists."""
    whole = Path(os.path.realpath(path))
    return next(place for place in (whole, *whole.parents) if os.path.lexists(place))


def is_same_disk(one: Path, other: Path) -> bool:
    """Check if two paths, which may not exist yet, are on the same disk."""
    return find_existing(one).stat().st_dev == find_existing(other).stat().st_dev


def resolve_storage_address(text: str) -> str:
    """Return `--storage` as an absolute path or a valid URI.

    Raises:
        ValueError: if the URI's scheme, host, path or parameters are not allowed.
    """
    if not is_uri(text):
        scheme, colon, path = text.partition(":")
        if colon and scheme in PARAMETERS:  # a folder of that name must be given as ./s3:
            raise ValueError(f"--storage is {text}; did you mean {scheme}://{path.lstrip('/')}?")
        return os.path.realpath(text)
    try:
        scheme, host, path, query, fragment = urlsplit(text)
    except ValueError as error:  # such as s3://[::1
        raise ValueError(f"--storage is {masked(text)}: {error}; allowed: {_STORAGE}") from None
    if scheme not in PARAMETERS:
        raise ValueError(f"--storage is {masked(text)}; allowed: {_STORAGE}")
    if ":" in host or "@" in host + query + fragment:  # a "/", "?" or "#" in a password ends the host before the "@"
        raise ValueError(
            f"--storage holds a user, a password or a port; allowed: {scheme}://BUCKET/PATH; {CREDENTIALS}"
        )
    foreign = [name for name, _ in parse_qsl(query, keep_blank_values=True) if name not in PARAMETERS[scheme]]
    if foreign:
        allowed = ", ".join(PARAMETERS[scheme]) or "none"
        raise ValueError(f"--storage has the parameter {foreign[0]!r}; allowed parameters: {allowed}; {CREDENTIALS}")
    if (scheme == "file") == bool(host) or not host + path.strip("/"):
        place = "file:///PATH, from the root" if scheme == "file" else f"{scheme}://BUCKET/PATH"
        raise ValueError(f"--storage is {text}; allowed: {place}")
    return text


_STORAGE = "a folder, file:///PATH, gs://BUCKET, s3://BUCKET"
CREDENTIALS = "credentials come from environment variables (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, ...)"


# ---- MLflow


TRACKING_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")
TRACKING_HELP = "MLflow URL or sqlite:///FILE; default: local mlflow.db"  # in the folder of the study or pretraining
_TRACKING = (
    "sqlite:///FILE, a server's URL such as http://HOST:PORT, a database's URL (postgresql, mysql, mssql), databricks, "
    "or, for a launch, none"
)
_TRACKING_CREDENTIALS = (
    "credentials come from environment variables: for an MLflow server, MLFLOW_TRACKING_USERNAME and "
    "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN; for PostgreSQL, PGPASSWORD"
)
_HOLDS_PASSWORD = f"--tracking-uri holds a password; allowed: the address without it; {_TRACKING_CREDENTIALS}"


def check_tracking_address(text: str) -> str:
    """Check `--tracking-uri`, the address of an MLflow store, and return it.

    Raises:
        ValueError: if mlflow or the database's driver is not installed, or the address is not supported, invalid or
            contains a password.
    """
    scheme, separator, _ = text.partition(":")
    if (not separator and text != "databricks") or scheme.partition("+")[0] not in TRACKING_SCHEMES:
        raise ValueError(f"--tracking-uri is {masked(text)}; allowed: {_TRACKING}")
    try:
        _, host, path, query, fragment = urlsplit(text)
    except ValueError as error:  # such as http://[::1
        raise ValueError(f"--tracking-uri is {masked(text)}: {error}; allowed: {_TRACKING}") from None
    user = (host + path).rpartition("@")[0] if scheme != "sqlite" else ""
    # For a web server, a user alone is a token; a "?" or "#" in it ends the host before the "@".
    is_token = scheme in ("http", "https") and "@" in host + path + query + fragment
    has_secret = SECRET_PARAMETER.search(f"?{unquote(query)}")  # also inside another parameter's value
    if ":" in user or is_token or has_secret:
        raise ValueError(_HOLDS_PASSWORD)
    place = host.rpartition("@")[2]
    port = place.rpartition(":")[2] if ":" in place.rpartition("]")[2] else None
    if scheme in ("http", "https") and (not place or (port is not None and not is_port(port))):
        raise ValueError(f"--tracking-uri is {masked(text)}; allowed: {scheme}://HOST:PORT with a port from 1 to 65535")
    if not is_installed("mlflow"):
        raise ValueError("--tracking-uri names an MLflow store, but mlflow is not installed; leave out --tracking-uri")
    if scheme not in ("http", "https", "databricks"):
        _check_database(text)
    return text


def _check_database(text: str) -> None:
    """Check the URL of a database that is an MLflow store: its form, and that its driver is installed.

    Raises:
        ValueError: if the URL contains a password, names no database that lasts, or Python cannot import its driver.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
        dialect = url.get_dialect()
        dialect.import_dbapi()
    except (ArgumentError, ValueError):  # ValueError: the port is no number
        raise ValueError(f"--tracking-uri is {masked(text)}; allowed: {_TRACKING}") from None
    except ImportError as error:
        raise ValueError(
            f"--tracking-uri is {masked(text)}, but its driver cannot be imported ({take_first_line(error)}); "
            "allowed: a URL whose driver is installed; for PostgreSQL, postgresql+psycopg2://... with the package from "
            "pip install '.[postgresql]'"
        ) from None
    if url.password is not None:  # a "?" or "#" in the password hides it from urlsplit
        raise ValueError(_HOLDS_PASSWORD)
    path = url.database or ""
    if dialect.name == "sqlite" and (url.host or not path or ":memory:" in path or url.query.get("mode") == "memory"):
        raise ValueError(f"--tracking-uri is {masked(text)}, which names no file; allowed: {_TRACKING}")


def make_tracking_absolute(uri: str) -> str:
    """Return the address of an MLflow store so that it means the same store in every working folder."""
    scheme, separator, path = uri.partition(":///")
    is_relative = bool(separator) and scheme.startswith("sqlite") and path[:1] not in ("", "/", ":")
    return f"{scheme}:///{Path.cwd() / path}" if is_relative else uri


# ---- files at a path or URI


def join(address: str, name: str) -> str:
    """Append `name` to a path or URI; a URI keeps its parameters."""
    if not is_uri(address):
        return str(Path(address) / name)
    parts = urlsplit(address)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


def open_uri(uri: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI, and the path in this file system."""
    from pyarrow.fs import FileSystem

    if uri.startswith("gs://") and "retry_limit_seconds=" not in uri:  # Google's default is 15 minutes
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds=10"
    files, path = FileSystem.from_uri(uri)
    return files, str(path)


def exists(address: str) -> bool:
    """Check if anything is at the path or URI."""
    if not is_uri(address):
        return Path(address).exists()
    files, path = open_uri(address)
    return bool(files.get_file_info(path).type.name != "NotFound")


def make_writable(address: str) -> None:
    """Check that files can be written in a folder or under a URI; create the folder if it is missing.

    Raises:
        DiskFull: if the folder's disk is full.
        ValueError: if the folder cannot be created, or no file can be written for another reason.
    """
    if is_uri(address):
        with small_object(address):
            return
    try:
        Path(address).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=address).close()
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(address) from None
        raise ValueError(f"folder {address} cannot be written: {error.strerror}") from None


@contextmanager
def small_object(uri: str) -> Iterator[str]:
    """Create an empty object under `uri`, yield its URI, then delete the object.

    Raises:
        ValueError: if the object cannot be written or deleted.
    """
    name = join(uri, f".written-{uuid.uuid4().hex}")
    with one_line_errors(f"{uri} cannot be written"):
        files, path = open_uri(name)
        make_parent(files, path)
        files.open_output_stream(path).close()
    try:
        yield name
    finally:
        with one_line_errors(f"{uri} cannot be written"):
            files.delete_file(path)


@contextmanager
def one_line_errors(problem: str) -> Iterator[None]:
    """Turn an `OSError` into a `ValueError` with a one-line message that begins with `problem`."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{problem}: {take_first_line(error)}") from None


def make_parent(files: FileSystem, path: str) -> None:
    """Create the parent folder of `path` on a local file system. Object stores need no parent folder."""
    if files.type_name == "local":
        files.create_dir(str(PurePosixPath(path).parent))


# ---- checks that a command's output can be written, before the command starts its work; `option` gave the path


_FILE = "a file in a writable folder"


def check_file(option: str, path: Path) -> None:
    """Check that a file can be written at `path`. The file may exist."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a file; allowed: {_FILE}")
    _check_within(path.parent, f"{option} {path}", allowed=_FILE)


def check_new_file(option: str, path: Path) -> None:
    """Check that a new file can be written at `path`. Its folder must exist."""
    if os.path.lexists(path):
        raise ValueError(f"{option} {path} exists; allowed: a new file")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"{option} {path} is in a folder that does not exist; allowed: a new file in an existing folder"
        )
    check_file(option, path)


def check_folder(option: str, path: Path) -> None:
    """Check that files can be written in the folder, or that the folder can be created."""
    _check_within(path, f"{option} {path}", allowed="a writable folder, or a new folder in one")


def check_new_folder(option: str, path: Path) -> None:
    """Check that a new folder can be created at `path`; an existing folder must be empty."""
    folder = Path(os.path.realpath(path))
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{option} {path} exists; allowed: a new or an empty folder")
    _check_within(folder.parent, f"{option} {path}", allowed="a new folder in a writable folder")


def _check_within(folder: Path, output: str, *, allowed: str) -> None:
    """Check that files can be written in the folder. If the folder is missing, check its nearest existing parent."""
    nearest = find_existing(folder)
    if not nearest.is_dir():
        raise ValueError(f"{output} cannot be written: {nearest} is not a folder; allowed: {allowed}")
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError:
        raise ValueError(f"{output} cannot be written: {nearest} is not writable; allowed: {allowed}") from None


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
