"""The benchmark of fused seeds, in small: pytest tests/house/test_fused_seeds.py"""

import pytest
import torch

from benchmarks import fused_seeds

SMALL = fused_seeds.build_parser().parse_args(["--members", "2", "--rounds", "1"])


def test_fused_members_have_the_gradients_of_their_own():
    row = fused_seeds.measure("albert", 2, SMALL)  # checks them
    assert row["ratio"] > 0 and set(row["seconds"]) == {"one_by_one", "fused"}


def test_other_gradients_are_seen():
    with pytest.raises(AssertionError, match="weight: gradients are 1.0 apart"):
        fused_seeds.check_same([{"weight": torch.ones(2)}], [{"weight": torch.zeros(2)}])


def test_a_method_that_looks_at_the_data_cannot_be_fused():
    assert "data-dependent control flow" in fused_seeds.in_words(fused_seeds.measure("palbert", 2, SMALL))
