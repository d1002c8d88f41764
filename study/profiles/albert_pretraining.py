"""PALBERT's protocol on an ALBERT-base of one's own: pretrained by ALBERT's recipe, then the paper profile's grid.

    python -m study.launch --profile albert-pretraining
    python -m study.launch --profile albert-pretraining --data mini --task rte

The second is the whole way, tiny and without a network. Pretraining is 125,000 steps of 4096 examples of 512
tokens with LAMB (search_spaces/objectives/albert_mlm.py); the original's corpus has books beside Wikipedia.
What the published numbers are of, ALBERT-base v1 with MNLI 81.6 and SST-2 90.3 and v2 with 84.6 and
92.9 (README of google-research/albert, dev), was pretrained by its authors: they stand apart in the tables.
"""

from msgspec.structs import replace

from study.plans.plan import Plan, Pretraining
from study.profiles import paper

METHODS = ("albert", "pabee", "pondernet", "palbert")


def plan() -> Plan:
    return replace(
        paper.plan(),
        profile="albert-pretraining",
        pretraining=Pretraining(objective="albert-mlm", corpus="hub:wikimedia/wikipedia:20231101.en"),
    )
