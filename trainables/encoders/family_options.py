"""The options with which encoders of each family are built.

Imports neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainables.configuration import EncoderConfig
from trainables.encoders.architectures import ROBERTAS


def choose_attention(family: str) -> str:
    """Choose the attention implementation of `transformers` for a family: SDPA, if its model supports it."""
    return "eager" if family in ("deberta-v2", "mpnet") else "sdpa"


def family_options(family: str) -> dict[str, Any]:
    """Return the options with which the encoders of a family are built.

    The classifiers of RoBERTa, XLM-RoBERTa and MPNet in `transformers` have their own pooler, so their encoders are
    built without one.
    """
    options = {"add_pooling_layer": False} if family in (*ROBERTAS, "mpnet") else {}
    return {**options, "attn_implementation": choose_attention(family)}


_DROPOUTS: Mapping[str, tuple[str, ...]] = {  # fields of the dropout rates inside the encoder
    "distilbert": ("dropout", "attention_dropout"),
    "modernbert": ("embedding_dropout", "attention_dropout", "mlp_dropout"),
}


def dropout_options(config: EncoderConfig, family: str) -> dict[str, float]:
    """Return all dropout rates of a model's configuration. The defaults differ between families."""
    inside = _DROPOUTS.get(family, ("hidden_dropout_prob", "attention_probs_dropout_prob"))
    # ELECTRA and RoBERTa also apply the classifier's dropout below the pooler.
    named = {"distilbert": "seq_classif_dropout", "deberta-v2": "cls_dropout"}
    of_classifier = {named.get(family, "classifier_dropout"): config.classifier_dropout}
    of_pooler = {"pooler_dropout": 0.0} if family == "deberta-v2" else {}  # as in the published models
    return {**dict.fromkeys(inside, config.hidden_dropout), **of_classifier, **of_pooler}


def reserved_positions(family: str, pad_token_id: int) -> int:
    """Return the number of positions that no token uses.

    RoBERTa and XLM-RoBERTa count positions from pad_token_id + 1, and MPNet from 2.
    """
    if family == "mpnet":
        return 2
    return pad_token_id + 1 if family in ROBERTAS else 0
