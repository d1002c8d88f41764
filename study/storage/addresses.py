"""Where trials keep their states and models: the path of a folder that every node sees, or a URI (s3://bucket/path)."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from study.cluster.resources import is_port
from study.storage.secrets import has_secret_parameter, masked

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PARAMETERS = {
    "file": (),
    "gs": ("endpoint_override", "retry_limit_seconds", "scheme"),
    "s3": ("endpoint_override", "region", "scheme"),
}


def is_uri(text: str) -> bool:
    return "://" in text


def storage_address(text: str) -> str:
    """The whole path, or the URI, that `--storage` names.

    Raises:
        ValueError: it is a kind of URI that is not allowed.
    """
    if not is_uri(text):
        scheme, colon, path = text.partition(":")
        if colon and scheme in PARAMETERS:  # a folder of such a name is written ./s3:
            raise ValueError(f"--storage is {text}; did you mean {scheme}://{path.lstrip('/')}?")
        return os.path.realpath(text)
    scheme, host, path, query, _ = urlsplit(text)
    if scheme not in PARAMETERS:
        raise ValueError(f"--storage is {masked(text)}; allowed: a folder, file:///PATH, gs://BUCKET, s3://BUCKET")
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


TRACKING_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")
TRACKING_WORDS = "MLflow's sqlite:///FILE, or the URL of a server or database"  # for `--help`
TRACKING_DEFAULT = "default: mlflow.db in the study's folder"
_TRACKING = (
    "sqlite:///FILE, a server's URL such as http://HOST:PORT, a database's (postgresql, mysql, mssql), databricks; for "
    "a launch also none"
)
_TRACKING_CREDENTIALS = (
    "credentials are taken from variables (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD or "
    "MLFLOW_TRACKING_TOKEN; PGPASSWORD, or the database's own)"
)


def tracking_address(text: str) -> str:
    """The URI of an MLflow store that `--tracking-uri` names.

    Raises:
        ValueError: it is a folder, which MLflow writes no more, or a kind of address that it does not have, or one of a
            web server without a host or with no port; it holds a password, which would stand in the plan, the journal,
            the report and the list of processes.
    """
    scheme, separator, _ = text.partition(":")
    if not separator and text != "databricks" or scheme.partition("+")[0] not in TRACKING_SCHEMES:
        raise ValueError(f"--tracking-uri is {masked(text)}; allowed: {_TRACKING}")
    _, host, path, query, _ = urlsplit(text)
    user = (host + path).rpartition("@")[0] if "@" in host + path and scheme != "sqlite" else ""
    is_token = bool(user) and scheme in ("http", "https")  # a web server has no user without a password
    if ":" in user or is_token or has_secret_parameter(query):
        raise ValueError(f"--tracking-uri holds a password; allowed: the address without it, {_TRACKING_CREDENTIALS}")
    place = host.rpartition("@")[2]
    port = place.rpartition(":")[2] if ":" in place.rpartition("]")[2] else None
    if scheme in ("http", "https") and (not place or port is not None and not is_port(port)):
        raise ValueError(f"--tracking-uri is {masked(text)}; allowed: {scheme}://HOST:PORT, a port from 1 to 65535")
    return text


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
    """Makes the folder, or the place under the URI, and writes in it, for once.

    Raises:
        ValueError: that cannot be done.
    """
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
    """The URI of an empty object under `uri`, for a while.

    Raises:
        ValueError: it cannot be written or deleted.
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
def one_line_errors(what: str) -> Iterator[None]:
    """An `OSError` within becomes a `ValueError` of one line that says `what` went wrong."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{what}: {str(error).splitlines()[0]}") from None


def make_parent(files: FileSystem, path: str) -> None:
    """Makes the folder of `path` where the file system has folders; object stores need none."""
    if files.type_name == "local":
        files.create_dir(os.path.dirname(path))
