"""The exports of a study: pytest tests/study/test_rebuild.py"""

import shutil
from types import SimpleNamespace

import optuna
import pytest
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.launches_here import launching_here
from helpers.simulation import Simulation
from msgspec.structs import replace
from optuna.storages.journal import JournalFileBackend

from study import rebuild
from study.decisions.progress import compute_progress
from study.facts.events import Execution
from study.facts.record import format_records
from study.facts.study_facts import read_facts
from study.plans import profiles
from study.plans.resolution import resolve

EXPORTS = ("records.jsonl", "optuna.journal", "best.toml", "tables", "pictures", "report.html")


def trials_of(path, arm):
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name=arm, storage=storage).trials


def exported(path, plan, facts):
    path.write_bytes(rebuild.format_optuna_journal(compute_progress(plan, facts)))
    return path


def test_optuna_file_is_the_same_each_time_and_optuna_reads_it(tmp_path):
    study = Simulation(
        resolve(replace(profiles.load_profile("mini"), methods=("albert",), tasks=("rte",), samples=6))
    ).launch()
    path = exported(tmp_path / "optuna.journal", study.plan, study.facts)
    assert path.read_bytes() == rebuild.format_optuna_journal(compute_progress(study.plan, study.facts))
    trials, records = trials_of(path, "albert/rte"), study.facts.arms["albert/rte"].searched
    assert [trial.user_attrs["key"] for trial in trials] == [record.key for record in records] and len(trials) == 6


def test_numbers_are_those_of_the_study_after_kills_and_retries(tmp_path):
    folder, plan, waited = tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1, samples=6), 0
    slow = {"killed_after": 13, "broken": dict.fromkeys(range(0, 13, 2), "restart")}  # the first trial, all the while
    launches = [slow, {"killed_after": 2, "broken": {0: "method"}}, *[{"killed_after": 3}] * 9, {"retry_failed": True}]
    for options in launches:
        launch(folder, plan, **options)
        facts = read_facts(folder)
        trials = trials_of(exported(folder / "optuna.journal", plan, facts), "albert/rte")
        assert [trial.number for trial in trials] == [trial.user_attrs["trial"] for trial in trials]
        waited += any(record.trial >= len(trials) for record in facts.arms["albert/rte"].records)
    assert len(trials) == 6 and waited
    assert [trial.state.name for trial in trials].count("FAIL") == 0  # the first one ran again


@pytest.mark.slow
def test_records_file_has_every_record_of_the_fold(tmp_path, monkeypatch):
    monkeypatch.setattr(rebuild, "analyse", lambda folder: True)
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1))
    rebuild.write_files(folder, compute_progress(mini_plan(), read_facts(folder)))
    assert (folder / "records.jsonl").read_bytes() == format_records(read_facts(folder).records)


def test_export_that_cannot_be_written_makes_the_exit_status_1(tmp_path, monkeypatch, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1))
    monkeypatch.setattr(rebuild, "analyse", lambda folder: True)
    (folder / "best.toml").mkdir()
    assert rebuild.main([str(folder), "--tracking-uri", "none"]) == 1
    assert capsys.readouterr().err.startswith("some exports are missing: ")


@pytest.mark.long
@pytest.mark.slow
def test_deleted_exports_come_back_byte_by_byte(tmp_path):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert", "pondernet"), tasks=("rte",)))
    with launching_here():
        assert rebuild.main([str(folder), "--tracking-uri", "none"]) == 0
    before = content_of(folder)
    for name in EXPORTS:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert rebuild.main([str(folder), "--tracking-uri", "none"]) == 0
    assert content_of(folder) == before and len(before) > 10


@pytest.mark.long
@pytest.mark.slow
def test_runs_are_written_to_a_store_in_the_folder(tmp_path):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1))
    assert rebuild.main([str(folder)]) == 0
    assert (folder / "mlflow.db").exists()


@pytest.mark.parametrize("uri", ["none", "https://mlflow.example"])
def test_runs_go_where_the_last_launch_wrote_them(tmp_path, monkeypatch, uri):
    plan, commands = mini_plan(methods=("albert",), tasks=("rte",), seeds=1), []
    launch(tmp_path / "s", plan, execution=Execution(driver="local", tracking_uri=uri))
    monkeypatch.setattr(rebuild, "analyse", lambda folder: True)
    monkeypatch.setattr(rebuild, "repair_predictions", lambda folder, records: True)

    def run(command, **_):
        commands.append(command[2:])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(rebuild.subprocess, "run", run)
    assert rebuild.main([str(tmp_path / "s")]) == 0
    assert commands == [["study.mirror", str(tmp_path / "s"), "--tracking-uri", uri]] * (uri != "none")


def content_of(folder):
    paths = [path for name in EXPORTS for path in [folder / name, *(folder / name).glob("*")] if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


def test_wrong_store_is_refused_before_anything_is_written(tmp_path, capsys):
    folder = launched_study(tmp_path / "study")
    before = {path.name for path in folder.iterdir()}
    assert rebuild.main([str(folder), "--tracking-uri", "htp://x"]) == 2
    assert capsys.readouterr().err.startswith("study.rebuild: --tracking-uri is htp://x; allowed: ")
    assert {path.name for path in folder.iterdir()} == before


def test_folder_without_events_is_refused(tmp_path, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",), seeds=1))
    (folder / "events.jsonl").unlink()
    assert rebuild.main([str(folder)]) == 2
    assert capsys.readouterr().err.startswith(f"study.rebuild: {folder}/events.jsonl is missing, and its copy has ")
