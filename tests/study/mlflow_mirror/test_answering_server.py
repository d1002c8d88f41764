"""Which servers answer: pytest tests/study/mlflow_mirror/test_answering_server.py"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from helpers.places import free_port

from study.mlflow_mirror import tracking
from study.mlflow_mirror.tracking import unreachable_reason


class Refusing(BaseHTTPRequestHandler):
    """Lets nobody in."""

    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_server_that_refuses_answers() -> None:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert unreachable_reason(f"http://127.0.0.1:{server.server_port}/") is None
        server.shutdown()


def test_nobody_behind_a_port_is_silence() -> None:
    assert unreachable_reason(f"http://127.0.0.1:{free_port()}") == "Connection refused"


def test_somebody_who_never_answers_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "timed out" in (unreachable_reason(f"http://127.0.0.1:{listener.getsockname()[1]}") or "")


def test_port_of_another_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            connection.recv(1000)
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        assert unreachable_reason(f"http://127.0.0.1:{listener.getsockname()[1]}") == "its answer is not HTTP"


@pytest.mark.parametrize("uri", ["", "none", "sqlite:///runs/x/mlflow.db", "postgresql://host/db", "databricks"])
def test_only_web_servers_are_asked(uri: str) -> None:
    assert unreachable_reason(uri) is None
