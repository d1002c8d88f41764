"""Nothing is lost and nothing runs twice, whatever is killed: pytest tests/test_kills.py (long form: make soak)"""

import random
from pathlib import Path

import pytest
from kills import KilledStudy, check_nothing_lost_or_doubled

pytestmark = pytest.mark.slow

ARGUMENTS = ["--method", "albert", "--task", "rte,cola", "--sampler", "grid", "--samples", "4", "--seeds", "3"]
ARGUMENTS += ["--profile", "mini", "--epochs", "4", "--max-failures", "100"]


def run(folder: Path, *, kills: int) -> KilledStudy:
    folder.parent.mkdir()
    study = KilledStudy(folder, ARGUMENTS, random.Random(0))
    study.run(kills)
    return study


def test_killing_launchers_workers_and_nodes_loses_and_doubles_nothing(tmp_path):
    uninterrupted, killed = tmp_path / "uninterrupted" / "study", tmp_path / "killed" / "study"
    run(uninterrupted, kills=0)
    study = run(killed, kills=10)
    assert sum(study.killed.values()) >= 10, study.killed
    counts = check_nothing_lost_or_doubled(killed, uninterrupted)
    assert counts["equal"] >= 2 and counts["rungs"] >= 8, counts
