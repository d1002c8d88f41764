"""python -m pytest tests/analysis/test_importance.py"""

import sys

import numpy as np
import pytest
from helpers import made_studies
from helpers.made_studies import record, write_study

from analysis.statistics.importance import importances, tuned_fields
from analysis.studies.joined import rows_of
from analysis.studies.load import load_study
from study.plans.resolved_plan import Range

SPACE = {
    "rate": Range(name="FloatDistribution", attributes={"low": 1e-5, "high": 5e-5, "log": True}),
    "size": Range(name="CategoricalDistribution", attributes={"choices": [16, 32, 64, 128]}),
}


@pytest.fixture(autouse=True)
def two_tuned_fields(monkeypatch):
    monkeypatch.setattr(made_studies, "SPACE", SPACE)


def search_of_two_fields(folder, *, trials=16, stopped=0):
    """Trials whose score depends on the learning rate alone; the last are stopped."""
    rng = np.random.default_rng(1)
    grid = [(rate, size) for rate in np.geomspace(1e-5, 5e-5, 4).tolist() for size in (16, 32, 64, 128)]
    records = [
        record(
            "palbert",
            "rte",
            0.9 - 4_000 * rate + 0.001 * rng.random(),
            phase="search",
            seed=i,
            trial=i,
            config={"rate": rate, "size": size, "epochs": 3},
            status="stopped" if i >= trials - stopped else "completed",
        )
        for i, (rate, size) in enumerate(grid[:trials])
    ]
    return rows_of([load_study(write_study(folder, records, config={"epochs": 3}))])[0]


def test_importance_is_that_of_the_field_that_matters(tmp_path):
    row = search_of_two_fields(tmp_path)
    assert tuned_fields(row) == ["rate", "size"]
    found = importances(row)
    assert list(found) == ["rate", "size"]
    assert found["rate"].share > 0.8
    assert sum(importance.share for importance in found.values()) == pytest.approx(1)


def test_importance_has_bounds_that_hold_it_apart_from_the_other_field(tmp_path):
    found = importances(search_of_two_fields(tmp_path))
    assert 0 <= found["rate"].low < found["rate"].high <= 1
    assert found["rate"].low > found["size"].high


def test_stopped_trials_count(tmp_path):
    """The lowest rates have the best scores; without the twelve others, which were stopped, too few are left."""
    found = importances(search_of_two_fields(tmp_path, stopped=12))
    assert found["rate"].share > 0.8


def test_importance_of_a_handful_of_trials_is_not_claimed(tmp_path):
    assert importances(search_of_two_fields(tmp_path, trials=9)) == {}


def test_without_optuna_importances_are_left_out_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.warns(UserWarning, match="importances are left out: Optuna is not installed"):
        assert importances(search_of_two_fields(tmp_path)) == {}
