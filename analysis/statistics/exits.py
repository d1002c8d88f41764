"""Early exits of a cell's models, from their stored predictions.

Where examples leave, and what other settings would cost. `curves.py` has what a method scores for the layers that it
may run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.studies.cells import Cell
from analysis.studies.stored_predictions import Predictions, predictions_of
from study.facts.record import Record


@dataclass(frozen=True)
class Sweep:
    """One exit rule under every setting, on the models of all seeds."""

    rule: str  # "threshold", "patience"
    field: str  # of the rule, that is swept: "q", "patience"
    settings: np.ndarray  # (settings,), ascending: q, or layers of patience
    mean_layers: np.ndarray  # (seeds, settings), run per dev example
    scores: np.ndarray  # (seeds, settings), in [-1, 1]
    own: int | None  # place of the setting that the models were recorded with; None if they have another rule


@dataclass(frozen=True)
class Exits:
    """How the models of a cell leave; one row or entry per seed."""

    num_layers: int
    mean_layers: np.ndarray  # (seeds,), run per dev example under the method's own exit
    scores: np.ndarray  # (seeds,), in [-1, 1], under the method's own exit
    sweeps: tuple[Sweep, ...]  # none where the method always runs all layers, or predictions are missing
    shares: np.ndarray | None  # (seeds, layers), of dev examples by the layer that they leave at; None: not stored
    posterior: np.ndarray | None  # (seeds, layers), mean probability of leaving; None: not stored, or no Λ head

    @property
    def is_early(self) -> bool:
        """Whether any example leaves before the last layer."""
        return bool((self.mean_layers < self.num_layers).any())


def read_exits(cell: Cell) -> Exits | None:
    """The exits of a cell's models; None if it has no records, or they do not say how many layers were run.

    Sweeps and shares need the predictions of every seed: with fewer they would be about other models than the score is.

    Raises:
        ValueError: a predictions file is broken.
    """
    layers = [record.mean_layers for record in cell.records if record.mean_layers is not None]
    if not layers or len(layers) < len(cell.records):
        return None
    stored = predictions_of(cell)
    rules = dict.fromkeys(rule for predictions in stored for rule in predictions.sweep_rule.tolist())
    depth = max(record.num_layers or 0 for record in cell.records)
    posteriors = [posterior for predictions in stored if (posterior := _posterior(predictions)) is not None]
    return Exits(
        num_layers=depth,
        mean_layers=np.array(layers),
        scores=np.array(cell.scores),
        sweeps=tuple(_sweep(rule, stored, cell.records) for rule in rules),
        shares=np.stack([_shares(predictions, depth) for predictions in stored]) if stored else None,
        posterior=np.stack(posteriors) if posteriors else None,
    )


def _sweep(rule: str, stored: list[Predictions], records: tuple[Record, ...]) -> Sweep:
    """The settings that were swept for every seed, and the setting of the models themselves."""
    points = [_points(rule, predictions) for predictions in stored]
    (field,) = set(stored[0].sweep_field[stored[0].sweep_rule == rule].tolist())
    for point, record in zip(points, records, strict=True):
        setting = record.config.get(field)
        if isinstance(setting, int | float):
            point.setdefault(float(setting), (record.mean_layers or np.nan, record.score or 0.0))
    settings = sorted(set.intersection(*(set(point) for point in points)))
    values = np.array([[point[setting] for setting in settings] for point in points])  # (seeds, settings, 2)
    own = records[0].config.get(field)
    return Sweep(
        rule=rule,
        field=field,
        settings=np.array(settings),
        mean_layers=values[:, :, 0],
        scores=values[:, :, 1],
        own=settings.index(float(own)) if isinstance(own, int | float) else None,
    )


def _points(rule: str, predictions: Predictions) -> dict[float, tuple[float, float]]:
    """Mean layers and score by setting."""
    of_rule = predictions.sweep_rule == rule
    columns = (predictions.sweep_setting, predictions.sweep_mean_layers, predictions.sweep_score)
    settings, layers, scores = (column[of_rule].tolist() for column in columns)
    return {setting: (layer, score) for setting, layer, score in zip(settings, layers, scores, strict=True)}


def _shares(predictions: Predictions, depth: int) -> np.ndarray:
    """Share of examples by exit layer, (layers,); of examples and draws if the exit is sampled."""
    counts = np.bincount(predictions.exit_layers.ravel(), minlength=depth + 1)[1:]
    return np.asarray(counts / counts.sum())


def _posterior(predictions: Predictions) -> np.ndarray | None:
    """Mean probability of leaving after each layer, (layers,); None without a Λ head."""
    stored = predictions.exit_probabilities
    return None if stored is None else stored.astype(float).mean(axis=1)
