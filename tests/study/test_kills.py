"""Whatever is killed, nothing is lost or run twice: pytest tests/study/test_kills.py (long form: make soak)"""

import pytest
from helpers.kills import check_nothing_lost_or_doubled, run_killed

pytestmark = [pytest.mark.slow, pytest.mark.long]

ARGUMENTS = ["--method", "albert", "--task", "rte", "--sampler", "grid", "--samples", "4", "--seeds", "4"]
ARGUMENTS += ["--profile", "mini", "--epochs", "7", "--max-failures", "100"]


@pytest.mark.parametrize("driver", ["ray", "local"])
def test_killing_launchers_workers_and_nodes_loses_and_doubles_nothing(tmp_path, driver):
    study = run_killed(tmp_path / "killed", ARGUMENTS, driver=driver, kills=6, epochs=30, seed=0)
    assert sum(study.killed.values()) == 6, study.killed
    counts = check_nothing_lost_or_doubled(study.folder, tmp_path / "cache")
    assert counts["equal"] >= 5 and counts["rungs"] >= 4, counts
