"""All pictures of a study, one per question, each with the tasks as small multiples."""

from __future__ import annotations

from analysis.pictures.budget_pictures import budget_picture
from analysis.pictures.calibration_pictures import calibrations, confidence_picture, posterior_picture
from analysis.pictures.exit_pictures import exits_picture
from analysis.pictures.picture import Picture
from analysis.pictures.score_pictures import fronts_picture, layers_picture, q_picture, seeds_picture, speed_up_picture
from analysis.pictures.search_pictures import (
    curves_picture,
    hyperparameters_picture,
    importance_picture,
    prior_picture,
    progress_picture,
)
from analysis.pictures.subject import subject_of
from analysis.studies.joined import rows_of
from analysis.studies.load import Study


def pictures(study: Study) -> list[Picture]:
    """Every picture that the study has something to show in.

    Raises:
        ValueError: a predictions file is broken.
    """
    subject = subject_of(rows_of([study]))
    found = calibrations(subject)
    drawn = [
        seeds_picture(subject),
        fronts_picture(subject),
        layers_picture(subject),
        speed_up_picture(subject),
        q_picture(subject),
        exits_picture(subject),
        posterior_picture(subject, found),
        confidence_picture(subject, found),
        budget_picture(subject),
        progress_picture(subject),
        prior_picture(subject),
        *(curves_picture(subject, row) for row in subject.rows),
        *(hyperparameters_picture(subject, row) for row in subject.rows),
        importance_picture(subject),
    ]
    return [picture for picture in drawn if picture is not None]
