"""What the machine does to a study changes nothing in it: pytest tests/study/test_faults.py (long form: make soak)"""

import pytest
from helpers.faults import ARGUMENTS, run_faulty
from helpers.trials import check_as_alone

from analysis.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.long]

SMALL = [*ARGUMENTS, "--samples", "1", "--epochs", "4"]


@pytest.mark.parametrize("driver", ["ray", "local"])
def test_faults_of_the_machine_fail_no_trial_and_change_no_number(tmp_path, driver):
    how = {"driver": driver, "seeds": 2, "faults": 5, "epochs": 12, "seed": 0, "away_seconds": 2}
    study = run_faulty(tmp_path / "faulty", SMALL, **how)
    assert set(study.caused) == {"clock jumps", "data away", "storage away", "disk full", "damaged state"}
    assert set(check_as_alone(study.folder, tmp_path / "cache")) == {"completed"}
    assert (study.folder / "tables" / "dev.csv").exists() and verify(study.folder) == []
