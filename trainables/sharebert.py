"""ShareBERT: fine-tuning without early exit. The encoder's weight matrices are cut from its word embeddings.

AAAI 2024, article 29781. The original is run_glue.py of jchenghu/sharebert at e54fe72, run as its README says.
The script scores CoLA with QQP's metrics, accuracy and F1 (lines 438 to 440), instead of Matthews correlation. The
original's pretrained weights are not on the hub. The weights here are therefore random, or those of a backbone that was
pretrained with this project (study/plans/profiles.py).
"""

from __future__ import annotations

from trainables import albert

DEPARTURES = (  # each: what differs, value in the paper or its code, value here
    ("score of CoLA", "accuracy with F1 in its script", "Matthews correlation"),
    ("first weights", "pretrained, but on no hub", "random unless pretrained here"),
    ("score of MNLI", "matched dev set", "both dev sets"),
    ("reported score", "of an unknown number of runs", "median over seeds"),
    ("schedule", "falls to 1e-7", "falls to 0"),
    ("precision", "mixed (--fp16 in its README)", "float32"),
    ("padding", "to 128 tokens", "to the longest text of the batch"),
)


class Config(albert.Config, frozen=True, kw_only=True):
    """The configuration of ShareBERT, which has only the fields that all methods share."""


build = albert.build
