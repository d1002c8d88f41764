"""Who may run code on a Ray that a study starts or joins: pytest tests/study/cluster/test_tokens.py"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.places import PATIENCE_SECONDS, ROOT

from study import doctor, launch
from study.cluster.ray_cluster import describe_readable_token
from study.cluster.ray_internals import own_token

WITHOUT = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
STRANGER = """
import sys
from ray.exceptions import AuthenticationError
from study.cluster.ray_internals import ask_head
try:
    ask_head(sys.argv[1])
except AuthenticationError:
    print("refused")
"""
LOCAL = f"""
import os, subprocess, sys
import ray
from study.cluster.ray_cluster import ray_cluster
with ray_cluster(None):
    @ray.remote
    def read_token():
        return os.environ["RAY_AUTH_TOKEN"]
    token, address = os.environ["RAY_AUTH_TOKEN"], ray.get_runtime_context().gcs_address
    assert ray.get(read_token.remote()) == token and len(token) == 64
    others = {{"RAY_AUTH_MODE": "disabled"}}, {{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 64}}
    for other in others:
        subprocess.run([sys.executable, "-c", {STRANGER!r}, address], env=os.environ | other, check=True)
    arguments = subprocess.run(["ps", "-eww", "-o", "args="], capture_output=True, text=True).stdout
    assert "raylet" in arguments and token not in arguments
    session = ray._private.worker._global_node.get_session_dir_path()
    assert subprocess.run(["grep", "-rqF", "--devices=skip", token, session]).returncode == 1
assert os.environ.get("RAY_AUTH_TOKEN") == sys.argv[1] if len(sys.argv) > 1 else "RAY_AUTH_TOKEN" not in os.environ
print("done")
"""


def environment(home: Path, **own: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in WITHOUT}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT)} | own


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "own",
    [{}, {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "c" * 64}],
)
def test_local_ray_requires_a_token_that_no_file_contains(tmp_path: Path, own: dict[str, str]) -> None:
    """Whatever the user's environment says about other clusters."""
    command = ["-c", f"import os; os.umask(0o022)\n{LOCAL}", *filter(None, [own.get("RAY_AUTH_TOKEN")])]
    found = subprocess.run(
        [sys.executable, *command],
        env=environment(tmp_path, **own),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert found.stdout.split() == ["refused", "refused", "done"], found.stderr
    assert not (tmp_path / ".ray").exists()


@pytest.mark.parametrize("before", [None, "c" * 64])
def test_environment_is_as_before_after_a_local_ray(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    if before:
        monkeypatch.setenv("RAY_AUTH_TOKEN", before)
    tokens = set()
    for _ in range(2):
        with own_token():
            assert os.environ["RAY_AUTH_MODE"] == "token"
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
    assert len(tokens - {before}) == 2
    assert os.environ.get("RAY_AUTH_TOKEN") == before and "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o400, False), (0o640, True), (0o644, True), (0o604, True)]
)
@pytest.mark.parametrize("by_path", [True, False])
def test_token_that_others_may_read_is_a_fault_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_open: bool, by_path: bool
) -> None:
    path = tmp_path / ("elsewhere" if by_path else ".ray/auth_token")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path) if by_path else "")
    assert describe_readable_token() is None and doctor.check_token() == []  # there is no file
    path.parent.mkdir(exist_ok=True)
    path.write_text("c" * 64)
    path.chmod(mode)
    if not is_open:
        assert describe_readable_token() is None and doctor.check_token() == []
        return
    (finding,) = doctor.check_token()
    assert finding.is_fault and finding.text == describe_readable_token()
    subprocess.run(finding.text.rpartition(": ")[2], shell=True, check=True)
    assert path.stat().st_mode & 0o777 == 0o600 and describe_readable_token() is None


def test_launch_on_a_cluster_names_a_token_that_others_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster has no room for a trial, so the launch ends once it has looked."""

    def refuse(options: object) -> None:
        raise ValueError("no room")

    monkeypatch.setattr("study.cluster.ray_cluster.ray_cluster", lambda address: nullcontext())
    monkeypatch.setattr("study.launch.measure_resources", refuse)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("c" * 64)
    token.chmod(0o644)
    named = describe_readable_token()
    command = ["--method", "albert", "--task", "rte", "--profile", "mini", "--data", "mini", "--driver", "ray"]
    command += ["--tracking-uri", "none", "--address", "10.0.0.1:6379", "--out", str(tmp_path / "runs")]
    assert launch.main(command) == 2
    assert capsys.readouterr().err.splitlines()[-2:] == [named, "study.launch: no room"]
    token.chmod(0o600)
    assert launch.main(command) == 2
    assert str(token) not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/cluster.md", marks=pytest.mark.long)])
@pytest.mark.parametrize("before", [pytest.param(None, marks=pytest.mark.long), 0o644])
def test_documented_commands_leave_a_token_that_only_its_owner_reads(
    tmp_path: Path, page: str, before: int | None
) -> None:
    """Also if Ray had already written the file, with the permissions of an ordinary file."""
    token = tmp_path / ".ray" / "auth_token"
    if before is not None:
        token.parent.mkdir()
        token.write_text("c" * 64)
        token.chmod(before)
    lines = [
        line.partition("#")[0]
        for line in (ROOT / page).read_text().splitlines()
        if ("auth" in line and "60" in line) or "get-auth" in line
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-ec", "umask 022\n" + "\n".join(lines)], env=environment(tmp_path, PATH=path), check=True)
    assert token.stat().st_mode & 0o777 == 0o600 and len(token.read_text()) == 64
