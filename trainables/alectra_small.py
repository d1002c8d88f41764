"""ALECTRA-small: an ALBERT pretrained with ELECTRA's objective, fine-tuned without early exit.

The original is shoarora/lmtuners at 86f31ba. Its README (experiments/disc_lm_small/README.md) gives batch size, epochs
and learning rate for each task. In the original, RTE and STS-B start from an MNLI model. The fine-tuning script is not
published, so the remaining values are from the appendix of ELECTRA's paper. The model card (shoarora/alectra-small-owt)
loads the checkpoint as `AlbertForSequenceClassification`, so `head` is `pooled`. The pooler also starts from the
checkpoint, although pretraining did not train it. Everything else is as in ELECTRA-small (trainables/electra_small.py).
"""

from __future__ import annotations

from trainables import electra_small

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("warm-up, schedule, weight_decay, adam_epsilon", "not in the README", "as in ELECTRA's paper"),
    ("layer_decay", "not in the README", "1, because all layers share their weights"),
    ("select", "not in the README", "last, as in ELECTRA's code"),
    ("score of MRPC and QQP", "accuracy", "accuracy with F1"),
    ("score of STS-B", "Spearman", "Pearson with Spearman"),
    (
        "learning_rate, batch_size",
        "one value each; their search is not given",
        "searched, starting with the README's",
    ),
)


class Config(electra_small.Config, frozen=True, kw_only=True):
    """The configuration of ALECTRA-small: the fields of ELECTRA-small."""


build = electra_small.build
