"""Inference times of models, as a study's journal keeps them. This module does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainables.configuration import AtLeastOne, NotNegative
from trainables.configuration.schema import Typed

# `own`: the exit setting of the trial. `setting`: a swept setting. `layer`: all examples leave after one layer, and the
# exit rule decides at every layer; it is the model's own rule or greatest probability. `first`: the same with the own
# rule, but at this layer for the first time, as PABEE with a long patience. `cut`: all examples leave after one layer,
# without any decision.
ExitKind = Literal["own", "setting", "layer", "first", "cut"]
DETAIL_EVERY = 5  # of the single texts, this fraction times single layers, fixed cuts and further exit settings


class TimedModel(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Times of one model under one exit rule, in milliseconds per text."""

    key: str  # of the model's trial
    exit: ExitKind
    rule: str  # name of the exit rule
    at: float | None = None  # the layer, or the value of the swept setting
    batch_size: AtLeastOne
    mean_layers: Annotated[float, Meta(ge=1)]  # run per timed text
    texts: tuple[NotNegative, ...]  # one per batch, as the median over the rounds
    rounds: tuple[NotNegative, ...]  # one per round, as the mean over the batches
    exit_layers: tuple[AtLeastOne, ...] = ()  # of each text; only for a swept setting


class LayerTime(Typed, frozen=True, kw_only=True, gc=False):
    """Parts of the time of one layer if no example leaves early, in milliseconds per text, as means over the layers."""

    key: str  # of the model's trial
    batch_size: AtLeastOne
    encoder: NotNegative
    heads: NotNegative  # classifier, Λ, and the pooler that they read
    decision: NotNegative  # of the exit rule, and all other work between two layers
