"""Which storage a launch goes on with: pytest tests/study/storage/test_study_storage.py"""

import re
import shutil
import sys

import pytest
from helpers.edited_studies import edit_events
from helpers.journals import MadeJournal
from helpers.launched_studies import launch as run_launch
from helpers.launched_studies import launched_study, mini_plan

from study import launch
from study.facts.events import LaunchBegan
from study.facts.plan_file import require_plan
from study.facts.study_facts import read_facts
from study.launch import run_study
from study.launching.planned_study import prepare
from study.storage.study_storage import StudyStorage, choose_storage, prune_ended
from study.storage.trial_places import trial_address


@pytest.fixture(params=[None, "study-1a"], ids=["without an area", "with an area"])
def study(request, tmp_path):
    """A study whose one trial has a state in another storage than its folder; an earlier version knew no areas."""
    journal = MadeJournal(tmp_path / "study")
    journal.begin(storage=str(tmp_path / "states"), area=request.param)
    journal.start("k")
    journal.epoch("k", 1, 0.5)
    trial = tmp_path / "states" / (request.param or "") / "trials" / "k"
    trial.mkdir(parents=True)
    (trial / "state.pt").write_bytes(b"state")
    return journal


def storage_of(study, requested=None):
    chosen, lines = choose_storage(requested and str(requested), study.folder, study.facts)
    print(*lines, sep="\n", file=sys.stderr, end="\n" * bool(lines))
    return chosen


def test_default_is_that_of_last_launch(study, tmp_path, capsys):
    assert storage_of(study) == StudyStorage(str(tmp_path / "states"), study.events[0].area)
    assert f"--storage is {tmp_path / 'states'}, as " in capsys.readouterr().err


def test_asked_for_again_it_is_the_same(study, tmp_path, capsys):
    assert storage_of(study, tmp_path / "states") == StudyStorage(str(tmp_path / "states"), study.events[0].area)
    assert capsys.readouterr().err == ""


def test_the_default_is_the_studys_folder_wherever_that_is(tmp_path, capsys):
    journal = MadeJournal(tmp_path / "moved")
    assert storage_of(journal) == StudyStorage(str(tmp_path / "moved"))
    journal.begin()
    assert storage_of(journal) == StudyStorage(str(tmp_path / "moved"))
    assert storage_of(journal, tmp_path / "moved") == StudyStorage(str(tmp_path / "moved"))
    assert capsys.readouterr().err == ""


def test_another_without_the_states_of_trials_under_way_is_refused(study, tmp_path):
    with pytest.raises(ValueError, match=r"1 unfinished trials .*/states.*; allowed: --storage "):
        storage_of(study, tmp_path / "other")


def test_another_to_which_the_states_were_copied_is_taken(study, tmp_path):
    with pytest.raises(ValueError, match="copy the folder `trials` there to ") as refused:
        storage_of(study, tmp_path / "other")
    target = str(refused.value).rpartition(" to ")[2]
    shutil.copytree(tmp_path / "states" / (study.events[0].area or ""), target)
    chosen = storage_of(study, tmp_path / "other")
    assert chosen.place == str(tmp_path / "other") and chosen.address == target
    assert chosen.area == (study.events[0].area or chosen.area)


def test_states_that_are_nowhere_any_more_are_told(study, tmp_path, capsys):
    shutil.rmtree(tmp_path / "states")
    assert storage_of(study, tmp_path / "other").place == str(tmp_path / "other")
    assert "1 unfinished trials are missing" in capsys.readouterr().err


@pytest.mark.parametrize("storage", ["{}/states", "file://{}/states", "s3://bucket/states?region=eu-west-1"])
def test_studies_that_share_a_storage_have_an_area_each(tmp_path, storage):
    names = ["a/one", "b/one", "two", "b/näme with? #%"]
    chosen = [storage_of(MadeJournal(tmp_path / name), storage.format(tmp_path)) for name in names]
    assert len({each.address for each in chosen}) == len(names)
    assert {each.place for each in chosen} == {storage.format(tmp_path)}
    assert [re.fullmatch("[a-z-]+-[0-9a-f]{16}", each.area)[0].rpartition("-")[0] for each in chosen] == [
        *("one", "one", "two", "n-me-with-")
    ]
    assert trial_address(chosen[2].address, "k").partition("?")[0].endswith(f"/states/{chosen[2].area}/trials/k")


def test_copy_of_a_study_leaves_the_storage_of_the_original_alone(tmp_path):
    study = MadeJournal(tmp_path / "study")
    study.begin(storage=str(tmp_path / "states"), area="study-1a")
    shutil.copytree(study.folder, tmp_path / "copy")
    facts = read_facts(tmp_path / "copy")
    chosen, lines = choose_storage(None, tmp_path / "copy", facts)
    assert chosen.place == str(tmp_path / "states") and chosen.area.startswith("copy-")
    assert f"a copy of {study.folder}, " in lines[-1]
    shutil.rmtree(study.folder)  # then the study was moved
    assert choose_storage(None, tmp_path / "copy", facts)[0].area == "study-1a"


@pytest.fixture
def no_analysis(monkeypatch):
    """Neither tables nor a report are written."""
    monkeypatch.setattr("study.rebuild.analyse", lambda folder: True)


@pytest.mark.usefixtures("no_analysis")
def test_another_storage_for_a_finished_study_is_not_made(tmp_path, capsys):
    folder = launched_study(tmp_path / "s")
    asked = ["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none", "--storage", str(tmp_path / "new")]
    options = launch.main.parser().options(asked)
    assert run_study(prepare(require_plan(folder).plan.request, options), options) == 0
    assert "nothing is left to do\n" in capsys.readouterr().err and not (tmp_path / "new").exists()


@pytest.mark.usefixtures("no_analysis")
def test_copy_of_a_finished_study_names_no_storage(tmp_path, capsys):
    folder = launched_study(tmp_path / "s")
    storage = {"storage": str(tmp_path / "states"), "area": "s-1a", "folder": str(folder)}
    edit_events(folder, LaunchBegan, lambda event: event.update(storage))
    shutil.copytree(folder, tmp_path / "copy")
    options = launch.main.parser().options(["--name", "copy", "--out", str(tmp_path), "--tracking-uri", "none"])
    assert run_study(prepare(require_plan(folder).plan.request, options), options) == 0
    error = capsys.readouterr().err
    assert "nothing is left to do\n" in error and "restart" not in error and "--storage is" not in error


@pytest.fixture
def killed(tmp_path):
    """A study whose launch was killed with trials under way; ended trials of both phases still have a state."""
    folder = tmp_path / "s"
    run_launch(folder, mini_plan(methods=("albert",), tasks=("rte",)), killed_after=16)
    facts = read_facts(folder)
    assert {record.phase for record in facts.records} == {"search", "confirm"} and facts.under_way
    for key in facts.trials:
        (folder / "trials" / key).mkdir(parents=True, exist_ok=True)
        (folder / "trials" / key / "state.pt").touch()
    (folder / "trials" / "foreign").mkdir()
    (folder / "trials" / "foreign" / "state.pt").touch()
    return folder


def check_states(folder):
    """Only trials under way have states, and those whose models are kept have their models."""
    facts = read_facts(folder)
    assert {path.parent.name for path in folder.glob("trials/*/state.pt")} == {*facts.under_way, "foreign"}
    kept = {record.key for record in facts.records if record.phase == "confirm"}
    assert {path.parents[1].name for path in folder.glob("trials/*/*/model.safetensors")} == kept
    assert {path.name for path in folder.glob("trials/*")} == {*facts.under_way, *kept, "foreign"}


def test_launch_deletes_the_states_of_ended_trials(killed, monkeypatch):
    monkeypatch.setattr("study.launch.Launch.run", lambda self: True)
    assert launch.main(["--continue", str(killed), "--driver", "local", "--tracking-uri", "none"]) == 1
    check_states(killed)


def test_states_of_ended_trials_are_deleted_under_a_uri(killed, tmp_path):
    prune_ended(StudyStorage(f"file://{tmp_path}", "s"), tmp_path / "study", read_facts(killed))
    check_states(killed)


def test_states_in_a_storage_without_areas_stay(killed, tmp_path):
    before = sorted(killed.rglob("*"))
    prune_ended(StudyStorage(str(killed)), tmp_path / "study", read_facts(killed))
    assert sorted(killed.rglob("*")) == before
