"""The input and output of a trial, and the errors that end it.

This module does not import torch, so programs without torch can use the types too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.configuration.schema import Configuration, Typed, Value
from trainables.data.tasks import Task, find_task
from trainables.files.atomic_files import DiskFull
from trainables.files.sources import Unusable

if TYPE_CHECKING:
    import numpy as np

Score = Annotated[float, Meta(ge=-1, le=1)]
Selection = Literal["dev", "holdout"]
AREA, AT_LAYERS = "area", "at:"  # values of `select_by`: `area`, and the prefix of `at:6`


def read_most_layers(select_by: str | UnsetType) -> float | None:
    """Return the most mean layers of a selection rule `at:LAYERS`; None for other rules."""
    return float(select_by.removeprefix(AT_LAYERS)) if select_by and select_by.startswith(AT_LAYERS) else None


class TrialSpec(Typed, frozen=True, kw_only=True):
    """All inputs that determine a trial's results."""

    method: str
    task: str
    config: Configuration
    post_hoc: Mapping[str, tuple[Value, ...]] | UnsetType = UNSET  # exit field -> values to try; not in `config`
    seed: int
    own_task: Task | UnsetType = UNSET  # the user's own task; UNSET: a GLUE task
    data: str  # "mini", "hub" or a folder
    backbone: str  # hub name, folder or name of a tiny untrained backbone
    tokenizer: str | None = None  # hub name or folder; None: the backbone's tokenizer
    selection: Selection = "dev"  # rows for early stopping and selection: dev, or a slice of train
    select_by: str | UnsetType = UNSET  # `at:LAYERS` or `area`, see `select_exit`; UNSET: the score
    report_dev: bool = True  # under holdout: whether to score the selected model on dev too
    start: str | None = None  # folder of another trial's model; its encoder (DeeBERT: and classifier) is copied

    def find_task(self) -> Task:
        """Find the task that the trial trains on.

        Raises:
            ValueError: no task has this name.
        """
        return self.own_task or find_task(self.task)


class Content(Typed, frozen=True, kw_only=True):
    """Fingerprints and digests of everything that a trial reads. Digests are None before the trial has run."""

    data_fingerprint: str  # hash of the data files
    tokens_digest: str | None  # hash of the tokenised training and selection rows
    backbone_fingerprint: str
    backbone_digest: str | None  # hash of the loaded files
    tokenizer_fingerprint: str | None  # None: the backbone's tokenizer


LARGEST_CDF = "largest_cdf"  # metric of Q-exit: largest probability of any example to exit before the last layer


class Reported(Typed, frozen=True, kw_only=True, gc=False):
    """A model's results on the reported split."""

    score: Score
    metrics: dict[str, float]
    mean_layers: NotNegative  # layers run per example; a mean over the draws of a sampled exit


class Losses(Typed, frozen=True, kw_only=True, gc=False):
    """The parts of the training loss in an epoch: at each point, the means over the steps since the point before."""

    steps: tuple[AtLeastOne, ...]  # training steps from the start of the epoch to each point; the last is its end
    means: dict[str, tuple[float | None, ...]]  # by the names in the model's `loss`; None: not finite, or absent


class EpochRow(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The results of one epoch of a trial on the selection split.

    Seconds and examples are totals since the start of the trial.
    """

    epoch: AtLeastOne
    selection_score: Score
    score: Score | UnsetType = UNSET  # score under `exit_setting`; UNSET: equal to `selection_score`
    metrics: dict[str, float]
    mean_layers: NotNegative  # layers run per example; a mean over the draws of a sampled exit
    num_layers: AtLeastOne
    train_loss: float
    train_examples: Count
    train_seconds: NotNegative
    eval_seconds: NotNegative
    best_epoch: AtLeastOne  # epoch selected so far
    finished: bool = False
    exit_setting: Configuration = {}  # exit setting that was chosen from `post_hoc` in this epoch
    losses: Losses | None = None  # None in older journals

    @property
    def reported(self) -> Reported:
        """The score, metrics and mean layers of this epoch."""
        score = self.selection_score if self.score is UNSET else self.score
        return Reported(score=score, metrics=self.metrics, mean_layers=self.mean_layers)


def blocked_exit(metrics: Mapping[str, float], config: Configuration) -> str:
    """Explain why no example can exit early under Q-exit.

    Return an empty text if an example can exit early, or if the exit rule is not Q-exit.
    """
    largest, q = metrics.get(LARGEST_CDF), config.get("q")
    if largest is None or not isinstance(q, int | float) or largest > q:
        return ""
    most = f"the exit probabilities before the last layer sum to at most {largest:.4g}"
    return f"no example can exit early: {most}, but the threshold q is {q:g}"


class TextFlops(Typed, frozen=True, kw_only=True):
    """FLOPs of the matrix products for one text without padding."""

    tokens: AtLeastOne
    by_layer: tuple[NotNegative, ...]  # FLOPs of an exit after layer 1, 2, ...


def list_flops_terms(tokens: np.ndarray, segment_length: int | None) -> np.ndarray:
    """List the terms of texts, (n, terms), of which their FLOPs are a weighted sum; the weights are the same for all.

    Args:
        tokens: number of tokens of each text, (n,).
        segment_length: number of tokens per landmark of Nystrom attention; None if attention is softmax.
    """
    import numpy as np

    exact = tokens.astype(float)
    if segment_length is None:
        return np.vander(exact, 3)  # the square, the number itself and 1
    landmarks = np.ceil(exact / segment_length)  # pads have none
    return np.stack([landmarks**3, landmarks**2, landmarks * exact, exact, np.ones_like(exact)], axis=1)


# Times that older versions measured within trials. They rest on few texts and on other work of the machine, so no table
# shows them; `study.time` measures times.


class Timing(Typed, frozen=True, kw_only=True):
    """The time per example at one batch size."""

    batch_size: AtLeastOne
    examples: AtLeastOne
    mean_layers: Annotated[float, Meta(ge=1)]
    milliseconds: Annotated[float, Meta(gt=0)]


class ExitLatency(Typed, frozen=True, kw_only=True):
    """The cost per example at one exit setting."""

    rule: str
    setting: float | None
    flops: NotNegative
    timings: tuple[Timing, ...]


class Latency(Typed, frozen=True, kw_only=True):
    """One measurement of a model."""

    device: str
    threads: AtLeastOne
    exits: tuple[ExitLatency, ...]
    texts: tuple[TextFlops, ...] = ()


class Outcome(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The results of a finished trial, in addition to its epoch rows."""

    reported: Reported | None = None  # None in a journal: same as in the selected epoch's row
    num_parameters: AtLeastOne  # in the whole model; shared parameters count once
    data_differences: tuple[str, ...] = ()  # differences of the data from the official GLUE; (): none
    model: str | None = None  # folder of the selected epoch's model; None before the first `save`
    model_digest: str | None = None  # of this folder, see `sources.hash_folder`; None in older journals
    predictions_digest: str | None = None  # SHA-256 of the predictions file; None without a file
    text_flops: tuple[TextFlops, ...] = ()  # of a few texts, each length once; counted in confirm trials only
    latency: Latency | None = None  # only in older journals


# Errors. Their classes tell a caller whether a retry can help.


class TrainingError(RuntimeError):
    """Raised when the training itself fails. A retry would fail in the same way."""


class OutOfMemory(TrainingError):
    """Raised when the device runs out of memory. Other processes on the device may be the cause."""


class Unavailable(ValueError):
    """Raised when the data, backbone or start model is missing or incomplete on this machine."""


class UnreadableState(ValueError):
    """Raised when a saved state is damaged, incomplete or from another trial. The trial must start again."""


@contextmanager
def reading_inputs() -> Iterator[None]:
    """Turn errors in reading inputs into `Unavailable`, because another machine may have the inputs.

    Errors of the classes `Unusable` and `DiskFull` are raised unchanged.
    """
    try:
        yield
    except (Unusable, DiskFull):
        raise
    except (ValueError, OSError) as error:
        raise Unavailable(str(error)) from error
