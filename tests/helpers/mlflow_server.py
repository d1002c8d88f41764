"""A tracking server as `docs/mlflow.md` starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from helpers.places import PATIENCE_SECONDS, free_port


class Server:
    """A real `mlflow server` on loopback that can be killed and started again on the same store."""

    def __init__(self, folder: Path, **environment: str) -> None:
        """`environment` is what it finds beside ours; its store is `MLFLOW_BACKEND_STORE_URI`, or a file."""
        self._folder, self._port = folder, free_port()
        store = {"MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder / 'server.db'}"}
        self._environment = os.environ | store | environment
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port)]
        artifacts = ["--workers", "1", "--artifacts-destination", str(self._folder / "artifacts")]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command + artifacts, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        wait_until(self._answers)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process and self._process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
        try:
            return urllib.request.urlopen(f"{self.uri}/health", timeout=2).status == 200
        except OSError:
            return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s"
        time.sleep(0.2)
