"""The configuration of a pretraining run, and its report after an epoch. No torch.

No field of a configuration has a default: every value comes from `search_spaces/objectives/`, which names its source.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainables.configuration import AtLeastOne, Count, EncoderConfig, Inside, NotNegative, Positive
from trainables.schema import Configuration, Typed

WholeShare = Annotated[float, Meta(ge=0, le=1)]


class PretrainingConfig(EncoderConfig, frozen=True, kw_only=True):
    """The fields that all objectives share, about pretraining an encoder."""

    learning_rate: Positive  # peak
    batch_size: AtLeastOne  # examples per step, of all its parts
    gradient_accumulation: AtLeastOne  # equal parts that a step's batch is computed in, one after another
    steps: AtLeastOne
    steps_per_epoch: AtLeastOne  # after so many steps: held-out scores, and a state to resume from
    optimizer: Literal["adamw", "adamw_uncorrected", "lamb", "lamb_clamped"]
    adam_beta2: Inside
    adam_epsilon: Positive
    weight_decay: NotNegative  # decoupled
    warmup_steps: Count
    gradient_clip: NotNegative  # largest norm, 0 is no clipping
    max_length: Annotated[int, Meta(ge=8)]  # tokens per example, special ones included
    packing: Literal["sentence_pairs", "electra", "random_lines", "full"]  # corpora/packing.py
    masking: Literal["bernoulli", "token", "whole_word", "n_gram"]  # the tokens that are masked together
    mask_probability: Inside  # of a token to be predicted
    max_predictions: Count  # tokens of an example at most, 0 is no limit
    mask_token_share: WholeShare  # of the tokens to be predicted: hidden by [MASK]
    random_token_share: WholeShare  # of the same: replaced by a random token; the rest stays as it is

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        super().__post_init__()
        if self.batch_size % self.gradient_accumulation:
            raise ValueError(
                f"gradient_accumulation is {self.gradient_accumulation}; allowed: a divisor of batch_size "
                f"({self.batch_size})"
            )
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps is {self.warmup_steps}; allowed: fewer than steps ({self.steps})")
        if self.mask_token_share + self.random_token_share > 1:
            raise ValueError(
                f"random_token_share is {self.random_token_share}; allowed: at most 1 - mask_token_share "
                f"({self.mask_token_share})"
            )
        if self.masking == "bernoulli" and self.max_predictions:
            raise ValueError(f"max_predictions is {self.max_predictions}; allowed if masking is bernoulli: 0")

    def examples_at_once(self, processes: int) -> int:
        """Count the examples that each of so many processes computes of a part of a step's batch.

        Raises:
            ValueError: they cannot share it evenly.
        """
        part = self.batch_size // self.gradient_accumulation
        if part % processes:
            raise ValueError(
                f"{processes} processes cannot share {part} examples evenly (batch_size {self.batch_size} in "
                f"gradient_accumulation {self.gradient_accumulation} parts); allowed: a divisor of {part}"
            )
        return part // processes


class ReplacedTokenConfig(PretrainingConfig, frozen=True, kw_only=True):
    """The fields of objectives with a generator and a discriminator, whose encoder is the backbone."""

    discriminator_weight: Positive  # of its loss, beside the generator's
    generator_hidden_size: AtLeastOne
    generator_layers: AtLeastOne
    generator_heads: AtLeastOne
    generator_intermediate_size: AtLeastOne

    def __post_init__(self) -> None:
        """Check that the heads divide the width."""
        super().__post_init__()
        if self.generator_hidden_size % self.generator_heads:
            raise ValueError(
                f"generator_heads is {self.generator_heads}; allowed: a divisor of generator_hidden_size "
                f"({self.generator_hidden_size})"
            )


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
