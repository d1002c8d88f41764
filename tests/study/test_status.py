"""pytest tests/study/test_status.py"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from helpers.journals import ANY_PLAN, failure_of
from helpers.launched_studies import launched_study, mini_plan
from helpers.messages import says, shown
from helpers.mlflow_stores import planned
from helpers.simulation import NO_PROVENANCE, Simulation
from msgspec.structs import replace

from study import launch, status
from study.decisions.progress import read_progress
from study.drivers.messages import STEPS_FILE, Steps, read_steps, write_steps
from study.facts.events import (
    FORMAT,
    EpochReported,
    LaunchBegan,
    NodeLeftOut,
    SearchClosed,
    SmokeStepFailed,
    TrialEnded,
    read_events,
)
from study.facts.journal import Journal
from study.facts.journal_copy import COPY
from study.facts.plan_file import write_plan
from study.facts.study_facts import read_facts
from study.launching.planned_study import plan_file
from study.plans import profiles
from study.plans.resolution import resolve
from study.terminal.text import clock


def study_folder(folder: Path, *, events: int | None = None) -> Path:
    """A simulated study, cut off after so many events."""
    folder.mkdir(exist_ok=True)
    plan = replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte", "cola"), samples=3, seeds=2)
    simulation = Simulation(resolve(plan))
    simulation.launch()
    write_plan(folder, plan_file(folder, simulation.resolved, NO_PROVENANCE))
    write_journal(folder, map(msgspec.json.encode, simulation.journal.events[:events]))
    return folder


def write_journal(folder: Path, lines: Iterable[bytes]) -> None:
    (folder / COPY).unlink(missing_ok=True)
    (folder / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def test_a_complete_study_misses_nothing(tmp_path, capsys):
    assert status.main([str(study_folder(tmp_path)), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["complete"] and facts["missing"] == facts["failed"] == facts["under_way"] == []
    assert sum(facts["trials"].values()) == facts["total"] == 2 * (3 + 2)


def test_the_ledger_has_every_arm_and_phase_with_its_stopped_trials(tmp_path, capsys):
    folder = study_folder(tmp_path)
    status.main([str(folder), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert [(entry["arm"], entry["phase"]) for entry in facts["ledger"]] == [
        (arm, phase) for arm in ("albert/rte", "albert/cola") for phase in ("search", "confirm")
    ]
    totals = Counter()
    for entry in facts["ledger"]:
        totals.update(entry["trials"])
    assert totals == facts["trials"] and totals["stopped"] > 0
    reported = [event for event in read_events(folder) if isinstance(event, EpochReported)]
    assert sum(entry["epochs"] for entry in facts["ledger"]) == len(reported)


def test_reopened_search_is_not_over(tmp_path):
    folder = study_folder(tmp_path, events=30)
    closed = SearchClosed(time="", arms=["albert/rte", "albert/cola"], max_gpu_hours=1.0)
    facts = {"command": "", "host": "", "pid": 0, "versions": {}, "git_commit": None, "code_digest": ""}
    facts |= {"storage": None, "plan": ANY_PLAN}
    began = LaunchBegan(time="", format=FORMAT, launch=2, max_gpu_hours=2.0, **facts)
    before = (folder / "events.jsonl").read_bytes().splitlines()
    write_journal(folder, [*before, *map(msgspec.json.encode, (closed, began))])
    assert not any(arm.is_search_closed for arm in read_progress(folder).arms)


def test_help_gives_the_exit_status_of_an_unfinished_study(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = status.main.parser().format_help()
    assert says(said, "0 if ", "is complete; ", "1 if ", "failed")
    assert status.main([str(study_folder(tmp_path / "study", events=8))]) == status.main([str(tmp_path)]) == 1


def test_a_finished_study_with_failures_names_tracebacks_and_no_continuation(tmp_path, capsys):
    folder = study_folder(tmp_path)
    progress = read_progress(folder)
    failed = replace(status.collect_status(progress, folder), failed=["albert/rte search 0: KeyError"], complete=False)
    status._print(progress, failed, str(folder))
    printed = capsys.readouterr().out
    assert progress.is_finished and "tracebacks: " in printed
    assert "continue: " not in printed and "table: " not in printed


def test_continuation_is_of_this_folder_within_the_limit_of_the_last_launch(tmp_path, capsys):
    folder = study_folder(tmp_path / "study", events=8)
    lines = (folder / "events.jsonl").read_text().splitlines()
    began = json.loads(lines[0]) | {"max_gpu_hours": 2.5, "command": "python -m study.launch --name other --then '***'"}
    write_journal(folder, [json.dumps(began, separators=(",", ":")).encode(), *map(str.encode, lines[1:])])
    copy = folder.rename(tmp_path / "a copy")
    assert status.main([str(copy)]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("continue: "))
    assert line.endswith(f" -m study.launch --continue '{copy}' --max-gpu-hours 2.5")


def test_a_damaged_line_of_the_journal_comes_with_a_repair(tmp_path, capsys):
    folder = study_folder(tmp_path, events=8)
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    write_journal(folder, [*lines[:-1], lines[-1][:-1] + b"?"])
    assert status.main([str(folder)]) == 2
    assert says(capsys.readouterr().err, "; restore ", "a copy, or delete this line", "all lines after it")


@pytest.mark.parametrize("holder", [None, "somebody"])
def test_what_is_missing_saved_and_under_way_is_named(tmp_path, capsys, monkeypatch, holder, snapshot):
    folder = study_folder(tmp_path / "study", events=8)
    monkeypatch.setattr(status, "find_lock_holder", lambda folder: holder)
    assert status.main([str(folder)]) == 1
    screen = re.sub(r"\d\d\.\d\b", "xx.x", shown(capsys.readouterr().out, tmp_path))  # a score of a simulated trial
    assert re.sub(r"about \d:\d\d", "about m:ss", screen) == snapshot


def test_steps_within_an_epoch_are_those_of_the_launch_that_runs(tmp_path, monkeypatch):
    folder = study_folder(tmp_path, events=8)
    progress = read_progress(folder)
    key = next(iter(progress.facts.under_way))
    write_steps(folder, [Steps(key=key, done=78, of=312, seconds=60.0)])
    killed = status.collect_status(progress, folder)
    assert killed.under_way[0].endswith(", saved at epoch 1")
    monkeypatch.setattr(status, "find_lock_holder", lambda folder: "somebody")
    runs = status.collect_status(progress, folder)
    assert runs.under_way[0].endswith(" at epoch 1, step 78/312")
    assert runs.remaining_seconds == pytest.approx(killed.remaining_seconds - 0.25)  # an epoch takes a second here


def test_node_is_left_out_only_by_a_launch_that_runs(tmp_path, monkeypatch):
    folder = study_folder(tmp_path, events=8)
    progress = read_progress(folder)
    progress.facts.apply(NodeLeftOut(time="", node="node-a", host="a", trials=2, seconds=600.0, error="no disk"))
    left_out = []
    for holder in (None, "somebody"):
        monkeypatch.setattr(status, "find_lock_holder", lambda folder, holder=holder: holder)
        left_out.append(status.collect_status(progress, folder).left_out)
    assert left_out[0] == [] and says(left_out[1][0], "node a (node-a) gets no trials for 10:00")


@pytest.mark.parametrize("text", ["", "[{", "{}"])
def test_steps_that_cannot_be_read_are_left_out(tmp_path, text):
    (tmp_path / STEPS_FILE).write_text(text)
    assert read_steps(tmp_path) == {}


def test_missing_results_are_listed_in_json_and_on_screen(tmp_path, capsys, snapshot):
    folder = launched_study(tmp_path / "study", mini_plan(methods=("albert",), tasks=("rte", "cola"), search_repeats=2))
    write_journal(folder, (folder / "events.jsonl").read_bytes().splitlines()[:1])
    status.main([str(folder)])
    assert shown(capsys.readouterr().out, tmp_path) == snapshot
    status.main([str(folder), "--json"])
    cells = ["albert/rte", "albert/rte@2", "albert/cola", "albert/cola@2"]
    assert sorted(json.loads(capsys.readouterr().out)["missing"]) == sorted(f"{cell}: not begun" for cell in cells)


def test_a_dry_run_says_what_of_the_plan_is_done(tmp_path, capsys):
    study_folder(tmp_path / "study")
    arguments = ["--method", "albert", "--task", "rte,cola", "--samples", "3", "--seeds", "2", "--profile", "mini"]
    assert launch.main([*arguments, "--name", "study", "--out", str(tmp_path), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert says(printed, "ended so far: 10 trials", "unfinished: 0", ": 0:0")


def test_status_says_who_runs_the_study_and_changes_nothing(tmp_path, capsys):
    folder = study_folder(tmp_path, events=8)
    journal = Journal(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    status.main([str(folder)])
    assert re.search(r" process \d+ on \S+ since \S+T\d\d:\d\d:\d\d\+00:00\n", capsys.readouterr().out)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    journal.close()


def test_study_without_plan_tells_how_to_restore_it(tmp_path, capsys):
    folder = study_folder(tmp_path / "study")
    began, *others = read_events(folder)
    command = "python -m study.launch --name mine"
    write_journal(folder, map(msgspec.json.encode, [replace(began, command=command), *others]))
    (folder / "plan.json").unlink()
    assert status.main([str(folder)]) == 2
    assert says(capsys.readouterr().err, f"study.status: {folder} has no plan.json; ", f": {command}\n")


@pytest.mark.parametrize("content", [None, "{}", "not json"])
def test_a_folder_that_is_no_study_is_refused_in_one_line(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    assert status.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path) in error and error.count("\n") == 1


def test_full_disk_ends_launch_in_one_line_without_loss(tmp_path):
    """A file size limit stands in for the disk: the kernel cuts the write of `launch_began` short in the same way."""
    folder = study_folder(tmp_path / "study", events=60)
    before = (folder / "events.jsonl").read_bytes()
    arguments = ["--method", "albert", "--task", "rte,cola", "--samples", "3", "--seeds", "2", "--profile", "mini"]
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 20}, resource.RLIM_INFINITY));"
        f"from study import launch; raise SystemExit(launch.main({[*arguments, '--name', 'study']} + "
        f"['--out', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "", done.stderr
    assert says(done.stderr.splitlines()[-1], "is the disk full?; ", "to continue, run the same command")
    assert (folder / "events.jsonl").read_bytes() == before


def test_study_folders_are_listed_by_last_launch(tmp_path, capsys):
    launched_study(tmp_path / "whole")
    study_folder(tmp_path / "begun", events=9)
    broken = study_folder(tmp_path / "broken", events=9)
    (broken / "plan.json").write_text("{}")
    (tmp_path / "else").mkdir()
    assert status.main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["study", "broken", "begun", "whole", "together", "broken:"]
    assert "broken/plan.json is not a plan" in lines[5]
    spent = read_facts(tmp_path / "begun").records + read_facts(tmp_path / "whole").records
    assert f" {clock(sum(record.gpu_seconds for record in spent))} " in lines[4]
    assert "2 cells missing" in lines[2] and lines[3].split()[-1] == "complete"
    assert status.main([str(tmp_path), "--json"]) == 1
    assert [entry["study"] for entry in json.loads(capsys.readouterr().out)] == ["broken", "begun", "whole"]


def test_names_and_lines_are_never_broken_where_there_is_no_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    (tmp_path / "all").mkdir()
    folder = study_folder(tmp_path / "all" / "a-name-that-is-wider-than-thirty-columns", events=9)
    assert status.main([str(tmp_path / "all")]) == 1
    assert len(lines := capsys.readouterr().out.splitlines()) == 2
    assert lines[1].startswith(f"{folder.name}  albert   rte, cola") and lines[1].endswith("2 cells missing")
    assert status.main([str(folder)]) == 1
    assert says(capsys.readouterr().out.splitlines()[0], f"study {folder.name} ", "10 trials")


def test_failures_of_several_studies_are_refused_with_their_folders(tmp_path, capsys):
    folder = study_folder(tmp_path / "begun", events=9)
    assert status.main([str(tmp_path), "--failures"]) == 2
    assert capsys.readouterr().err == f"study.status: --failures is for one study; allowed: {folder}\n"


def test_one_missing_cell_is_one_cell(tmp_path):
    folder = study_folder(tmp_path, events=9)
    found = replace(status.collect_status(read_progress(folder), folder), failed=[], launch=None)
    assert status._describe_state(found) == "2 cells missing"
    assert status._describe_state(replace(found, missing=found.missing[:1])) == "1 cell missing"


def test_a_folder_of_complete_studies_is_complete(tmp_path):
    launched_study(tmp_path / "whole")
    assert status.main([str(tmp_path)]) == 0


def test_every_failed_attempt_is_told_with_its_traceback(tmp_path, capsys, snapshot):
    journal = planned(tmp_path / "mine")
    journal.begin()
    journal.start("a" * 16, trial=3)
    journal.retry("a" * 16, "[Errno 28] No space left on device")
    failure = replace(failure_of("method", error="KeyError: 'threshold'"), traceback="Traceback:\n  in build\n")
    journal.append(TrialEnded(time=journal.now(), key="a" * 16, status="failed", failure=failure))
    status.main([str(tmp_path / "mine"), "--failures"])
    assert capsys.readouterr().out == snapshot
    status.main([str(tmp_path / "mine"), "--failures", "--json"])
    first, last = json.loads(capsys.readouterr().out)["failures"]
    assert (first["attempt"], last["attempt"], last["became"]) == (1, 2, "failed")
    assert last["failure"]["traceback"] == failure.traceback and first["failure"]["traceback"] is None
    status.main([str(tmp_path / "mine")])
    assert shown(capsys.readouterr().out, tmp_path) == snapshot


def test_a_smoke_step_that_failed_is_told_until_the_next_launch(tmp_path, capsys):
    journal = planned(tmp_path / "mine")
    journal.begin()
    failure = failure_of("method", error="KeyError: 'gain'")
    journal.append(SmokeStepFailed(time=journal.now(), arm="palbert/rte", config={}, failure=failure))
    journal.end(status="interrupted")
    assert status.main([str(tmp_path / "mine")]) == 1
    told = capsys.readouterr().out
    assert says(told, "failed: palbert/rte: ", "smoke step ", ": KeyError: 'gain'\n") and "tracebacks: " in told
    journal.begin(launch=2)
    status.main([str(tmp_path / "mine")])
    assert "smoke step" not in capsys.readouterr().out


def test_failures_of_an_arm_with_one_error_are_told_once(tmp_path, capsys, snapshot):
    journal = planned(tmp_path / "mine")
    journal.begin()
    for trial, error in enumerate(["KeyError: 2", "KeyError: 2", "KeyError: 3", "KeyError: 2"]):
        key = f"{trial}" * 16
        journal.start(key, trial=trial)
        failure = replace(failure_of("method", error=error), traceback="Traceback:\n  in build\n")
        journal.append(TrialEnded(time=journal.now(), key=key, status="failed", failure=failure))
    status.main([str(tmp_path / "mine"), "--failures"])
    assert capsys.readouterr().out == snapshot
