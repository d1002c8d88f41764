"""Departures from the originals are written down, and true. Run: pytest tests/trainables/test_departures.py"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from helpers.configurations import values_of
from helpers.departures import join_departures

import search_spaces
import trainables
from trainables.encoders.loading import load_tokenizer

EVERY_METHOD = pytest.mark.parametrize("method", trainables.list_methods())


@EVERY_METHOD
def test_departures_are_short_and_each_of_another_thing(method: str) -> None:
    departures = trainables.departures(method)
    assert len({departure.what for departure in departures}) == len(departures)
    for departure in departures:
        for part in departure:
            assert 0 < len(part) <= 60 and part.isprintable() and part == part.strip() and part[-1] != ".", departure


@EVERY_METHOD
def test_departures_of_a_variant_are_the_method_s(method: str) -> None:
    assert trainables.departures(f"{method}:a") == trainables.departures(method)


@EVERY_METHOD
def test_no_departure_names_what_a_plan_can_change(method: str) -> None:
    """Whoever chooses another backbone, pooling or split for the selection still has the departures."""
    for departure in trainables.departures(method):
        assert "[CLS]" not in departure.here and "on dev" not in departure.here, departure
        assert departure.what != "backbone" or "by default" in departure.here, departure


# A line about a value, and the value: whoever changes one has to change the other.
Values = dict[str, Any]
HELD: list[tuple[str, str, Callable[[Values], bool]]] = [
    ("albert", "schedule: constant", lambda v: v["schedule"] == "constant"),
    (
        "albert",
        "epochs, stop_after: up to 25, until 5 pass without",
        lambda v: (v["epochs"], v["stop_after"]) == (25, 5),
    ),
    ("albert", "select: after every epoch", lambda v: v["select"] == "best"),
    ("albert", "max_length: 128 tokens", lambda v: v["max_length"] == 128),
    ("albert", "weight_decay: 0 ", lambda v: v["weight_decay"] == 0),
    ("albert", "gradient_clip: none", lambda v: v["gradient_clip"] == 0),
    ("albert", "adam_epsilon: 1e-8", lambda v: v["adam_epsilon"] == 1e-8),
    ("albert", "hidden_dropout: 0 ", lambda v: v["hidden_dropout"] == 0),
    ("albert", "precision: float32", lambda v: v["precision"] == "float32"),
    ("pabee", "schedule: constant", lambda v: v["schedule"] == "constant"),
    (
        "pabee",
        "epochs, stop_after: up to 25, until 5 pass without",
        lambda v: (v["epochs"], v["stop_after"]) == (25, 5),
    ),
    ("pabee", "gradient_clip: none", lambda v: v["gradient_clip"] == 0),
    ("pabee", "regression_threshold: 0.2", lambda v: values_of("pabee", "stsb")["regression_threshold"] == 0.2),
    ("pabee", "precision: float32", lambda v: v["precision"] == "float32"),
    ("pabee", "patience, depth: not scaled: with 6 layers, 6", lambda v: v["patience"] == 6),
    ("berxit", "hidden_dropout: 0", lambda v: v["hidden_dropout"] == 0),
    ("berxit", "threshold: one value: chosen by the search, or 0.2", lambda v: v["threshold"] == 0.2),
    ("deebert", "hidden_dropout: 0", lambda v: v["hidden_dropout"] == 0),
    ("deebert", "entropy: one value: chosen by the search, or 0.14", lambda v: v["entropy"] == 0.14),
    ("palbert", "precision: float32", lambda v: v["precision"] == "float32"),
    ("palbert", "kl_direction: KL(prior || posterior)", lambda v: v["kl_direction"] == "prior_posterior"),
    (
        "palbert",
        "posterior_tail: ε / N per layer after the truncation",
        lambda v: v["posterior_tail"] == "constant",
    ),
    (
        "palbert",
        "num_lambda_layers: three tanh layers",
        lambda v: (v["lambda_layer_arch"], v["num_lambda_layers"]) == ("linear_cat", 3),
    ),
    (
        "palbert",
        "num_lambda_layers of a linear Λ: 0 (paper: 1)",
        lambda v: search_spaces.load_space("palbert:a").variant["num_lambda_layers"] == 0,
    ),
    ("palbert", "epochs: at most 25", lambda v: v["epochs"] == 25),
    ("pondernet", "kl_direction: KL(prior || posterior)", lambda v: v["kl_direction"] == "prior_posterior"),
    (
        "pondernet",
        "posterior_tail: ε / N per layer after the truncation",
        lambda v: v["posterior_tail"] == "constant",
    ),
    ("pondernet", "beta: searched, or 0.5", lambda v: v["beta"] == 0.5),
    ("pondernet", "draws per exit: 1;", lambda v: v["sample_draws"] == 1),
    ("pondernet", "precision: float32", lambda v: v["precision"] == "float32"),
    ("electra-small", "gradient_clip: norm 1", lambda v: v["gradient_clip"] == 1),
    ("electra-small", "weight_decay: 0.01", lambda v: v["weight_decay"] == 0.01),
    ("electra-small", "layer_decay_convention: the code's", lambda v: v["layer_decay_convention"] == "released"),
    ("alectra-small", "layer_decay: 1", lambda v: v["layer_decay"] == 1),
    ("alectra-small", "select: last", lambda v: v["select"] == "last"),
    ("sharebert", "schedule: falls to 0", lambda v: (v["schedule"], v["decay_power"]) == ("polynomial", 1)),
    ("sharebert", "precision: float32", lambda v: v["precision"] == "float32"),
]


@pytest.mark.parametrize(("method", "words", "holds"), HELD, ids=lambda value: value if isinstance(value, str) else "")
def test_a_line_about_a_value_is_true(method: str, words: str, holds: Callable[[Values], bool]) -> None:
    assert len([departure for departure in trainables.departures(method) if words in str(departure)]) == 1
    assert holds(values_of(method))


def test_departures_of_lmtuners_electra_are_its_own() -> None:
    """shoarora/lmtuners at 86f31ba, experiments/disc_lm_small/README.md."""
    theirs, google = (
        join_departures(trainables.departures(name)) for name in ("electra-small:lmtuners", "electra-small")
    )
    for word in ("MNLI", "weight_decay", "layer_decay", "Adam", "text"):
        assert word in google and word not in theirs
    assert "Pearson with Spearman (paper: Spearman)" in theirs
    values = values_of("electra-small:lmtuners")
    assert (values["weight_decay"], values["layer_decay"], values["layer_decay_convention"]) == (0.0, 0.8, "paper")


def test_draws_on_tiny_backbones_are_those_of_pondernet_s_line() -> None:
    space = importlib.import_module("search_spaces.pondernet")
    assert space.MINI_FIXED["sample_draws"] == 5
    assert "tiny backbones the mean of 5" in join_departures(trainables.departures("pondernet"))


def cut_by_the_original(first: int, second: int, limit: int) -> tuple[int, int]:
    """google-research/electra, `_truncate_seq_pair`: one token at a time from the longer text, in a tie the second."""
    while first + second > limit:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def cut_here(first: int, second: int, max_length: int) -> tuple[int, int]:
    tokenizer = load_tokenizer("mini-electra", texts=lambda: ["dog"])
    pair = (" ".join(["dog"] * length) for length in (first, second))
    encoded = tokenizer(*pair, truncation="longest_first", max_length=max_length)
    num_second = sum(encoded["token_type_ids"]) - 1  # without its [SEP]
    return len(encoded["input_ids"]) - num_second - 3, num_second


@pytest.mark.parametrize("lengths", [(60, 60), (100, 30), (30, 100), (195, 99)])
def test_most_pairs_are_cut_as_by_electra_s_code(lengths: tuple[int, int]) -> None:
    assert cut_here(*lengths, 128) == cut_by_the_original(*lengths, 125)


def test_long_pair_keeps_extra_token_of_second_text() -> None:
    assert (cut_here(99, 195, 128), cut_by_the_original(99, 195, 125)) == ((62, 63), (63, 62))
    assert "token more of the second text" in join_departures(trainables.departures("electra-small"))
