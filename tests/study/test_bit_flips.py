"""One flipped bit changes no number without a word: pytest tests/study/test_bit_flips.py

The long form is `make soak`.
"""

from __future__ import annotations

import pytest
from helpers.bit_flips import FAULTS, run_flips

pytestmark = [pytest.mark.slow, pytest.mark.long]

KINDS = ("weights", "state", "predictions", "events.jsonl", "tokenizer", "clock.json")


@pytest.mark.parametrize("way", ["local", "local, --storage URI"])
def test_study_with_flipped_bit_ends_same_or_names_it(tmp_path, way):
    more = ["--seeds", "1", "--epochs", "3"]
    flips = run_flips(tmp_path, way, flips=len(KINDS), seed=5, kinds=KINDS, more=more)
    assert [str(flip) for flip in flips if flip.outcome in FAULTS] == []
