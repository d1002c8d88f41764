"""Which storage a launch goes on with: pytest tests/study/storage/test_study_storage.py"""

import shutil

import pytest
from helpers.journals import MadeJournal
from helpers.launched_studies import launched_study

from study import launch
from study.launch import run_study
from study.opened_study import prepare
from study.plans.plan_file import require_plan
from study.storage.trial_places import choose_storage


@pytest.fixture
def study(tmp_path):
    """A study whose one trial has a state in another storage than its folder."""
    journal = MadeJournal(tmp_path / "study")
    journal.begin(storage=str(tmp_path / "states"))
    journal.start("k")
    journal.epoch("k", 1, 0.5)
    (tmp_path / "states" / "trials" / "k").mkdir(parents=True)
    (tmp_path / "states" / "trials" / "k" / "state.pt").write_bytes(b"state")
    return journal


def test_without_a_word_it_is_that_of_the_last_launch_and_is_said(study, tmp_path, capsys):
    assert choose_storage(None, study.folder, study.facts) == str(tmp_path / "states")
    assert f"--storage is {tmp_path / 'states'}, as in the last launch" in capsys.readouterr().err


def test_the_default_is_the_studys_folder_wherever_that_is(tmp_path, capsys):
    journal = MadeJournal(tmp_path / "moved")
    assert choose_storage(None, journal.folder, journal.facts) == str(tmp_path / "moved")
    journal.begin()
    assert choose_storage(None, journal.folder, journal.facts) == str(tmp_path / "moved")
    assert capsys.readouterr().err == ""


def test_another_without_the_states_of_trials_under_way_is_refused(study, tmp_path):
    with pytest.raises(ValueError, match=r"the states of 1 unfinished trials are in .*/states; allowed: --storage "):
        choose_storage(str(tmp_path / "other"), study.folder, study.facts)


def test_another_to_which_the_states_were_copied_is_taken(study, tmp_path):
    shutil.copytree(tmp_path / "states", tmp_path / "other")
    assert choose_storage(str(tmp_path / "other"), study.folder, study.facts) == str(tmp_path / "other")


def test_states_that_are_nowhere_any_more_are_told(study, tmp_path, capsys):
    shutil.rmtree(tmp_path / "states")
    assert choose_storage(str(tmp_path / "other"), study.folder, study.facts) == str(tmp_path / "other")
    assert "the states of 1 unfinished trials are missing" in capsys.readouterr().err


def test_another_storage_for_a_finished_study_is_not_made(tmp_path, capsys):
    folder = launched_study(tmp_path / "s")
    asked = ["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none", "--storage", str(tmp_path / "new")]
    options = launch.main.parser().options(asked)
    assert run_study(prepare(require_plan(folder).plan.asked, options), options) == 0
    assert "nothing is left to do\n" in capsys.readouterr().err and not (tmp_path / "new").exists()
