"""A study that loses its machine while it pretrains ends as if it had not: pytest tests/study/test_power_cuts.py

The long form is `make soak`.
"""

import pytest
from helpers.launches import ONE_AT_A_TIME
from helpers.power_cuts import differences_of, pretraining_study, run_cut_off

from study.facts.record import read_records

pytestmark = pytest.mark.slow


def test_a_study_that_is_killed_while_it_pretrains_and_while_it_tunes_ends_the_same(tmp_path):
    """All of its processes at once: within the pretraining, at the pretraining's end, and within the search."""
    arguments = pretraining_study(steps=40, epochs=2, seeds=1)
    cut_off = run_cut_off(tmp_path / "cut-off", arguments, moments=[2, 4, 6])
    undisturbed = run_cut_off(tmp_path / "undisturbed", [*arguments, *ONE_AT_A_TIME], moments=[])
    assert cut_off.cuts == 3
    assert differences_of(cut_off.folder, undisturbed.folder) == []
    pretrained = read_records(cut_off.folder / "records.jsonl")[0]
    sizes = f"40 steps of 32 examples, {pretrained.metrics['tokens']:,.0f} tokens"
    caption = (cut_off.folder / "tables" / "dev.md").read_text()
    assert f"pretrained by albert-mlm/pretraining on corpus mini ({sizes}; " in caption
    assert " by the clock on CPU, shared by 1 arm; " in caption
