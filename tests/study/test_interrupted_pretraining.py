"""Pretrainings that end early, continue or share their work: pytest tests/study/test_interrupted_pretraining.py"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from helpers.messages import says
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.pretrainings import MINI, SMALL, WARMED, command, refused, run
from helpers.started_processes import descendants, is_alive, kill, kill_all
from msgspec.structs import replace

from study import pretrain
from study.plans.pretrained_backbone import read_finished_pretraining, read_pretraining, write_pretraining

ENDLESS = (*WARMED, "--set", "steps=4000", "--set", "steps_per_epoch=2", *MINI)


def content(folder: Path) -> dict[str, bytes]:
    """All that is a function of the pretraining, and of no clock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".safetensors", ".txt")} | {
        name: (folder / name).read_bytes() for name in ("config.json", "tokenizer.json")
    }


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_bits(tmp_path, corpus):
    longer = (*WARMED, "--set", "steps=60", "--set", "steps_per_epoch=5", "--set", "hidden_dropout=0.1", *MINI)
    arguments = ("albert-mlm", "--corpus", corpus, *longer, "--to")
    whole, killed, kills = tmp_path / "whole", tmp_path / "killed", 0
    assert run(*arguments, str(whole)).returncode == 0
    draw = random.Random(1)
    for wanted in (0, 1, 1, 2, 4, 7, 11):
        process = subprocess.Popen(command(*arguments, str(killed)), stdout=subprocess.DEVNULL, cwd=ROOT)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and epochs_in(killed) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(draw.random() * 0.1)
        if process.poll() is None:
            kills += 1
            process.kill()
        process.wait()
    assert kills > 3 and not (read_pretraining(killed) or pytest.fail()).finished
    with pytest.raises(ValueError, match="is not finished: "):
        read_finished_pretraining(str(killed))
    assert run(*arguments, str(killed)).returncode == 0
    assert content(killed) == content(whole)
    file = read_pretraining(killed)
    assert file and [epoch.row.steps for epoch in file.epochs] == list(range(5, 61, 5))


def epochs_in(folder: Path) -> int:
    file = read_pretraining(folder)
    return len(file.epochs) if file else 0


@pytest.mark.slow
def test_second_process_on_a_folder_is_refused(tmp_path, corpus, capsys):
    with FileLock(tmp_path / "pretrain.lock"):
        line = refused(capsys, "mlm", "--corpus", "mini", "--to", str(tmp_path / "."), *SMALL)
    assert "contains text, but no pretraining" in line  # the corpus is not ours
    folder = tmp_path / "to"
    folder.mkdir()
    with FileLock(folder / "pretrain.lock"):
        line = refused(capsys, "mlm", "--corpus", corpus, "--to", str(folder), *SMALL)
    assert " is in use by another pretraining; " in line and not (folder / "pretraining.json").exists()


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=two_cores)])
def test_full_disk_is_one_line_and_the_same_command_continues(tmp_path, corpus, processes):
    """A limit on the size of files stands in for the disk: the first state does not fit.

    Of two processes, only the first writes the state; the second one fails because it loses the first.
    """
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL, "--processes", processes]
    code = (
        "import resource, signal; from study import pretrain; from study.drivers import pretraining;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY));"
        f"raise SystemExit(pretrain.main({arguments}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    last = done.stderr.splitlines()[-1]
    assert says(last, " cannot be written: ", "run the same command")
    assert not list(folder.glob(".*"))
    assert pretrain.main(arguments) == 0


def pretrain_until_write(number: int, arguments: list[str]) -> None:
    """The process is killed when it would replace `pretraining.json` for the time of this number, counted from 1."""
    code = f"""
import os, pathlib, signal
from study import pretrain

left = iter(range({number - 1}))
def replace(source, target, move=os.replace):
    if pathlib.Path(target).name == "pretraining.json" and next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    move(source, target)

os.replace = replace
pretrain.main({arguments})
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.mark.slow
def test_pretraining_killed_in_its_first_write_continues(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL]
    pretrain_until_write(1, arguments)
    assert [path.name.rstrip("0123456789") for path in sorted(folder.iterdir())] == [
        ".pretraining.json.",
        "pretrain.lock",
    ]
    assert pretrain.main(arguments) == 0
    assert not list(folder.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("is_changed", [True, False])
def test_resumed_pretraining_keeps_the_code_of_earlier_epochs(is_changed, tmp_path, corpus, capsys):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL]
    pretrain_until_write(3, arguments)  # after two epochs, of which the file has one
    now = read_pretraining(folder)
    assert now is not None and len(now.epochs) == 1
    before = {"git_commit": "0123abcd", "code_digest": "c0de", "versions": {**now.versions, "torch": "1.0"}}
    earlier = replace(now, **before) if is_changed else now
    write_pretraining(folder, earlier)
    assert pretrain.main(arguments) == 0
    file, said = read_pretraining(folder), capsys.readouterr().err
    assert file is not None and file.finished
    if not is_changed:
        assert said == "" and file.code_digest == now.code_digest
        return
    assert (file.git_commit, file.code_digest) == (f"0123abcd, {now.git_commit}", f"c0de, {now.code_digest}")
    assert file.versions == {**now.versions, "torch": f"1.0, {now.versions['torch']}"}
    assert said.count("\n") == 1 and says(said, f"code {now.code_digest}, not c0de", "torch ", ", not 1.0")


@pytest.mark.slow
def test_state_without_its_pretraining_is_refused(tmp_path, corpus, capsys):
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "state.pt").write_bytes(b"no state")
    line = refused(capsys, "mlm", "--corpus", corpus, "--to", str(folder), *SMALL)
    assert "contains state.pt, but no pretraining" in line


@pytest.mark.slow
def test_lost_or_damaged_state_starts_again(tmp_path, corpus, capsys):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL]
    pretrain_until_write(3, arguments)  # after two epochs
    (folder / "state.pt").write_bytes(b"no state")
    assert pretrain.main(arguments) == 2
    assert says(capsys.readouterr().err, "state.pt is damaged: ", f"delete {folder}/state.pt to start again\n")
    (folder / "state.pt").unlink()
    assert pretrain.main(arguments) == 0
    said = capsys.readouterr().out
    assert "continues after" not in said and "6 steps of 8 examples" in said


@pytest.mark.long
@pytest.mark.slow
@two_cores
def test_two_processes_end_as_one_and_go_on_where_one_was(tmp_path, corpus):
    arguments = (
        "mlm",
        "--corpus",
        corpus,
        *SMALL,
        "--set",
        "hidden_dropout=0",
        "--set",
        "classifier_dropout=0",
        "--to",
    )
    one, two = tmp_path / "one", tmp_path / "two"
    assert pretrain.main([*arguments, str(one)]) == 0
    done = run(*arguments, str(two), "--processes", "2")
    assert done.returncode == 0, done.stderr
    ours, theirs = read_finished_pretraining(str(one)), read_finished_pretraining(str(two))
    assert ours and theirs and ours.tokens == theirs.tokens
    assert theirs.scores == pytest.approx(ours.scores, abs=1e-2)
    file = read_pretraining(two)
    assert file and file.processes == 2


@pytest.mark.slow
@two_cores
def test_processes_with_another_corpus_are_refused(tmp_path, corpus):
    """As on two nodes whose folders of the same name differ."""
    other, script = tmp_path / "other.txt", tmp_path / "pretrain_here.py"
    other.write_text((Path(corpus) / "text.txt").read_text().upper())
    arguments = ["mlm", *SMALL, "--to", str(tmp_path / "to"), "--corpus"]
    script.write_text(
        "import os\nfrom study import pretrain\n"
        f"raise SystemExit(pretrain.main([*{arguments}, {[corpus, str(other)]}[int(os.environ['RANK'])]]))\n"
    )
    words = ["--standalone", "--nproc-per-node", "2", str(script)]
    torchrun = subprocess.Popen(
        command(*words, module="torch.distributed.run"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        _, said = torchrun.communicate(timeout=PATIENCE_SECONDS)
    finally:
        kill_all(torchrun)
    assert torchrun.returncode != 0
    (line,) = (line for line in said.splitlines() if " has other data or code than the first process: " in line)
    assert line.startswith("study.pretrain: ") and not (tmp_path / "to" / "config.json").exists()


@pytest.mark.slow
@two_cores
def test_torchrun_ends_at_once_on_finished_backbone(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ("mlm", "--corpus", corpus, *SMALL, "--to", str(folder))
    assert pretrain.main([*arguments]) == 0
    before = content(folder)
    words = ["--standalone", "--nproc-per-node", "2", "-m", "study.pretrain", *arguments]
    torchrun = subprocess.Popen(
        command(*words, module="torch.distributed.run"), stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        printed, _ = torchrun.communicate(timeout=PATIENCE_SECONDS)
    finally:
        kill_all(torchrun)
    assert torchrun.returncode == 0
    assert printed.count(f"{folder}: all 6 steps are done already\n") == 1
    assert content(folder) == before


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "steps"), [("1e-9", 2), ("1e9", 6)])
@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=[two_cores, pytest.mark.long])])
def test_max_minutes_finishes_the_backbone_after_an_epoch(minutes, steps, processes, tmp_path, corpus, capfd):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", "mini", "--corpus", corpus, *SMALL, "--to", str(folder), "--max-minutes", minutes]
    assert pretrain.main([*arguments, "--processes", processes]) == 0
    assert f"\nfinished: {steps} steps, " in capfd.readouterr().out
    made, file = read_finished_pretraining(str(folder)), read_pretraining(folder)
    assert made and made.steps == steps and file and file.processes == int(processes)
    limits = [departure.here for departure in made.departures if departure.what == "steps"]
    assert limits == (["2, because of --max-minutes 1e-09"] if steps == 2 else [])
    assert not (folder / "state.pt").exists()
    assert pretrain.main(arguments) == 0
    said = "2 of 6 steps (--max-minutes) " if steps == 2 else "all 6 steps are done"
    assert said in capfd.readouterr().out


@pytest.mark.long
@pytest.mark.slow
def test_the_time_of_earlier_commands_counts_for_max_minutes(tmp_path, corpus):
    folder, arguments = tmp_path / "to", ["mlm", "--corpus", corpus, *ENDLESS]
    with subprocess.Popen(command(*arguments, "--to", str(folder)), stdout=subprocess.DEVNULL) as process:
        while not (folder / "state.pt").exists() and process.poll() is None:
            time.sleep(0.05)
        process.kill()
    before = read_pretraining(folder)
    assert before is not None
    done = run(*arguments, "--to", str(folder), "--max-minutes", str(before.made.wall_seconds / 60))
    assert done.returncode == 0, done.stderr
    after = read_pretraining(folder)
    assert after and after.finished and len(after.epochs) - len(before.epochs) <= 1  # one may be saved and not written


@pytest.mark.long
@pytest.mark.slow
@two_cores
def test_lost_process_of_several_is_one_line_and_all_end(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ("mlm", "--corpus", corpus, *ENDLESS, "--to", str(folder), "--processes", "2")
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        members = members_after_an_epoch(process, folder)
        assert len(members) == 2
        kill(members[1:])
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        kill_all(process)
    assert process.returncode == 1
    assert says(errors, "process 1 was killed", "run the same command")
    assert not any(map(is_alive, members))


@pytest.mark.long
@pytest.mark.slow
@two_cores
def test_processes_end_with_a_command_that_is_killed(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ("mlm", "--corpus", corpus, *ENDLESS, "--to", str(folder), "--processes", "2")
    process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, cwd=ROOT)
    try:
        members = members_after_an_epoch(process, folder)
        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(map(is_alive, members)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        kill_all(process)


def members_after_an_epoch(process: subprocess.Popen, folder: Path) -> list[psutil.Process]:
    """The processes that pretrain; multiprocessing has one of its own beside them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while epochs_in(folder) < 1:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    return [child for child in descendants(process.pid, "python") if "spawn_main" in str(child.cmdline())]
