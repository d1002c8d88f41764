"""The end of a trial, the same for every driver: its record is written between its files coming and going."""

from __future__ import annotations

from pathlib import Path

from study.decisions.scheduler import Scheduler
from study.facts.events import Failure
from study.facts.record import Record
from study.facts.study_facts import TrialFacts
from study.facts.study_folder import predictions_digest, predictions_file
from study.storage.addresses import is_uri
from study.storage.stored_models import lies_now
from study.storage.trial_places import OutcomeGone, place_at, trial_address


def end_trial(
    scheduler: Scheduler, trial: TrialFacts, *, storage: str, folder: Path, failure: Failure | None = None
) -> Record:
    """The record of a trial that is over. Its predictions are in the study's folder before, its state goes after.

    Raises:
        OutcomeGone: predictions or model are not where they should be; nothing is noted.
    """
    place = place_at(trial_address(storage, trial.key))
    digest = None
    if trial.phase == "confirm" and failure is None:
        place.fetch_predictions(predictions_file(folder, trial.key))
        digest = predictions_digest(folder, trial.key)
    model = _model_of(trial)
    if trial.phase == "confirm" and failure is None and model:
        place.check_model(model if is_uri(model) else lies_now(model, folder=folder, key=trial.key))
    record = scheduler.end(trial.key, failure=failure, predictions_digest=digest)
    place.prune(record)
    return record


def _model_of(trial: TrialFacts) -> str | None:
    """The address of the model that a trial says it has left."""
    outcome = trial.last.outcome if trial.last else None
    return outcome.model if outcome else None


def end_unsettled(scheduler: Scheduler, *, storage: str, folder: Path) -> None:
    """Ends trials that told their last epoch to a launcher that died; one whose outcome is gone begins anew."""
    for trial in scheduler.progress.unsettled:
        try:
            end_trial(scheduler, trial, storage=storage, folder=folder)
        except OutcomeGone as gone:
            scheduler.restart(trial.key, str(gone))
