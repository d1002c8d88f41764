"""The storage of a study: the folder or URI with its trials, and how a launch chooses it."""

from __future__ import annotations

import re
import uuid
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from study.facts.events import FILE
from study.facts.study_facts import StudyFacts
from study.plans.resolved_plan import digest
from study.storage.addresses import is_uri, join, resolve_storage_address
from study.storage.models import DESCRIPTION, keeps_model
from study.storage.trial_places import list_trial_files, open_place, trial_address


class StudyStorage(NamedTuple):
    """The storage of a study. Studies that share a `--storage` have an area each, and touch only their own files."""

    place: str  # --storage, or the study's folder
    area: str | None = None  # folder of this study alone in `place`; None: `place` itself, as in the study's folder

    @property
    def address(self) -> str:
        """The path or URI of the folder that contains `trials`."""
        return join(self.place, self.area) if self.area else self.place


def choose_storage(requested: str | None, folder: Path, facts: StudyFacts) -> tuple[StudyStorage, list[str]]:
    """Choose the storage of a launch: --storage, or the storage of the last launch, or the study's folder.

    A study keeps its area. A study that began under an earlier version may have no area, and then keeps its storage. A
    copy of a study gets an area of its own. Also return lines for the user, for example if the storage is that of the
    last launch.

    Raises:
        ValueError: if states of unfinished trials are in the last launch's storage, but not in --storage.
    """
    own = str(folder.resolve())
    began = facts.last_launch.began if facts.last_launch else None
    before = StudyStorage(began.storage, began.area) if began and began.storage else StudyStorage(own)
    place = before.place if requested is None else resolve_storage_address(requested)
    lines = [f"--storage is {place}, as in the last launch"] if requested is None and place != own else []
    if place == own:
        chosen = StudyStorage(own)
    elif original := find_original(folder, facts):
        chosen = StudyStorage(place, _name_area(folder, uuid.uuid4().hex))
        line = f"this study is a copy of {original}, whose files in {before.address} stay as they are"
        return chosen, [*lines, f"{line}; the copy's unfinished trials restart in {place}"]
    elif place == before.place:
        return before, lines
    else:
        chosen = StudyStorage(place, before.area or _name_area(folder, _identify(facts)))
    return chosen, lines if chosen == before else [*lines, *_check_states(chosen, before, facts)]


def _name_area(folder: Path, identity: str) -> str:
    """Name the folder of a study in a storage, with characters that are safe in any path and URI."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', folder.resolve().name)[:80]}-{digest(identity)}"


def _identify(facts: StudyFacts) -> str:
    """Return a text that no other study has, and that is always the same for a study that has been launched."""
    if first := facts.launches.get(1):
        return f"{first.began.time} {first.began.host} {first.began.pid}"
    return uuid.uuid4().hex


def find_original(folder: Path, facts: StudyFacts) -> Path | None:
    """Find the study with an area in a storage of which the study in `folder` is a copy.

    Return None if it is no copy, or the original is gone.
    """
    began = facts.last_launch.began if facts.last_launch else None
    if began is None or began.folder is None:
        return None
    original, journals = Path(began.folder), (folder / FILE, Path(began.folder) / FILE)
    try:
        if journals[0].samefile(journals[1]):
            return None
        first, other = (journal.open("rb") for journal in journals)
        with first, other:
            return original if first.readline() == other.readline() else None
    except OSError:
        return None


def prune_ended(storage: StudyStorage, folder: Path, facts: StudyFacts) -> None:
    """Delete the states of ended trials that a killed launch has left in the storage.

    If studies of an earlier version share a storage without areas, nothing is deleted: equal trials have one folder.
    """
    if storage.area is None and storage.place != str(folder.resolve()):
        return
    for key, names in list_trial_files(storage.address).items():
        record = facts.trials[key].record if key in facts.trials else None
        if record and (not keeps_model(record) or not all(name.startswith("model-epoch-") for name in names)):
            open_place(trial_address(storage.address, key)).prune(record)


def find_owner(model: str, *, key: str, folder: Path, facts: StudyFacts) -> Path:
    """Return the folder of the study whose launch stored the model of trial `key` at this path or URI.

    This is `folder`, or another folder from which the study in `folder` was copied or moved.

    Raises:
        ValueError: if no launch in the journal stored the trial's model there.
    """
    place = PurePosixPath(urlsplit(model).path if is_uri(model) else model)
    if place.parts[-3:-1] == ("trials", key) and re.fullmatch(r"model-epoch-\d+", place.name):
        if model == str(folder / "trials" / key / place.name):
            return folder
        owners = [
            folder if began.folder is None or _is_same_study(folder, Path(began.folder)) else Path(began.folder)
            for began in (launch.began for launch in facts.launches.values())
            if began.storage
            and join(trial_address(StudyStorage(began.storage, began.area).address, key), place.name) == model
        ]
        if owners and (is_uri(model) or (Path(model) / DESCRIPTION).is_file()):
            return folder if folder in owners else owners[-1]
    raise ValueError(
        f"the journal of {folder} names {model} as the model of trial {key}; allowed: a model in "
        f"{folder / 'trials' / key} or in the --storage of a launch"
    )


def _is_same_study(folder: Path, other: Path) -> bool:
    try:
        return (folder / FILE).samefile(other / FILE)
    except OSError:
        return False


def _check_states(chosen: StudyStorage, before: StudyStorage, facts: StudyFacts) -> list[str]:
    saved = [trial for trial in facts.under_way.values() if trial.epochs]
    absent = [trial for trial in saved if not open_place(trial_address(chosen.address, trial.key)).has_work()]
    remaining = [trial for trial in absent if open_place(trial_address(before.address, trial.key)).has_work()]
    if remaining:
        raise ValueError(
            f"--storage is {chosen.place}, but the states of {len(remaining)} unfinished trials are in "
            f"{before.address}; allowed: --storage {before.place}, or first copy the folder `trials` there to "
            f"{chosen.address}"
        )
    if not absent:
        return []
    return [f"the states of {len(absent)} unfinished trials are missing from {before.address}: these trials restart"]
