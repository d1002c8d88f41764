"""A PostgreSQL of a test's own, on loopback, that asks for a password."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.places import free_port

USER, PASSWORD, DATABASE = "mlflow", "not-to-be-seen", "mlflow"
_DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@dataclass(frozen=True)
class PostgreSQL:
    """A server that runs."""

    uri: str  # without the password
    password_file: Path  # as libpq reads it


def lacking() -> str | None:
    """Why none can be started here; None where one can."""
    if not _DEBIAN:
        return "PostgreSQL is not installed (/usr/lib/postgresql)"
    if importlib.util.find_spec("psycopg2") is None:
        return "psycopg2-binary is not installed"
    if os.geteuid() == 0 and "postgres" not in [user.pw_name for user in pwd.getpwall()]:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """One with an empty database, until the end."""
    folder, port = Path(tempfile.mkdtemp(prefix="postgresql-")), free_port()
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)  # only in this folder, which is closed to others
        _run("initdb", "--pgdata", folder / "data", "--username", USER, "--pwfile", secret, "--auth", "scram-sha-256")
        settings = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        _run("pg_ctl", "--pgdata", folder / "data", "--log", folder / "log", "--options", settings, "--wait", "start")
        try:
            passwords = folder / "passwords"
            passwords.write_text(f"127.0.0.1:{port}:*:{USER}:{PASSWORD}\n")
            passwords.chmod(0o600)
            create = [_DEBIAN[-1] / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", USER, DATABASE]
            subprocess.run(create, check=True, env=os.environ | {"PGPASSFILE": str(passwords)})
            yield PostgreSQL(f"postgresql+psycopg2://{USER}@127.0.0.1:{port}/{DATABASE}", passwords)
        finally:
            _run("pg_ctl", "--pgdata", folder / "data", "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _run(program: str, *arguments: str | Path) -> None:
    """A program of PostgreSQL's, which refuses to be root."""
    user = "postgres" if os.geteuid() == 0 else None
    subprocess.run(
        [str(_DEBIAN[-1] / program), *map(str, arguments)],
        check=True,
        user=user,
        cwd="/",
        stdout=subprocess.DEVNULL,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
    )
