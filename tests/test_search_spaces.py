"""Every search space fits its method. Run: pytest tests/test_search_spaces.py"""

import math
import subprocess
import sys

import pytest
from optuna.distributions import BaseDistribution

import search_spaces
import trainables
from trainables.data.tasks import TASKS, TRAINABLE_TASKS
from trainables.encoders.backbones import MINI_BACKBONES

EVERY_METHOD = pytest.mark.parametrize("method", search_spaces.available())


def fields_of(method):
    return set(trainables.load(method).Config.__dataclass_fields__)


def test_methods_and_search_spaces_are_twins():
    assert search_spaces.available() == trainables.available()
    assert set(search_spaces.available()) >= {"albert", "electra-small", "pabee", "palbert", "pondernet"}


@EVERY_METHOD
def test_space_and_fixed_fill_the_configuration_exactly(method):
    space = search_spaces.load(method)
    assert set(space.space) | set(space.fixed) == fields_of(method)
    assert not set(space.space) & set(space.fixed)


@EVERY_METHOD
def test_space_is_made_of_distributions(method):
    assert all(isinstance(distribution, BaseDistribution) for distribution in search_spaces.load(method).space.values())


@EVERY_METHOD
def test_fixed_by_task_names_tasks_and_fixed_fields(method):
    space = search_spaces.load(method)
    assert set(space.fixed_by_task) <= set(TRAINABLE_TASKS)
    for task, fields in space.fixed_by_task.items():
        assert set(fields) <= set(space.fixed)
        assert space.fixed_for(task) == {**space.fixed, **fields}


def contained(distribution, value):
    return distribution._contains(distribution.to_internal_repr(value))


@EVERY_METHOD
def test_grid_covers_the_space_s_fields_within_its_ranges(method):
    space = search_spaces.load(method)
    assert set(space.paper_grid) == set(space.space)
    for field, values in space.paper_grid.items():
        assert all(contained(space.space[field], value) for value in values), field


@EVERY_METHOD
def test_published_configurations_are_whole_points_of_the_space(method):
    space = search_spaces.load(method)
    assert set(space.published) <= set(TRAINABLE_TASKS)
    for points in space.published.values():
        for point in points:
            assert set(point) == set(space.space)
            assert all(contained(space.space[field], value) for field, value in point.items())


@EVERY_METHOD
def test_every_corner_of_the_space_is_a_configuration(method):
    space = search_spaces.load(method)
    config = trainables.load(method).Config
    for task in TRAINABLE_TASKS:
        for points in (space.published.get(task, ()), [{f: v[0] for f, v in space.paper_grid.items()}]):
            for point in points:
                config(**space.fixed_for(task), **point).check_task(TASKS[task])
    for field, distribution in space.space.items():
        ends = getattr(distribution, "choices", None) or (distribution.low, distribution.high)
        for value in ends:
            config(**space.fixed, **{f: values[0] for f, values in space.paper_grid.items()} | {field: value})


@EVERY_METHOD
def test_backbones_of_both_profiles_are_named(method):
    backbone = search_spaces.load(method).backbone
    assert backbone["mini"] in MINI_BACKBONES and "/" in backbone["paper"]


@pytest.mark.parametrize(
    ("method", "size"), [("albert", 12), ("pabee", 12), ("pondernet", 12), ("palbert", 36), ("electra-small", 4)]
)
def test_size_of_the_paper_s_grid(method, size):
    assert math.prod(len(values) for values in search_spaces.load(method).paper_grid.values()) == size


def test_protocol_of_the_palbert_paper():
    fixed = search_spaces.load("palbert").fixed
    assert (fixed["epochs"], fixed["stop_after"], fixed["q"], fixed["epsilon"]) == (25, 5, 0.5, 0.05)
    grid = search_spaces.load("palbert").paper_grid
    assert grid["learning_rate"] == [1e-5, 2e-5, 3e-5, 5e-5] and grid["batch_size"] == [16, 32, 128]
    assert grid["lambda_learning_rate"] == [1e-5, 2e-5, 3e-5] and grid["beta"] == [0.5]


def test_electra_small_trains_longer_on_rte_and_stsb():
    space = search_spaces.load("electra-small")
    assert {task: space.fixed_for(task)["epochs"] for task in ("cola", "rte", "stsb")} == {
        "cola": 3,
        "rte": 10,
        "stsb": 10,
    }


def test_unknown_method_is_refused_with_the_list():
    with pytest.raises(ValueError, match="no method named 'bert'; available: albert, electra-small, pabee"):
        search_spaces.load("bert")


def test_search_spaces_import_neither_torch_nor_ray():
    code = "import sys, search_spaces as s; [s.load(m) for m in s.available()]; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "ray", "mlflow", "transformers", "trainables"} & set(modules)
