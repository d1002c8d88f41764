"""The input of a trial, its output, and the failures that end it.

No torch: decisions and analysis read the same types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.data.tasks import Task, find_task
from trainables.schema import Configuration, Typed, Value
from trainables.sources import Unusable

Score = Annotated[float, Meta(ge=-1, le=1)]
Selection = Literal["dev", "holdout"]
AREA, AT_LAYERS = "area", "at:"  # selections of epochs and trials other than their score; `at:6`

TIMED_BATCHES = {1: 4, 8: 2, 32: 1}  # batch size -> batches, at most; few, since every confirm trial pays for them


class TrialSpec(Typed, frozen=True, kw_only=True):
    """All that a trial's numbers depend on."""

    method: str
    task: str
    config: Configuration
    post_hoc: Mapping[str, tuple[Value, ...]] | UnsetType = UNSET  # exit settings that are not in `config`: all tried
    seed: int
    own_task: Task | UnsetType = UNSET  # the task, unless it is one of GLUE
    data: str  # "mini", "hub" or a folder
    backbone: str  # hub name, folder or one of the tiny untrained ones
    tokenizer: str | None = None  # hub name or folder; None: the backbone's own
    selection: Selection = "dev"  # the rows that stop and select: dev, or a slice of train
    select_by: str | UnsetType = UNSET  # `at:LAYERS` or `area`, see `runs/select_exit.py`; UNSET: the score
    report_dev: bool = True  # under holdout: whether the final model is scored on dev too
    start: str | None = None  # folder of another trial's model, whose encoder is the start; the heads are new

    def find_task(self) -> Task:
        """Find the task that the trial trains on.

        Raises:
            ValueError: no task has this name.
        """
        return self.own_task or find_task(self.task)


class Content(Typed, frozen=True, kw_only=True):
    """Identities of everything that a trial reads. Digests are None before it has run."""

    data_fingerprint: str  # of the files
    tokens_digest: str | None  # of the tokenised rows that it trains on and selects by
    backbone_fingerprint: str
    backbone_digest: str | None  # of the files that were loaded
    tokenizer_fingerprint: str | None  # None: the backbone's own


LARGEST_CDF = "largest_cdf"  # metric of Q-exit: the largest probability of leaving before the last layer


class Reported(Typed, frozen=True, kw_only=True, gc=False):
    """The numbers of a model on the split that is reported."""

    score: Score
    metrics: dict[str, float]
    mean_layers: NotNegative  # run per example; a mean over the draws of a sampled exit


class EpochRow(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One epoch of a trial, by the split that selects. Costs are totals of the trial so far."""

    epoch: AtLeastOne
    selection_score: Score
    score: Score | UnsetType = UNSET  # under its exit setting, if that is not the selection score
    metrics: dict[str, float]
    mean_layers: NotNegative  # run per example; a mean over the draws of a sampled exit
    num_layers: AtLeastOne
    train_loss: float
    train_examples: Count
    train_seconds: NotNegative
    eval_seconds: NotNegative
    best_epoch: AtLeastOne  # selected so far: the best one, or this one if the last is selected
    finished: bool = False
    exit_setting: Configuration = {}  # chosen among the trial's `post_hoc` ones at this epoch, by `selection_score`

    @property
    def reported(self) -> Reported:
        """Its numbers, if the split that selects is the one that is reported."""
        score = self.selection_score if self.score is UNSET else self.score
        return Reported(score=score, metrics=self.metrics, mean_layers=self.mean_layers)


def blocked_exit(metrics: Mapping[str, float], config: Configuration) -> str:
    """Explain why no example can leave early under Q-exit; empty if one can, or another rule decides."""
    largest, q = metrics.get(LARGEST_CDF), config.get("q")
    if largest is None or not isinstance(q, int | float) or largest > q:
        return ""
    return f"the posterior sums to at most {largest:.2f}, below q {q:g}: no example can leave early"


class Timing(Typed, frozen=True, kw_only=True):
    """The time of an answer at one batch size."""

    batch_size: AtLeastOne
    examples: AtLeastOne  # timed
    mean_layers: Annotated[float, Meta(ge=1)]  # run per timed example
    milliseconds: Annotated[float, Meta(gt=0)]  # per example, by the clock, of the fastest of a few rounds


class ExitLatency(Typed, frozen=True, kw_only=True):
    """The cost of an answer at one setting of the exit."""

    rule: str  # as in a predictions file
    setting: float | None  # the number that is swept
    flops: NotNegative  # per example of a batch of the largest size, products of matrices alone
    timings: tuple[Timing, ...]  # one per batch size

    def timing(self, batch_size: int) -> Timing | None:
        """Find the timing at this batch size; None if it was not timed."""
        return next((timing for timing in self.timings if timing.batch_size == batch_size), None)


class TextFlops(Typed, frozen=True, kw_only=True):
    """FLOPs (matrix products) of one text without padding."""

    tokens: AtLeastOne
    by_layer: tuple[NotNegative, ...]  # if it leaves after layer 1, 2, ...


class Latency(Typed, frozen=True, kw_only=True):
    """The cost of a model's answers, measured once: two measurements differ in all but layers and FLOPs."""

    device: str  # name of the GPU, or model of the CPU
    threads: AtLeastOne  # of PyTorch
    exits: tuple[ExitLatency, ...]  # the model's own first
    texts: tuple[TextFlops, ...] = ()  # a short, a middling and a long one, each length once; empty in older files

    @property
    def own(self) -> ExitLatency:
        """The latency under the model's own exit."""
        return self.exits[0]

    @property
    def all_layers(self) -> ExitLatency:
        """The latency without early exits."""
        return next(each for each in self.exits if each.rule == "last")


class Outcome(Typed, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The model of a finished trial's selected epoch, which the trial adds to its rows."""

    reported: Reported | None = None  # in a journal None if they are those of the selected epoch's row
    num_parameters: AtLeastOne  # of the whole model, shared ones once
    data_differences: tuple[str, ...] = ()  # from the official GLUE, of the splits that were read; empty: it is that
    model: str | None = None  # folder of the selected epoch's model; None before the first `save`
    latency: Latency | None = None  # of a confirm trial


# Failures: who catches one of these knows whether trying again can help.


class TrainingError(RuntimeError):
    """The method's own failure, whose cause is known: it would fail again."""


class OutOfMemory(TrainingError):
    """Memory did not suffice: the configuration's fault, or that of whoever else uses the device."""


class Unavailable(ValueError):
    """Data, backbone or start of a trial are missing, or incomplete, on this machine."""


class UnreadableState(ValueError):
    """The saved state of a trial is damaged, incomplete or of another trial: it can only be trained anew."""


@contextmanager
def available() -> Iterator[None]:
    """Turn errors of data, backbone or start into `Unavailable`, which other machines may not have; not `Unusable`."""
    try:
        yield
    except Unusable:
        raise
    except (ValueError, OSError) as error:
        raise Unavailable(str(error)) from error
