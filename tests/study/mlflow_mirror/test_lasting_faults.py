"""Stores that no retry mends: pytest tests/study/mlflow_mirror/test_lasting_faults.py"""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.places import ROOT

from study import mirror
from study.mlflow_mirror import tracking

pytestmark = pytest.mark.slow


@contextmanager
def server(code: int, body: bytes, *, health: int | None = None) -> Iterator[str]:
    """Run a web server that gives every request the same answer, or /health its own; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(health if health and self.path == "/health" else code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return launched_study(tmp_path_factory.mktemp("s") / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1))


@pytest.mark.parametrize(
    ("code", "body", "found"),
    [
        (200, b"\n<html>hello</html>", "answers '<html>hello</html>'"),
        (404, b"<html>nothing here</html>", "answers with the error 404"),
        (500, b"x", "answers with the error 500, also to /health"),
    ],
)
def test_server_that_is_not_mlflow_ends_the_copy_at_once(study, capsys, monkeypatch, code, body, found):
    monkeypatch.setattr(mirror.time, "sleep", lambda _: pytest.fail("retried"))
    with server(code, body) as uri:
        assert mirror.main([str(study), "--tracking-uri", uri]) == 2
    error = capsys.readouterr().err
    assert f"the server at {uri} is not a working MLflow ({found}); correct --tracking-uri" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "body", "health"),
    [
        (503, b"starting", 503),
        (503, b"starting", 404),  # a hosted MLflow without a health check
        (503, b"<html>", 200),  # a hosted MLflow whose pages answer every path
        (500, b'{"error_code": "INTERNAL_ERROR", "message": "database is gone"}', 200),
    ],
)
def test_server_that_may_recover_is_retried(study, capsys, code, body, health):
    with server(code, body, health=health) as uri:
        assert mirror.main([str(study), "--tracking-uri", uri, "--patience", "0"]) == 1
    assert "Nothing is lost; to try again: " in capsys.readouterr().err.splitlines()[-1]


def test_server_that_stays_silent_is_retried(study, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert mirror.main([str(study), "--tracking-uri", uri, "--patience", "0"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "timed out" in last and "Nothing is lost; to try again: " in last


def test_command_after_an_outage_is_quoted_and_registers_as_asked(journal, tmp_path, capsys, monkeypatch):
    def fail(*arguments: object, **options: object) -> None:
        raise TimeoutError("the store does not answer")

    monkeypatch.setattr(mirror, "mirror", fail)
    uri = f"sqlite:///{tmp_path}/a b.db"
    assert mirror.main([str(journal.folder), "--tracking-uri", uri, "--register"]) == 1
    command = f" -m study.mirror {journal.folder} --tracking-uri '{uri}' --register"
    assert capsys.readouterr().err.rstrip().endswith(command)


@pytest.mark.parametrize(("code", "body"), [(200, b"<html>maintenance</html>"), (404, b"no backend")])
def test_server_that_has_taken_runs_is_retried(code, body):
    with server(code, body) as uri:
        with pytest.raises(tracking.outages()) as refused:
            tracking.count_experiments(uri)
        assert tracking.find_lasting_fault(uri, refused.value, has_answered=False)
        assert tracking.find_lasting_fault(uri, refused.value, has_answered=True) is None


def test_store_without_a_registry_is_one_line(study, tmp_path, capsys, monkeypatch):
    def refuse(*_: object) -> Iterator[str]:
        from mlflow.exceptions import RestException

        raise RestException({"error_code": "ENDPOINT_NOT_FOUND", "message": "no registry"})

    monkeypatch.setattr(mirror, "register", refuse)
    assert mirror.main([str(study), "--tracking-uri", f"sqlite:///{tmp_path / 'mlflow.db'}", "--register"]) == 2
    error = capsys.readouterr().err
    assert "did not register the models: ENDPOINT_NOT_FOUND: no registry; the runs are there; " in error
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def database(study, tmp_path_factory):
    """A database of MLflow, made by another process, because MLflow keeps a database that it opened."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    command = [sys.executable, "-m", "study.mirror", str(study), "--tracking-uri", f"sqlite:///{path}"]
    subprocess.run(command, cwd=ROOT, check=True)
    return path


@pytest.mark.parametrize("kind", ["folder", "text", "damaged", "older", "newer", "newer, without a table"])
def test_unusable_database_names_what_mends_it(study, database, tmp_path, capsys, monkeypatch, kind):
    path = tmp_path / "mlflow.db"
    uri = f"sqlite:///{path}"
    if kind == "folder":
        path.mkdir()
        fault = f"{path} is a folder, but the file of a database belongs there; move or delete the folder"
    elif kind in ("text", "damaged"):
        content = bytearray(database.read_bytes())
        content[16_384:] = bytes(len(content) - 16_384)  # pages that never reached the disk
        path.write_bytes(b"text " * 100 if kind == "text" else content)
        fault = f"{uri} is damaged, or not a database; move or delete the file"
    else:
        shutil.copy(database, path)
        with sqlite3.connect(path) as changed:
            version = "cc1f77228345" if kind == "older" else "ffffffffffff"
            changed.execute(f"update alembic_version set version_num='{version}'")
            if kind == "newer, without a table":
                changed.execute("drop table tags")
        fault = f"of another version of MLflow (found version {version}"
    capsys.readouterr()
    monkeypatch.setattr(mirror.time, "sleep", lambda _: pytest.fail("retried"))
    assert mirror.main([str(study), "--tracking-uri", uri]) == 2
    error = capsys.readouterr().err
    assert fault in error and error.count("\n") == 1
    assert (f"-m mlflow db upgrade {uri}, or " in error) == (kind == "older")
    assert ("install the MLflow that wrote it" in error) == (kind not in ("folder", "text", "damaged"))
