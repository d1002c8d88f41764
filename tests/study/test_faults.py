"""What the machine does to a study changes nothing in it: pytest tests/study/test_faults.py (long form: make soak)"""

import pytest
from helpers.faults import ARGUMENTS, check_undisturbed, run_faulty

from analysis.verify import verify

pytestmark = pytest.mark.slow

SMALL = [*ARGUMENTS, "--samples", "2", "--seeds", "2", "--epochs", "6"]


def test_faults_of_the_machine_fail_no_trial_and_change_no_number(tmp_path):
    undisturbed = run_faulty(tmp_path / "undisturbed", SMALL, faults=0, seed=0)
    study = run_faulty(tmp_path / "faulty", SMALL, faults=7, epochs=undisturbed.epochs(), seed=0)
    assert set(study.caused) == set(study.kinds), study.caused
    assert check_undisturbed(study.folder, undisturbed.folder)["equal"] == 4
    assert verify(study.folder) == []
