"""The option --select-by: the rule that selects epochs and trials. `trainables/runs/select_exit.py` applies it."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from trainables.runs.trial import AREA, AT_LAYERS

FORMS = f"score, {AREA}, {AT_LAYERS}LAYERS"


def read_select_by(text: str) -> str | UnsetType:
    """Parse a selection rule and return it as plans store it: `at:6` for `at:6.0`, UNSET for `score`.

    Raises:
        ValueError: the text is not a selection rule.
    """
    if text == "score":
        return UNSET
    try:
        layers = float(text.removeprefix(AT_LAYERS)) if text.startswith(AT_LAYERS) else 0.0
    except ValueError:
        layers = 0.0
    if text != AREA and not 1 <= layers < float("inf"):
        raise ValueError(f"--select-by is {text!r}; allowed: {FORMS} with LAYERS at least 1, such as at:6")
    return AREA if text == AREA else f"{AT_LAYERS}{layers:g}"


def describe_select_by(select_by: str) -> str:
    """Describe a selection rule for captions and dry runs."""
    last = "models without early exits by their score"
    if select_by == AREA:
        return f"selected by the mean score over the front of exit settings and single layers, {last}"
    layers = select_by.removeprefix(AT_LAYERS)
    return (
        f"selected by the best score within {layers} mean layers (the score of layer {int(float(layers))} if every "
        f"exit setting runs more; {last})"
    )
