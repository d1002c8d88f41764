"""ALECTRA-small: an ALBERT that was pretrained as ELECTRA is, fine-tuned without early exit. shoarora/lmtuners.

The README (experiments/disc_lm_small/README.md at 86f31ba) gives batch size, epochs and learning rate of each task, and
starts RTE and STS-B from an MNLI model. It takes ELECTRA's other values from that paper's appendix; the script that did
the fine-tuning is not published. The model card (shoarora/alectra-small-owt) loads the checkpoint as
`AlbertForSequenceClassification`: the head `pooled` is that one, and its pooler the checkpoint's, which ELECTRA's
objective leaves untrained. The rest is ELECTRA-small's (trainables/electra_small.py).
"""

from __future__ import annotations

from trainables import electra_small

DEPARTURES = (  # what, in the paper or its code, here
    ("warm-up, schedule, weight_decay, adam_epsilon", "not in the README", "ELECTRA's paper's"),
    ("layer_decay", "not in the README", "1: all layers are one"),
    ("select", "not in the README", "last, as ELECTRA's code"),
    ("score of MRPC and QQP", "accuracy", "accuracy with F1"),
    ("score of STS-B", "Spearman", "Pearson with Spearman"),
    ("learning_rate, batch_size", "one each; its search is not given", "searched, the README's first"),
)


class Config(electra_small.Config, frozen=True, kw_only=True):
    """The fields of ELECTRA-small."""


build = electra_small.build
