"""Methods and tasks in several folders of --include: pytest tests/study/test_two_included_folders.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.faulty_methods import write_counting, write_method, write_reading
from helpers.launches import WITHOUT_RAY
from helpers.launches_here import training_here
from helpers.messages import says
from helpers.own_tasks import forget_tasks, write_learnable_tasks

import trainables
from study import launch
from study.facts.plan_file import require_plan
from trainables.files import method_files
from trainables.files.method_files import join_folders


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two folders with a method each; that of the first reads a file beside it."""
    yield write_reading(tmp_path / "one"), write_counting(tmp_path / "two")
    forget_tasks()


def test_methods_of_both_folders_are_studied(folders, tmp_path, capsys):
    one, two = folders
    include = ["--include", str(one), "--include", str(two)]
    asked = ["--profile", "mini", "--method", "reading,counting", "--task", "rte", "--out", str(tmp_path / "runs")]
    assert launch.main([*asked, *include, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "  reading/rte " in out and "  counting/rte " in out
    assert launch.main([*asked, *include, "--dry-run", "--toml"]) == 0
    (tmp_path / "plan.toml").write_text(capsys.readouterr().out)
    assert launch.main(["--plan", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "runs"), "--dry-run"]) == 0
    assert "  reading/rte " in (out := capsys.readouterr().out) and "  counting/rte " in out


def test_digest_of_a_method_is_that_in_its_folder_alone(folders):
    one, two = folders
    trainables.include(one)
    alone = method_files.compute_digest("reading")
    trainables.include(join_folders([str(one), str(two)]))
    assert method_files.compute_digest("reading") == alone
    assert method_files.locate_files("counting")[0].path == f"{two}/counting.py"


def test_tasks_of_one_folder_and_methods_of_another(folders, tmp_path, capsys):
    write_learnable_tasks(tmp_path / "tasks")
    name = sorted(path.name for path in (tmp_path / "tasks").iterdir() if (path / "task.toml").exists())[0]
    include = ["--include", str(folders[0]), "--include", str(tmp_path / "tasks")]
    asked = ["--profile", "mini", "--method", "reading", "--task", name, "--out", str(tmp_path / "runs"), "--dry-run"]
    assert launch.main([*asked, *include]) == 0
    assert f"  reading/{name} " in capsys.readouterr().out


def test_files_of_the_same_name_are_refused(folders, tmp_path, capsys):
    other = write_method(tmp_path / "other", "reading")
    asked = ["--profile", "mini", "--task", "rte", "--method", "reading", "--dry-run"]
    assert launch.main([*asked, "--include", str(folders[0]), "--include", str(other)]) == 2
    error = capsys.readouterr().err
    assert says(
        error, "--include: ", str(folders[0]), str(other), "both have reading.py; ", "allowed: each name in one"
    )
    assert error.count("\n") == 1


@pytest.mark.long
@pytest.mark.slow
def test_study_of_two_folders_runs_and_continues(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("study.rebuild.analyse", lambda folder: True)

    def run(*arguments: str) -> None:
        method_files.include(None)  # as in a new process
        with training_here():
            assert launch.main([*arguments]) == 0

    small = ["--method", "reading,counting", "--task", "rte", "--samples", "0", "--seeds", "1", "--epochs", "1"]
    where = [
        "--profile",
        "mini",
        "--tracking-uri",
        "none",
        *WITHOUT_RAY,
        "--out",
        str(tmp_path / "runs"),
        "--name",
        "s",
    ]
    run(*small, *where, "--include", str(folders[0]), "--include", str(folders[1]))
    run("--continue", str(tmp_path / "runs" / "s"), "--seeds", "2")
    asked = require_plan(tmp_path / "runs" / "s").plan.request
    assert asked.include == f"{folders[0]}:{folders[1]}" and asked.seeds == 2
