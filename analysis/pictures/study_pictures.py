"""All pictures of a study, one per question, each with the tasks as small multiples."""

from __future__ import annotations

from analysis.layouts.evidence import Evidence
from analysis.pictures.budget_pictures import budget_picture
from analysis.pictures.calibration_pictures import calibrations, confidence_picture, posterior_picture
from analysis.pictures.exit_pictures import exits_picture
from analysis.pictures.forest_picture import forest_picture
from analysis.pictures.panels import styles_of
from analysis.pictures.picture import Picture
from analysis.pictures.score_pictures import fronts_picture, layers_picture, q_picture, seeds_picture, speed_up_picture
from analysis.pictures.search_pictures import (
    curves_picture,
    hyperparameters_picture,
    importance_picture,
    prior_picture,
    progress_picture,
)
from analysis.pictures.subject import Subject


def pictures(evidence: Evidence) -> list[Picture]:
    """Every picture that the evidence of a study has something to show in.

    Raises:
        ValueError: a predictions file is broken.
    """
    subject = Subject(evidence.rows, styles_of(evidence.rows), evidence.exits)
    found = calibrations(subject)
    drawn = [
        forest_picture(subject, evidence.comparisons, evidence.baseline),
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
