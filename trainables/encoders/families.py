"""What differs between the families of backbones, pretrained or untrained."""

from trainables.configuration import EncoderConfig


def family_options(family: str) -> dict[str, bool]:
    """RoBERTa's own sequence classifier does not use the base model's pooler but a new one."""
    return {"add_pooling_layer": False} if family == "roberta" else {}


def dropouts(config: EncoderConfig) -> dict[str, float]:
    """Set explicitly: backbones of the families come with different ones."""
    return {
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.hidden_dropout,
        "classifier_dropout": config.classifier_dropout,  # ELECTRA and RoBERTa: below the pooler too
    }


def reserved_positions(family: str, pad_token_id: int) -> int:
    """RoBERTa counts positions from pad_token_id + 1."""
    return pad_token_id + 1 if family == "roberta" else 0
