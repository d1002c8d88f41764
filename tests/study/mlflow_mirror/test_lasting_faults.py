"""Stores that no retry mends: pytest tests/study/mlflow_mirror/test_lasting_faults.py"""

from __future__ import annotations

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

pytestmark = pytest.mark.slow


@contextmanager
def server(code: int, body: bytes) -> Iterator[str]:
    """Run a web server that gives every request the same answer; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
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
    [(200, b"<html>hello</html>", "answers '<html>hello</html>'"), (500, b"x", "answers with the error 500")],
)
def test_server_that_is_not_mlflow_ends_the_copy_at_once(study, capsys, monkeypatch, code, body, found):
    monkeypatch.setattr(mirror.time, "sleep", lambda _: pytest.fail("retried"))
    with server(code, body) as uri:
        assert mirror.main([str(study), "--tracking-uri", uri]) == 2
    error = capsys.readouterr().err
    assert f"the server at {uri} is not a working MLflow ({found} to /health); correct --tracking-uri" in error
    assert error.count("\n") == 1


def test_server_that_starts_is_retried(study, capsys):
    with server(503, b"starting") as uri:
        assert mirror.main([str(study), "--tracking-uri", uri, "--patience", "0"]) == 1
    assert "Nothing is lost; to try again: " in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "text", "schema"])
def test_unusable_database_names_what_mends_it(study, tmp_path, capsys, monkeypatch, kind):
    path = tmp_path / "mlflow.db"
    uri = f"sqlite:///{path}"
    if kind == "folder":
        path.mkdir()
        fault = f"{path} is a folder, but the file of a database belongs there; move or delete the folder"
    elif kind == "text":
        path.write_text("text " * 100)
        fault = f"{uri} is not a database; move or delete the file"
    else:
        first = [sys.executable, "-m", "study.mirror", str(study), "--tracking-uri", uri]
        subprocess.run(first, cwd=ROOT, check=True)  # another process, because MLflow keeps a database that it opened
        with sqlite3.connect(path) as database:
            database.execute("update alembic_version set version_num='cc1f77228345'")
        fault = f"-m mlflow db upgrade {uri}, or install the MLflow that wrote it"
    capsys.readouterr()
    monkeypatch.setattr(mirror.time, "sleep", lambda _: pytest.fail("retried"))
    assert mirror.main([str(study), "--tracking-uri", uri]) == 2
    error = capsys.readouterr().err
    assert fault in error and error.count("\n") == 1
