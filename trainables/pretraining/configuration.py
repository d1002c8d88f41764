"""The configuration of a pretraining run, and the run's report after each epoch.

This module does not import torch. No field has a default. All values of a run come from `search_spaces/objectives/`,
which cites the source of each value.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainables.configuration import AtLeastOne, Count, EncoderConfig, Inside, NotNegative, Positive, WholeShare
from trainables.configuration.schema import Configuration, Typed


class PretrainingConfig(EncoderConfig, frozen=True, kw_only=True):
    """The configuration fields that all pretraining objectives share."""

    gradient_accumulation: AtLeastOne  # number of equal parts of a step's batch, computed one after another
    steps: AtLeastOne
    steps_per_epoch: AtLeastOne  # number of steps after which held-out scores and a checkpoint are written
    optimizer: Literal["adamw", "adamw_uncorrected", "lamb", "lamb_clamped"]
    adam_beta2: Inside
    max_length: Annotated[int, Meta(ge=8)]  # tokens per example, with special tokens
    packing: Literal["sentence_pairs", "electra", "random_lines", "full"]  # see packing.py
    masking: Literal["bernoulli", "token", "n_gram"]  # unit of masking: tokens that are masked together
    mask_probability: Inside  # probability that a token is to be predicted
    max_predictions: Count  # largest number of predicted tokens per example; 0: no limit
    mask_token_share: WholeShare  # share of the predicted tokens that become [MASK]
    random_token_share: WholeShare  # share that become random tokens; all other predicted tokens stay unchanged

    def __post_init__(self) -> None:
        """Check that the fields are consistent."""
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
                f"random_token_share is {self.random_token_share}; allowed: at most "
                f"{1 - self.mask_token_share:g} (1 - mask_token_share)"
            )
        if self.masking == "bernoulli" and self.max_predictions:
            raise ValueError(f"max_predictions is {self.max_predictions}, but must be 0 if masking is bernoulli")

    def examples_at_once(self, processes: int) -> int:
        """Compute how many examples each process handles at once.

        A batch has `gradient_accumulation` equal parts. The processes share each part equally.

        Raises:
            ValueError: if the processes cannot share a part equally.
        """
        part = self.batch_size // self.gradient_accumulation
        if part % processes:
            raise ValueError(
                f"{processes} processes cannot share {part} examples evenly (batch_size {self.batch_size} divided by "
                f"gradient_accumulation {self.gradient_accumulation}); "
                f"allowed: a number of processes that divides {part}"
            )
        return part // processes


class ReplacedTokenConfig(PretrainingConfig, frozen=True, kw_only=True):
    """The fields of objectives with a generator and a discriminator. The discriminator is saved as the backbone."""

    discriminator_weight: Positive  # weight of the discriminator's loss; the generator's has weight 1
    generator_hidden_size: AtLeastOne
    generator_layers: AtLeastOne
    generator_heads: AtLeastOne
    generator_intermediate_size: AtLeastOne

    def __post_init__(self) -> None:
        """Check that `generator_heads` divides `generator_hidden_size`."""
        super().__post_init__()
        if self.generator_hidden_size % self.generator_heads:
            raise ValueError(
                f"generator_heads is {self.generator_heads}; allowed: a divisor of generator_hidden_size "
                f"({self.generator_hidden_size})"
            )


class PretrainingSpec(Typed, frozen=True, kw_only=True):
    """Everything that determines the results of a pretraining run."""

    objective: str
    corpus: str  # "mini", "hub:NAME[:CONFIGURATION]", a folder of text files, or several of these (`join_corpora`)
    config: Configuration
    seed: int
    backbone: str  # name of an architecture (new weights), or folder or hub name of a model to continue from
    tokenizer: str | None = None  # hub name or folder; None: the backbone's tokenizer


class PretrainingRow(Typed, frozen=True, kw_only=True):
    """The report after an epoch of at most `steps_per_epoch` steps.

    Steps, examples, tokens and seconds are totals since the start of the run.
    """

    epoch: AtLeastOne
    score: WholeShare  # the objective's main held-out score
    scores: dict[str, float]  # all held-out scores by name, computed with the same masks each time
    steps: AtLeastOne
    examples: AtLeastOne  # examples seen, with repetitions
    tokens: AtLeastOne  # tokens of these examples, without padding
    train_loss: float  # mean over the epoch's steps
    train_seconds: NotNegative
    eval_seconds: NotNegative
    finished: bool
