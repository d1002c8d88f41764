"""A batch as objectives are given it."""

import torch

from trainables.pretraining.batches import IGNORED
from trainables.pretraining.models import Totals

VOCABULARY = 50


def batch_of(size: int = 6, length: int = 12, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tokens with padding, of which some are to be predicted."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, VOCABULARY, (size, length), generator=generator)
    lengths = torch.randint(5, length + 1, (size, 1), generator=generator)
    inside = torch.arange(length) < lengths
    chosen = inside & (torch.rand(size, length, generator=generator) < 0.3)
    chosen[:, 1] = True
    return {
        "input_ids": torch.where(chosen, 4, tokens).masked_fill(~inside, 0),
        "original_ids": tokens.masked_fill(~inside, 0),
        "attention_mask": inside.long(),
        "token_type_ids": (torch.arange(length) > 3).long().expand(size, -1) * inside,
        "labels": tokens.masked_fill(~chosen, IGNORED),
        "noise": torch.rand(size, length, generator=generator),
        "sentence_order": torch.randint(2, (size,), generator=generator),
    }


def totals_of(batch) -> Totals:
    return Totals.of({name: value.numpy() for name, value in batch.items()})


def inputs(batch, **others):
    return {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")} | others
