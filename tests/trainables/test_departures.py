"""Departures from the originals are written down, and true. Run: pytest tests/trainables/test_departures.py"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from helpers.configurations import values_of

import search_spaces
import trainables
from trainables.encoders.loading import load_tokenizer

EVERY_METHOD = pytest.mark.parametrize("method", trainables.available())


@EVERY_METHOD
def test_departures_are_short_lines_of_their_own(method: str) -> None:
    lines = trainables.departures(method)
    assert isinstance(lines, tuple) and len(set(lines)) == len(lines)
    for line in lines:
        assert 0 < len(line) <= 100 and line.isprintable() and line == line.strip() and not line.endswith("."), line


@EVERY_METHOD
def test_departures_of_a_variant_are_the_method_s(method: str) -> None:
    assert trainables.departures(f"{method}:a") == trainables.departures(method)


# A line about a value, and the value: whoever changes one has to change the other.
Values = dict[str, Any]
HELD: list[tuple[str, str, Callable[[Values], bool]]] = [
    ("albert", "the learning rate is constant", lambda v: v["schedule"] == "constant"),
    ("albert", "up to 25 epochs, until 5 pass without", lambda v: (v["epochs"], v["stop_after"]) == (25, 5)),
    ("albert", "an epoch is selected", lambda v: v["select"] == "best"),
    ("albert", "texts are cut at 128 tokens", lambda v: v["max_length"] == 128),
    ("albert", "no weight decay", lambda v: v["weight_decay"] == 0),
    ("albert", "gradients are not clipped", lambda v: v["gradient_clip"] == 0),
    ("albert", "corrects the bias of its moments, epsilon 1e-8", lambda v: v["adam_epsilon"] == 1e-8),
    ("albert", "no dropout in the encoder", lambda v: v["hidden_dropout"] == 0),
    ("albert", "float32", lambda v: v["precision"] == "float32"),
    ("pabee", "the learning rate is constant", lambda v: v["schedule"] == "constant"),
    ("pabee", "up to 25 epochs, until 5 pass without", lambda v: (v["epochs"], v["stop_after"]) == (25, 5)),
    ("pabee", "gradients are not clipped", lambda v: v["gradient_clip"] == 0),
    ("pabee", "scores agree within 0.2", lambda v: values_of("pabee", "stsb")["regression_threshold"] == 0.2),
    ("pabee", "float32", lambda v: v["precision"] == "float32"),
    ("berxit", "no dropout in the encoder", lambda v: v["hidden_dropout"] == 0),
    ("berxit", "or 0.2", lambda v: v["threshold"] == 0.2),
    ("palbert", "float32", lambda v: v["precision"] == "float32"),
    ("palbert", "the code's, KL(prior || posterior)", lambda v: v["kl_direction"] == "prior_posterior"),
    ("palbert", "layers behind the cut count", lambda v: v["posterior_tail"] == "constant"),
    (
        "palbert",
        "Λ's three tanh layers",
        lambda v: (v["lambda_layer_arch"], v["num_lambda_layers"]) == ("linear_cat", 3),
    ),
    (
        "palbert",
        "num_lambda_layers leaves out Λ's output layer: 0 here",
        lambda v: search_spaces.load("palbert:a").variant["num_lambda_layers"] == 0,
    ),
    ("palbert", "at most 25 epochs", lambda v: v["epochs"] == 25),
    ("pondernet", "KL(prior || posterior)", lambda v: v["kl_direction"] == "prior_posterior"),
    ("pondernet", "layers behind the cut count", lambda v: v["posterior_tail"] == "constant"),
    ("pondernet", "β is 0.5", lambda v: v["beta"] == 0.5),
    ("pondernet", "the original draws once", lambda v: v["sample_draws"] == 1),
    ("pondernet", "float32", lambda v: v["precision"] == "float32"),
    ("electra-small", "clipped at norm 1", lambda v: v["gradient_clip"] == 1),
    ("electra-small", "weight decay is the original code's 0.01", lambda v: v["weight_decay"] == 0.01),
    ("electra-small", "the top layer has two factors", lambda v: v["layer_decay_convention"] == "released"),
    ("alectra-small", "no layer-wise learning rates", lambda v: v["layer_decay"] == 1),
    ("alectra-small", "the last epoch is selected", lambda v: v["select"] == "last"),
    ("sharebert", "the learning rate falls to 0", lambda v: (v["schedule"], v["decay_power"]) == ("polynomial", 1)),
    ("sharebert", "float32", lambda v: v["precision"] == "float32"),
]


@pytest.mark.parametrize(("method", "words", "holds"), HELD, ids=lambda value: value if isinstance(value, str) else "")
def test_a_line_about_a_value_is_true(method: str, words: str, holds: Callable[[Values], bool]) -> None:
    assert len([line for line in trainables.departures(method) if words in line]) == 1
    assert holds(values_of(method))


def test_draws_on_tiny_backbones_are_those_of_pondernet_s_line() -> None:
    space = importlib.import_module("search_spaces.pondernet")
    assert space.MINI_FIXED["sample_draws"] == 5
    assert any("the mean of 5 draws" in line for line in trainables.departures("pondernet"))


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


def test_a_pair_of_two_long_texts_may_keep_one_token_more_of_its_second() -> None:
    assert (cut_here(99, 195, 128), cut_by_the_original(99, 195, 125)) == ((62, 63), (63, 62))
    assert any("one more token of its second text" in line for line in trainables.departures("electra-small"))
