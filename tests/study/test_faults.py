"""What the machine does to a study changes nothing in it: pytest tests/study/test_faults.py (long form: make soak)"""

import pytest
from helpers.faults import ARGUMENTS, check_undisturbed, run_faulty

from analysis.verify import verify

pytestmark = pytest.mark.slow

SMALL = [*ARGUMENTS, "--samples", "2", "--seeds", "1", "--epochs", "5"]


def test_faults_of_the_machine_fail_no_trial_and_change_no_number(tmp_path):
    study = run_faulty(tmp_path / "faulty", SMALL, faults=4, epochs=15, seed=0)
    assert set(study.caused) == {"data away", "storage away", "disk full", "damaged state"}
    assert check_undisturbed(study.folder, tmp_path / "cache") == 3
    assert verify(study.folder) == []
