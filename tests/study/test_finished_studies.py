"""Launches of studies that have nothing left to do, without Ray: pytest tests/study/test_finished_studies.py"""

from pathlib import Path

import pytest
from helpers.glue_folders import write_glue
from helpers.launched_studies import PROVENANCE, launch, launched_study, mini_plan
from helpers.places import free_port
from msgspec import UNSET
from msgspec.structs import replace

from study import drop
from study.decisions.progress import compute_progress
from study.facts.events import Execution, read_events
from study.facts.journal_copy import COPY
from study.facts.plan_file import require_plan, write_plan
from study.facts.provenance import Provenance
from study.facts.study_facts import read_facts
from study.facts.study_folder import BROWSE, RECORDS
from study.launch import main as study_launch
from study.launch import run_study
from study.launching.planned_study import prepare
from study.rebuild import EXPORTS, OPTUNA, write_files
from study.status import main as status_of_study
from study.terminal.text import python
from study.winners import BEST

pytestmark = pytest.mark.slow


def test_study_killed_after_last_trial_is_completed(tmp_path, monkeypatch, capsys):
    folder = launched_study(tmp_path / "s")
    asked, journal = require_plan(folder).plan.request, folder / "events.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))  # without launch_ended
    (folder / COPY).unlink()  # a killed launch has not copied its end
    analysed = pretend_to_analyse(monkeypatch)
    options = study_launch.parser().options(["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none"])
    assert run_study(prepare(asked, options), options) == 0
    assert analysed == [folder] and read_events(folder)[-1].status == "complete"
    assert run_study(prepare(asked, options), options) == 0
    assert analysed == [folder] and "nothing is left to do" in capsys.readouterr().err


def test_gpu_limit_ends_a_study_as_partial(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "s"
    launch(folder, mini_plan(methods=("albert",), tasks=("rte",)), max_gpu_hours=0.001)
    asked, journal = require_plan(folder).plan.request, folder / "events.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))  # without launch_ended
    (folder / COPY).unlink()
    pretend_to_analyse(monkeypatch)
    limit = ["--max-gpu-hours", "0.001"]
    options = study_launch.parser().options(["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none", *limit])
    closed = "albert/rte is closed by --max-gpu-hours 0.001; a higher limit continues it"
    run_study(prepare(asked, options), options)
    assert read_events(folder)[-1].status == "partial" and closed in capsys.readouterr().out
    run_study(prepare(asked, options), options)
    printed = capsys.readouterr()
    assert "no trial is left to run within --max-gpu-hours 0.001" in printed.err and closed in printed.out
    status_of_study([str(folder)])
    assert closed in capsys.readouterr().out
    status_of_study([str(tmp_path)])
    assert "1 arm closed by --max-gpu-hours" in capsys.readouterr().out


def pretend_to_analyse(monkeypatch) -> list[Path]:
    """The folders for which tables and report were made, from now on."""
    analysed: list[Path] = []

    def analyse(folder: Path) -> bool:
        analysed.append(folder)
        (folder / "tables").mkdir(exist_ok=True)
        (folder / "tables" / "answer.md").write_text(f"| table {len(analysed)} |\n")
        (folder / "report.html").touch()
        return True

    monkeypatch.setattr("study.rebuild.analyse", analyse)
    return analysed


def test_launch_without_work_keeps_plan_and_tables(tmp_path, monkeypatch, capsys):
    folder = launched_study(tmp_path / "s")
    plan, asked = (folder / "plan.json").read_bytes(), require_plan(folder).plan.request
    analysed = pretend_to_analyse(monkeypatch)
    assert write_files(folder, compute_progress(require_plan(folder).plan, read_facts(folder)))
    table = (folder / "tables" / "answer.md").read_text()
    analysed.clear()
    options = study_launch.parser().options(["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none"])
    monkeypatch.setattr("sys.argv", ["study.launch", "typed otherwise"])
    assert run_study(prepare(asked, options), options) == 0
    assert analysed == [] and table in capsys.readouterr().out
    assert (folder / "plan.json").read_bytes() == plan
    for number, name in enumerate(EXPORTS, start=1):
        (folder / name).unlink()
        assert run_study(prepare(asked, options), options) == 0
        assert analysed == [folder] * number and (folder / name).exists()


@pytest.mark.parametrize("counts", ["repeated_texts", "train_rows"])
def test_finished_study_without_later_counts_is_unchanged(counts, tmp_path, monkeypatch, capsys):
    data = write_glue(tmp_path / "glue", rows=40)
    folder = launched_study(tmp_path / "s", mini_plan(tasks=("rte",), data=str(data)))
    file = require_plan(folder)
    assert getattr(file.plan, counts)
    write_plan(folder, replace(file, plan=replace(file.plan, **{counts: UNSET})))
    plan = (folder / "plan.json").read_bytes()
    analysed = pretend_to_analyse(monkeypatch)
    assert write_files(folder, compute_progress(file.plan, read_facts(folder)))
    analysed.clear()
    options = study_launch.parser().options(["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none"])
    assert run_study(prepare(file.plan.request, options), options) == 0
    assert analysed == [] and (folder / "plan.json").read_bytes() == plan


def test_exports_deleted_while_tables_are_made_are_there_afterwards(tmp_path, monkeypatch):
    folder = launched_study(tmp_path / "s")
    progress = compute_progress(require_plan(folder).plan, read_facts(folder))
    pretend_to_analyse(monkeypatch)
    write_files(folder, progress)

    def analyse(folder: Path) -> bool:
        for name in (RECORDS, OPTUNA, BEST):
            (folder / name).unlink()
        return True

    monkeypatch.setattr("study.rebuild.analyse", analyse)
    write_files(folder, progress)
    assert all((folder / name).exists() for name in EXPORTS)


def test_launch_after_drop_writes_tables_again(tmp_path, monkeypatch):
    folder = launched_study(tmp_path / "s")
    facts = read_facts(folder)
    assert write_files(folder, compute_progress(facts.plan, facts))
    analysed = pretend_to_analyse(monkeypatch)
    key = next(record.key for record in facts.records if record.phase == "confirm")
    assert drop.main([str(folder), key, "--because", "a bad disk"]) == 0
    options = study_launch.parser().options(["--continue", str(folder), "--tracking-uri", "none"])
    run_study(prepare(require_plan(folder).plan.request, options), options)
    assert analysed == [folder]
    records = (folder / "records.jsonl").read_text()
    assert "a bad disk" in records


def over(folder: Path, monkeypatch, capsys, *, code: Provenance) -> tuple[str, str]:
    """What a launch of this code says, that has nothing to do for the study: on both streams."""
    pretend_to_analyse(monkeypatch)
    monkeypatch.setattr("study.launch.read_provenance", lambda: code)
    options = study_launch.parser().options(["--continue", str(folder), "--tracking-uri", "none"])
    run_study(prepare(require_plan(folder).plan.request, options), options)
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_finished_study_of_other_code_keeps_numbers(tmp_path, monkeypatch, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(tasks=("rte",)))
    assert over(folder, monkeypatch, capsys, code=PROVENANCE)[1] == f"study {folder}: nothing is left to do\n"
    edited = replace(PROVENANCE, included={"pondernet": "f00d"})
    line = over(folder, monkeypatch, capsys, code=edited)[1].splitlines()[-1]
    assert line.startswith(
        "the code has changed since the training of pondernet/rte; the study keeps its numbers; to train again in "
    )
    assert line.endswith(
        f"--continue {folder} --dry-run --toml > plan.toml, then study.launch --plan plan.toml --name NEW"
    )
    both = over(folder, monkeypatch, capsys, code=replace(PROVENANCE, code_digest="f00d"))[1]
    assert "since the training of albert/rte, pondernet/rte; " in both


def test_failed_trials_are_told_with_rerun_command(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "s"
    launch(folder, mini_plan(methods=("albert",), tasks=("rte",)), broken={1: "method"})
    out, err = over(folder, monkeypatch, capsys, code=PROVENANCE)
    assert err == (
        f"study {folder}: no trial is left to run, but 1 trial of albert/rte failed; to run failed trials "
        "again, fix the code or add --retry-failed\n"
    )
    (line,) = [line for line in out.splitlines() if line.startswith("fix the cause, then:  ")]
    assert line.endswith(f"-m study.launch --continue {folder} --retry-failed --tracking-uri none")
    assert "extend:" not in out  # before that is mended


def test_another_baseline_for_a_finished_study_makes_its_tables_anew(tmp_path, monkeypatch, capsys):
    folder = launched_study(tmp_path / "s")
    asked = replace(require_plan(folder).plan.request, baseline="pondernet")
    options = study_launch.parser().options(["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none"])
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr("study.rebuild.analyse", interrupt)
        run_study(prepare(asked, options), options)
    analysed = pretend_to_analyse(monkeypatch)
    assert run_study(prepare(asked, options), options) == 0
    assert analysed == [folder] and require_plan(folder).plan.request.baseline == "pondernet"


def interrupt(folder: Path) -> bool:
    raise KeyboardInterrupt


def test_last_screen_has_the_copy_command_for_an_absent_server(tmp_path, monkeypatch, capsys):
    folder, uri = tmp_path / "s", f"http://127.0.0.1:{free_port()}"
    launch(folder, mini_plan(tasks=("rte",)), execution=Execution(driver="local", tracking_uri=uri))
    pretend_to_analyse(monkeypatch)
    assert study_launch(["--continue", str(folder)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("copy them:")]
    assert line.endswith(f"-m study.mirror {folder} --tracking-uri {uri}")


def test_last_screen_has_the_copy_command_for_another_store(tmp_path, monkeypatch, capsys):
    """A launch that runs no trial copies nothing."""
    folder, old, new = tmp_path / "s", f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db"
    launch(folder, mini_plan(tasks=("rte",)), execution=Execution(driver="local", tracking_uri=old))
    (folder / BROWSE).write_text(f"browse:      {old}\n")
    pretend_to_analyse(monkeypatch)
    for store, printed in (
        ([], [f"browse:      {old}"]),
        (["--tracking-uri", old], [f"browse:      {old}"]),
        (["--tracking-uri", "none"], []),
        (["--tracking-uri", new], [f"copy them:   {python()} -m study.mirror {folder} --tracking-uri {new}"]),
    ):
        assert study_launch(["--continue", str(folder), *store]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith(("browse:", "copy them:"))] == printed
        assert (f"nothing was copied to {new}, because no trial was left to run" in lines) == (new in store)


def test_last_screen_names_the_table_and_the_next_commands(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "s"
    launch(folder, mini_plan(methods=("albert",), tasks=("rte",)))
    (folder / "tables").mkdir(exist_ok=True)
    (folder / "tables" / "dev.md").touch()
    lines = over(folder, monkeypatch, capsys, code=PROVENANCE)[0].splitlines()
    assert f"table:       {folder}/tables/dev.md" in lines
    samples, seeds = [line.split() for line in lines if line.startswith("more ")]
    assert samples[:2] == ["more", "search:"] and samples[-4] == "--samples", samples
    assert seeds[:2] == ["more", "seeds:"] and seeds[-4] == "--seeds", seeds
    (winners,) = [line for line in lines if line.startswith("winners: ")]
    assert winners.endswith(f"-m study.winners {folder}")
    assert sum(1 + len(line) // 100 for line in lines) <= 30  # a screen of 100 x 30
