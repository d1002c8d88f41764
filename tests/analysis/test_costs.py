"""python -m pytest tests/analysis/test_costs.py"""

import shutil

import pytest
from helpers.launched_studies import launch, mini_plan
from helpers.made_studies import arm, record, rows_in, write_study

from analysis.statistics.costs import Compute, choose_unit, row_ledger, warn_of_unlike_compute
from analysis.studies.cells import make_rows
from analysis.studies.load import load_studies
from analysis.tables import write_tables

PALBERT = arm("palbert", "rte", [0.7] * 5)


def warnings_of(folder, records):
    return warn_of_unlike_compute(row_ledger(rows_in(write_study(folder, records))))


def test_ledger_counts_stopped_and_failed_trials(tmp_path):
    records = arm("palbert", "rte", [0.7] * 5)
    records += [record("palbert", "rte", 0.6, seed=2, phase="search", status="stopped", gpu_seconds=60.0)]
    records += [record("palbert", "rte", None, seed=3, phase="search", gpu_seconds=20.0)]
    (entry,) = row_ledger(rows_in(write_study(tmp_path, records)))
    assert (entry.search.gpu_seconds, entry.confirm.gpu_seconds) == (200.0, 600.0)
    assert entry.trials == {"completed": 6, "stopped": 1, "failed": 1}
    assert entry.total.cpu_seconds == 0


def test_ledger_counts_a_failed_trial_that_ran_again(tmp_path):
    failed = record("palbert", "rte", None, gpu_seconds=50.0)
    records = [failed, *arm("palbert", "rte", [0.7] * 5)]
    (entry,) = row_ledger(rows_in(write_study(tmp_path, records)))
    assert entry.confirm.gpu_seconds == 650.0
    assert entry.trials == {"completed": 6, "failed": 1}


def test_failed_trial_that_a_copy_ran_again_is_paid_twice_in_any_order(tmp_path):
    plan = mini_plan(methods=("albert",), tasks=("rte",))
    launch(tmp_path / "a", plan, broken={6: "method"})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    launch(tmp_path / "b", plan, retry_failed=True)

    def pay(*names: str) -> Compute:
        (entry,) = row_ledger(make_rows(load_studies([tmp_path / name for name in names])))
        return entry.total

    assert pay("a") != pay("b") == pay("a", "b") == pay("b", "a")


def test_ledger_counts_the_trials_of_a_copied_study_once(tmp_path):
    one = write_study(tmp_path / "one", PALBERT)
    later = record("palbert", "rte", 0.6, seed=9, phase="search", started="2026-01-02T00:00:00.000000+00:00")
    two = write_study(tmp_path / "two", [*PALBERT, later])
    (entry,) = row_ledger(make_rows(load_studies([one, two])))
    assert (entry.search.gpu_seconds, entry.confirm.gpu_seconds) == (240.0, 600.0)


def test_ledger_is_wall_clock_where_no_gpu_was_used(tmp_path):
    (entry,) = row_ledger(rows_in(write_study(tmp_path, arm("palbert", "rte", [0.7] * 5, gpu_seconds=0.0))))
    assert (entry.total.gpu_seconds, entry.total.cpu_seconds) == (0.0, 720.0)


def test_gpu_and_cpu_time_are_told_apart_and_never_compared(tmp_path):
    records = arm("palbert", "rte", [0.7] * 5) + arm("albert", "rte", [0.7] * 5, gpu_seconds=0.0)
    (warning,) = warnings_of(tmp_path, records)
    assert "palbert 12 min of GPU, albert 12 min on CPU" in warning
    assert "not all rows ran on the same kind of device" in warning


@pytest.mark.parametrize(("seconds", "warned"), [(119.0, False), (90.0, True)])
def test_ledger_warns_when_two_rows_differ_by_more_than_20_percent(tmp_path, seconds, warned):
    records = arm("palbert", "rte", [0.7] * 5) + arm("albert", "rte", [0.7] * 5, gpu_seconds=seconds)
    words = "differs by more than 20 %: palbert used 12 min of GPU, but albert used 9 min of GPU"
    assert any(words in warning for warning in warnings_of(tmp_path, records)) == warned


def test_rows_with_fewer_seeds_or_an_unfinished_search_are_not_compared(tmp_path):
    begun = PALBERT + arm("albert", "rte", [0.7] * 3)
    assert warnings_of(tmp_path / "seeds", begun) == []
    failed = [record("albert", "rte", None, seed=seed, trial=seed - 42) for seed in (45, 46)]
    cheap = arm("albert", "rte", [0.7] * 3, gpu_seconds=60.0)
    assert len(warnings_of(tmp_path / "failed", [*PALBERT, *cheap, *failed])) == 1
    searching = write_study(tmp_path / "search", PALBERT + arm("albert", "rte", [0.7] * 5, gpu_seconds=60.0), samples=8)
    assert warn_of_unlike_compute(row_ledger(rows_in(searching))) == []


def test_wall_time_is_told_to_include_other_load(tmp_path):
    records = arm("palbert", "rte", [0.7] * 5, gpu_seconds=0.0)
    records += arm("albert", "rte", [0.7] * 5, gpu_seconds=0.0, wall_seconds=90.0)
    (warning,) = warnings_of(tmp_path, records)
    assert warning == (
        "compute on the tasks that all rows have finished differs by more than 20 % (wall-clock time, on a "
        "machine that may have had other work): palbert used 12 min on CPU, but albert used 9 min on CPU"
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((0.305, 40.7), ["0.305 s of GPU", "40.7 s of GPU"]),
        ((0.01, 62.0), ["<0.001 min of GPU", "1.03 min of GPU"]),
        ((999.7 * 3600,), ["1,000 h of GPU"]),
        ((30.0, 5400.0), ["0.00833 h of GPU", "1.5 h of GPU"]),
        ((3.6e6, 4.5e6), ["1,000 h of GPU", "1,250 h of GPU"]),
    ],
)
def test_times_beside_each_other_are_in_the_unit_of_the_largest(seconds, expected):
    computes = [Compute(own, 0.0) for own in seconds]
    assert [compute.describe(choose_unit(computes)) for compute in computes] == expected


@pytest.mark.parametrize(
    "records",
    [
        [*PALBERT, *arm("palbert", "cola", [0.7] * 5), *arm("albert", "rte", [0.7] * 5)],  # a task that one row lacks
        [*PALBERT, record("albert", "rte", 0.7, seed=1, phase="search")],  # a cell without a number yet
        [*PALBERT, record("albert", "rte", None, phase="search", gpu_seconds=0.0, wall_seconds=0.0)],  # spent nothing
    ],
)
def test_ledger_does_not_warn_of_what_is_not_to_be_compared(tmp_path, records):
    assert warnings_of(tmp_path, records) == []


SCORES = [0.70, 0.74, 0.71]


def test_exits_have_no_time(tmp_path):
    """Only table `times` has times."""
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES))], tmp_path)
    assert "time" not in (tmp_path / "exits.md").read_text()
