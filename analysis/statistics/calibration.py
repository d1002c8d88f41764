"""Whether exits mean what they say: posterior against agreement with the last layer, confidence against accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

from analysis.studies.stored_predictions import Predictions
from trainables.data.tasks import TASKS

BINS = 10  # of equal width over [0, 1]


@dataclass(frozen=True)
class ReliabilityBin:
    """Examples of like confidence, and how often it was deserved."""

    confidence: float  # mean of the bin
    share: float  # for which it was right
    examples: int


@dataclass(frozen=True)
class LayerCalibration:
    """The reliability of one layer; layers count from 1."""

    layer: int
    examples: int  # over all seeds and draws
    confidence: float
    share: float
    expected_calibration_error: float  # mean of |confidence - share| over the bins, by examples
    bins: tuple[ReliabilityBin, ...]  # without the empty ones


@dataclass(frozen=True)
class Calibration:
    """The calibration of a cell's exits, all of its seeds together.

    `posterior`, of a model with a Λ head: the posterior's CDF at layer i, that is how sure Λ is that the answer at i
    will do, against the share of examples whose answer at i is the last layer's. The last layer itself is left out:
    both are 1 there. `exits`: the answer's probability against accuracy, of the examples that leave at a layer.
    """

    posterior: tuple[LayerCalibration, ...] | None
    exits: tuple[LayerCalibration, ...]

    def to_json(self) -> dict[str, Any]:
        """For a table's sidecar."""
        return asdict(self)


def calibration(stored: Sequence[Predictions]) -> Calibration | None:
    """From the predictions of a cell's seeds; None without any, and for regression, whose scores have no confidence."""
    if not stored or TASKS[stored[0].task].is_regression:
        return None
    return Calibration(posterior=_posterior(stored), exits=_exits(stored))


def _posterior(stored: Sequence[Predictions]) -> tuple[LayerCalibration, ...] | None:
    cdfs, agreements = [], []
    for predictions in stored:
        if predictions.exit_probabilities is None:
            return None
        cdfs.append(np.minimum(np.cumsum(predictions.exit_probabilities.astype(float), axis=0), 1.0))
        agreements.append(predictions.layer_answers == predictions.layer_answers[-1])
    cdf, agrees = np.concatenate(cdfs, axis=1), np.concatenate(agreements, axis=1)  # (layers, n of all seeds)
    return tuple(_reliability(layer + 1, cdf[layer], agrees[layer]) for layer in range(len(cdf) - 1))


def _exits(stored: Sequence[Predictions]) -> tuple[LayerCalibration, ...]:
    confidence = np.concatenate([special.softmax(own.logits, axis=2).max(axis=2).ravel() for own in stored])
    correct = np.concatenate([(own.answers == own.labels).ravel() for own in stored])
    layers = np.concatenate([own.exit_layers.ravel() for own in stored])
    return tuple(
        _reliability(int(layer), confidence[layers == layer], correct[layers == layer]) for layer in np.unique(layers)
    )


def _reliability(layer: int, confidence: np.ndarray, right: np.ndarray) -> LayerCalibration:
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = tuple(
        ReliabilityBin(float(confidence[own].mean()), float(right[own].mean()), int(own.sum()))
        for number in range(BINS)
        if (own := places == number).any()
    )
    error = sum(abs(each.confidence - each.share) * each.examples for each in bins) / len(confidence)
    return LayerCalibration(layer, len(confidence), float(confidence.mean()), float(right.mean()), error, bins)
