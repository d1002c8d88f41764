"""ALECTRA-small: an ALBERT that was pretrained as ELECTRA is, fine-tuned without early exit. shoarora/lmtuners.

The README (experiments/disc_lm_small/README.md at 86f31ba) gives batch size, epochs and learning rate of each task, and
starts RTE and STS-B from an MNLI model. It takes ELECTRA's other values from that paper's appendix; the script that did
the fine-tuning is not published. The model card (shoarora/alectra-small-owt) loads the checkpoint as
`AlbertForSequenceClassification`: the head `pooled` is that one, and its pooler the checkpoint's, which ELECTRA's
objective leaves untrained. The rest is ELECTRA-small's (trainables/electra_small.py).
"""

from __future__ import annotations

from trainables import electra_small

DEPARTURES = (
    "warm-up, decay, weight decay and Adam's epsilon are ELECTRA's (paper); the README names none",
    "no layer-wise learning rates, for all layers are one; the README does not name any",
    "the last epoch is selected, as in ELECTRA's code; the README does not say which is",
    "MRPC and QQP are judged by accuracy with F1; the original's by accuracy alone",
    "STS-B is judged by Pearson with Spearman; the original's by Spearman alone",
    "learning rate and batch size are searched, the README's first; the original's search is not given",
)


class Config(electra_small.Config, frozen=True, kw_only=True):
    """What ELECTRA-small is told."""


build = electra_small.build
