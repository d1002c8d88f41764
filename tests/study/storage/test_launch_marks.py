"""What a launch leaves in its storage for workers to find: pytest tests/study/storage/test_launch_marks.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storages import files_under

from study.storage import launch_marks as marks
from study.storage.launch_marks import check_marks, delete_marks, launch_marks
from study.storage.study_storage import StudyStorage
from study.storage.trial_places import NotShared


@pytest.fixture(params=["", "file://"], ids=["folder", "uri"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One that a launch has made, with the study's folder beside it."""
    (tmp_path / "storage" / "trials").mkdir(parents=True)
    (tmp_path / "study" / "predictions").mkdir(parents=True)
    return f"{request.param}{tmp_path}/storage"


def test_storage_marks_are_found_and_removed(storage, tmp_path):
    with launch_marks(storage, tmp_path / "study") as marks:
        check_marks(marks)
        written = [name.rpartition("/")[0] for name in files_under(tmp_path)]
        assert written == (["storage/trials"] if "://" in storage else ["storage/trials", "study/predictions"])
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("host", ["this", "another"])
@pytest.mark.parametrize("area", [None, "study-1a"])
def test_next_launch_deletes_the_marks_of_a_killed_one(storage, tmp_path, monkeypatch, host, area):
    study, place = tmp_path / "study", StudyStorage(storage, area)
    (tmp_path / "storage" / (area or "") / "trials").mkdir(parents=True, exist_ok=True)
    with monkeypatch.context() as there:
        there.setattr(marks.socket, "gethostname", lambda: host)
        killed = launch_marks(place.address, study)
        before = killed.__enter__()
    monkeypatch.setattr(marks.socket, "gethostname", lambda: "this")
    delete_marks(place, study)
    # Another study of an earlier version may have written a mark in a storage without areas.
    stays = ["storage/trials"] if host == "another" and area is None else []
    assert [name.rpartition("/")[0] for name in files_under(tmp_path)] == stays
    if not stays:
        with pytest.raises(NotShared):
            check_marks(before)


def test_next_launch_deletes_all_marks_in_the_studys_own_folder(tmp_path, monkeypatch):
    study = tmp_path / "study"
    for name in ("trials", "predictions"):
        (study / name).mkdir(parents=True)
    with monkeypatch.context() as there:
        there.setattr(marks.socket, "gethostname", lambda: "another")
        killed = launch_marks(str(study), study)
        assert len(killed.__enter__()) == len(files_under(study)) == 2
    delete_marks(StudyStorage(str(study)), study)
    assert files_under(study) == []


def test_launch_leaves_the_marks_of_another_study_in_place(storage, tmp_path):
    """Two studies of an earlier version share a storage without areas, from its start to its end."""
    (tmp_path / "other" / "predictions").mkdir(parents=True)
    with launch_marks(storage, tmp_path / "study") as marks:
        with launch_marks(storage, tmp_path / "other"):
            delete_marks(StudyStorage(storage), tmp_path / "other")
            check_marks(marks)
        check_marks(marks)


def test_woken_launch_leaves_the_marks_of_its_successor(storage, tmp_path):
    frozen = launch_marks(storage, tmp_path / "study")
    frozen.__enter__()
    delete_marks(StudyStorage(storage), tmp_path / "study")
    with launch_marks(storage, tmp_path / "study") as marks:
        frozen.__exit__(None, None, None)
        check_marks(marks)
    assert files_under(tmp_path) == []


def test_other_folder_at_same_path_is_noticed(storage, tmp_path):
    with launch_marks(storage, tmp_path / "study") as marks:
        (tmp_path / "storage").rename(tmp_path / "mounted elsewhere")
        with pytest.raises(NotShared, match="storage/trials is not the launch's folder; mount the shared"):
            check_marks(marks)
        (tmp_path / "storage" / "trials").mkdir(parents=True)
        with pytest.raises(NotShared):
            check_marks(marks)
        (tmp_path / "storage" / "trials").rmdir()
        (tmp_path / "storage").rmdir()
        (tmp_path / "mounted elsewhere").rename(tmp_path / "storage")
        check_marks(marks)


def test_predictions_have_a_mark_of_their_own(tmp_path):
    for folder in (tmp_path / "storage" / "trials", tmp_path / "study" / "predictions"):
        folder.mkdir(parents=True)
    with launch_marks(str(tmp_path / "storage"), tmp_path / "study") as marks:
        (tmp_path / "study" / "predictions").rename(tmp_path / "away")
        with pytest.raises(NotShared, match="study/predictions is not the launch's folder"):
            check_marks(marks)
