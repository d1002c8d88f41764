"""What goes into a pretraining run and what comes out of it. No torch."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trainables.configuration import AtLeastOne, NotNegative
from trainables.schema import Configuration, Typed


class PretrainingSpec(Typed, frozen=True, kw_only=True):
    """All that a pretraining run's numbers depend on."""

    objective: str
    corpus: str  # "mini", "mini-shuffled", "hub:NAME[:CONFIGURATION]" or a folder of text files
    config: Configuration
    seed: int
    backbone: str  # sizes by name, with new weights; or a folder or a hub name, to go on from
    tokenizer: str | None = None  # hub name or folder; None: the backbone's own


class PretrainingRow(Typed, frozen=True, kw_only=True):
    """One epoch, which is a number of steps. Costs are totals of the run so far."""

    epoch: AtLeastOne
    score: Annotated[float, Meta(ge=0, le=1)]  # held out: the one that stands for the objective
    scores: dict[str, float]  # all held-out scores by name, on masks that never change
    steps: AtLeastOne
    examples: AtLeastOne  # with repetitions
    tokens: AtLeastOne  # the same, padding not counted
    train_loss: float  # mean of the epoch's steps
    train_seconds: NotNegative
    eval_seconds: NotNegative
    finished: bool


class PretrainingOutcome(Typed, frozen=True, kw_only=True):
    """What a finished run amounts to: the last epoch's scores, the costs of the whole run."""

    score: Annotated[float, Meta(ge=0, le=1)]
    score_name: str
    scores: dict[str, float]
    epochs: AtLeastOne
    steps: AtLeastOne
    examples: AtLeastOne
    tokens: AtLeastOne
    num_parameters: AtLeastOne  # of all that was trained, shared ones once
    num_kept_parameters: AtLeastOne  # of the model that is left
    train_seconds: NotNegative
    eval_seconds: NotNegative
    model: str | None  # a folder that `transformers` loads; None before the run is finished and saved
