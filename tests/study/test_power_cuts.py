"""A study that loses its machine ends as if it had not: pytest tests/study/test_power_cuts.py

The long form is `make soak`.
"""

import pytest
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY
from helpers.power_cuts import differences_of, run_cut_off, small_study

pytestmark = [pytest.mark.slow, pytest.mark.long]


ARGUMENTS = small_study(epochs=3, seeds=2)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of the study to which nothing happens."""
    home = tmp_path_factory.mktemp("studies") / "undisturbed"
    return run_cut_off(home, [*ARGUMENTS, *WITHOUT_RAY], moments=[]).folder


@pytest.mark.parametrize("driver", ["ray", "local"])
def test_study_killed_in_search_and_confirm_ends_the_same(tmp_path, undisturbed, driver):
    """All of its processes at once: within the search, at its end, and within the confirm trials."""
    cut_off = run_cut_off(tmp_path / "cut-off", [*ARGUMENTS, "--driver", driver, *ONE_AT_A_TIME], moments=[2, 6, 8])
    assert cut_off.cuts == 3
    assert differences_of(cut_off.folder, undisturbed) == []
