"""The benchmark against an earlier commit, in small: pytest tests/house/test_against_commit.py"""

import subprocess

import pytest

from benchmarks import against_commit

is_repository = subprocess.run(["git", "rev-parse"], cwd=against_commit.ROOT, capture_output=True).returncode == 0
pytestmark = pytest.mark.skipif(not is_repository, reason=f"{against_commit.ROOT} is no git repository")


@pytest.mark.long
@pytest.mark.slow
def test_the_same_commit_trains_the_same_trial(tmp_path):
    against_commit.extract("HEAD", tmp_path / "before")
    trees = {"before": tmp_path / "before", "now": tmp_path / "before"}
    arguments = against_commit.build_parser().parse_args(["HEAD", "--task", "cola", "--epochs", "1", "--rounds", "1"])
    row = against_commit.compared("albert", trees, tmp_path, arguments)
    assert all(row["before"][result] == row["now"][result] for result in ("score", "train_loss"))
    assert all(row["ratios"][what] > 0 for what in against_commit.TIMED)


def test_a_commit_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"commit 'nowhere': .*; allowed: a commit of the repository in"):
        against_commit.extract("nowhere", tmp_path / "before")
