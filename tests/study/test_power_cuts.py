"""A study that loses its machine while it pretrains ends as if it had not: pytest tests/study/test_power_cuts.py

The long form is `make soak`.
"""

import pytest
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY
from helpers.power_cuts import differences_of, pretraining_study, run_cut_off

from study.facts.study_facts import read_records

pytestmark = [pytest.mark.slow, pytest.mark.long]


ARGUMENTS = pretraining_study(steps=40, epochs=2, seeds=1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of the study to which nothing happens."""
    home = tmp_path_factory.mktemp("studies") / "undisturbed"
    return run_cut_off(home, [*ARGUMENTS, *WITHOUT_RAY], moments=[]).folder


@pytest.mark.parametrize("driver", ["ray", "local"])
def test_a_study_that_is_killed_while_it_pretrains_and_while_it_tunes_ends_the_same(tmp_path, undisturbed, driver):
    """All of its processes at once: within the pretraining, at the pretraining's end, and within the search."""
    cut_off = run_cut_off(tmp_path / "cut-off", [*ARGUMENTS, "--driver", driver, *ONE_AT_A_TIME], moments=[2, 4, 6])
    assert cut_off.cuts == 3
    assert differences_of(cut_off.folder, undisturbed) == []
    pretrained = read_records(cut_off.folder)[0]
    sizes = f"40 steps of 32 examples, {pretrained.metrics['tokens']:,.0f} tokens"
    caption = (cut_off.folder / "tables" / "dev.md").read_text()
    assert f"pretrained by albert-mlm/pretraining on corpus mini ({sizes}; " in caption
    assert " by the clock on CPU, shared by 1 arm; " in caption
