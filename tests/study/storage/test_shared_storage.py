"""Studies that share a --storage and have equal keys: pytest tests/study/storage/test_shared_storage.py"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from helpers.edited_studies import edit_events
from helpers.launches import WITHOUT_RAY, Launches
from helpers.storages import address_of
from helpers.trials import check_as_alone

from study.facts.events import LaunchBegan, TrialRetried, read_events
from study.facts.study_facts import read_facts
from study.storage.models import model_exists

pytestmark = [pytest.mark.slow, pytest.mark.long]
STUDY = ["--method", "albert", "--task", "rte", "--profile", "mini", "--samples", "1", "--epochs", "4", "--seeds", "2"]


def launches(home: Path, storage: str) -> Launches:
    """Of a study with the same name and the same trials as in any other home."""
    home.mkdir()
    return Launches(home / "study", [*STUDY, "--storage", storage, *WITHOUT_RAY], random.Random(0))


def check_whole(study: Launches, cache: Path) -> set[str]:
    """The addresses of the study's models, which are all there; no trial of it was disturbed."""
    assert not any(isinstance(event, TrialRetried) for event in read_events(study.folder)), study.printed()
    assert set(check_as_alone(study.folder, cache)) == {"completed"}
    models = {record.model for record in read_facts(study.folder).records if record.phase == "confirm"}
    assert len(models) == 2 and all(map(model_exists, models))
    return models


@pytest.mark.parametrize("scheme", ["", "file://"], ids=["folder", "uri"])
def test_studies_with_equal_trials_do_not_touch_each_other(tmp_path: Path, scheme: str) -> None:
    """The second starts while the first runs, is killed, and goes on when the first is complete."""
    storage = f"{scheme}{tmp_path}/storage"
    first, second = launches(tmp_path / "one", storage), launches(tmp_path / "two", storage)
    process = first.launch()
    assert first.wait_for(1, process), first.printed()
    killed = second.launch()
    assert second.wait_for(2, killed), second.printed()
    killed.kill()
    killed.wait()
    first.finish(process)
    models = check_whole(first, tmp_path / "cache")
    second.finish(second.launch())
    assert not models & check_whole(second, tmp_path / "cache")
    assert models == check_whole(first, tmp_path / "cache")


def test_study_of_an_earlier_version_resumes_in_its_storage(tmp_path: Path) -> None:
    """It has no area, and another such study has left marks in the storage."""
    storage = tmp_path / "storage"
    study = launches(tmp_path / "one", str(storage))
    killed = study.launch()
    assert study.wait_for(2, killed), study.printed()
    killed.kill()
    killed.wait()
    shutil.move(Path(address_of(study.folder)) / "trials", storage)
    (storage / "trials" / ".launch-1a2b").touch()
    edit_events(study.folder, LaunchBegan, lambda plain: [plain.pop(name) for name in ("area", "folder")])
    study.finish(study.launch())
    assert "restart" not in study.printed()
    assert {Path(model).parents[1] for model in check_whole(study, tmp_path / "cache")} == {storage / "trials"}
    assert [path.name for path in (storage / "trials").glob(".*")] == [".launch-1a2b"]
