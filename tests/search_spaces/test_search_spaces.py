"""Every search space fits its method. Run: pytest tests/search_spaces/test_search_spaces.py"""

import importlib
import itertools
import math
import subprocess
import sys

import pytest
from helpers.configurations import config_of, values_of
from optuna.distributions import BaseDistribution

import search_spaces
import trainables
from search_spaces import alectra_small
from trainables.data.tasks import TASKS, TRAINABLE_TASKS
from trainables.encoders.backbones import MINI_BACKBONES
from trainables.encoders.published_sizes import PUBLISHED_SIZES

EVERY_METHOD = pytest.mark.parametrize("method", search_spaces.available())


def fields_of(method):
    return set(trainables.load(method).Config.__struct_fields__)


def test_methods_and_search_spaces_are_twins():
    assert search_spaces.available() == trainables.available()
    named = {"albert", "alectra-small", "electra-small", "pabee", "palbert", "pondernet", "sharebert"}
    assert set(search_spaces.available()) >= named


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
    assert all(set(fields) <= set(space.fixed) for fields in space.fixed_by_task.values())


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


def combinations_of(menus):
    """Every way to take one value of each field's menu."""
    return [dict(zip(menus, values)) for values in itertools.product(*menus.values())]


def corners_of(ranges):
    """Every combination of choices and ends of ranges."""
    return combinations_of({field: getattr(d, "choices", None) or (d.low, d.high) for field, d in ranges.items()})


@EVERY_METHOD
@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_every_point_known_and_every_corner_of_the_space_is_a_configuration(method, task):
    space = search_spaces.load(method)
    for point in [*space.published.get(task, ()), *combinations_of(space.paper_grid), *corners_of(space.space)]:
        config_of(method, task, **point).check_task(TASKS[task])


@EVERY_METHOD
def test_mini_ranges_and_grid_are_laid_over_tuned_fields(method):
    space = search_spaces.load(method)
    assert all(isinstance(distribution, BaseDistribution) for distribution in space.mini_space.values())
    assert set(space.mini_space) | set(space.mini_grid) <= set(space.space)


@EVERY_METHOD
def test_mini_fixed_names_fields_that_have_no_mini_range(method):
    space = search_spaces.load(method)
    assert set(space.mini_fixed) <= fields_of(method)
    assert not set(space.mini_fixed) & (set(space.mini_space) | set(space.mini_grid))


def tuned_on_mini(laid_over, values, space):
    """The papers' values with the mini ones over them, of the fields that are tuned on a tiny random backbone."""
    return {field: value for field, value in {**values, **laid_over}.items() if field not in space.mini_fixed}


@EVERY_METHOD
def test_mini_grid_lies_within_the_mini_ranges(method):
    space = search_spaces.load(method)
    ranges = tuned_on_mini(space.mini_space, space.space, space)
    grid = tuned_on_mini(space.mini_grid, space.paper_grid, space)
    assert set(grid) == set(ranges)
    for field, values in grid.items():
        assert all(contained(ranges[field], value) for value in values), field


@EVERY_METHOD
@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_every_corner_of_the_mini_ranges_is_a_configuration(method, task):
    space = search_spaces.load(method)
    for point in corners_of(tuned_on_mini(space.mini_space, space.space, space)):
        config_of(method, task, **space.mini_fixed, **point).check_task(TASKS[task])


@EVERY_METHOD
def test_backbones_of_both_profiles_are_named(method):
    backbone = search_spaces.load(method).backbone
    assert backbone["mini"] in MINI_BACKBONES and ("/" in backbone["paper"] or backbone["paper"] in PUBLISHED_SIZES)


@pytest.mark.parametrize(
    ("method", "size"),
    [("albert", 12), ("pabee", 12), ("pondernet", 12), ("palbert", 36), ("electra-small", 4), ("alectra-small", 9)],
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
    epochs = {task: values_of("electra-small", task)["epochs"] for task in ("cola", "rte", "stsb")}
    assert epochs == {"cola": 3, "rte": 10, "stsb": 10}


def test_electra_small_s_values_are_the_released_code_s():
    """google-research/electra at 8a46635: configure_finetuning.py, and eps and clip_norm of model/optimization.py."""
    values = values_of("electra-small", "cola")
    released = dict(learning_rate=1e-4, batch_size=32, epochs=3, weight_decay=0.01, layer_decay=0.8, warmup_ratio=0.1)
    released |= dict(max_length=128, classifier_dropout=0.1, hidden_dropout=0.1, adam_epsilon=1e-6, gradient_clip=1.0)
    assert {field: values[field] for field in released} == released
    assert (values["head"], values["layer_decay_convention"]) == ("first_token", "released")
    assert (values["schedule"], values["select"]) == ("linear_from_start", "last")


def test_the_last_epoch_is_selected_where_the_original_evaluates_once():
    methods = ("albert", "pabee", "pondernet", "palbert", "electra-small")
    selected = [search_spaces.load(method).fixed["select"] for method in methods]
    assert selected == ["best", "best", "best", "best", "last"]


def test_pondernet_draws_once_and_more_often_on_tiny_backbones():
    space = search_spaces.load("pondernet")
    assert (space.fixed["sample_draws"], space.mini_fixed["sample_draws"]) == (1, 5)


def test_alectra_small_s_first_points_are_the_readme_s():
    """shoarora/lmtuners at 86f31ba, experiments/disc_lm_small/README.md: batch size, epochs, learning rate."""
    readme = {
        "cola": (32, 10, 2e-5),
        "mnli": (32, 3, 1e-4),
        "mrpc": (128, 10, 1e-4),
        "qnli": (32, 3, 5e-5),
        "qqp": (32, 10, 5e-5),
        "rte": (32, 5, 1e-4),
        "sst2": (16, 3, 5e-5),
        "stsb": (16, 3, 1e-4),
    }
    published = search_spaces.load("alectra-small").published
    assert set(published) == set(readme)
    for task, (batch_size, epochs, learning_rate) in readme.items():
        assert published[task] == [{"batch_size": batch_size, "learning_rate": learning_rate}]
        assert values_of("alectra-small", task)["epochs"] == epochs


def test_sharebert_is_fine_tuned_by_the_one_command_of_its_readme():
    """jchenghu/sharebert at 6530e06, README.md."""
    space = search_spaces.load("sharebert")
    command = dict(learning_rate=5e-5, batch_size=64, epochs=5, weight_decay=0.01, gradient_clip=1.0, max_length=128)
    command |= dict(schedule="polynomial", warmup_steps=50)
    assert not space.space and {field: space.fixed[field] for field in command} == command


@EVERY_METHOD
def test_a_tokenizer_is_named_for_both_profiles_or_for_none(method):
    module = importlib.import_module(f"search_spaces.{method.replace('-', '_')}")
    tokenizer = getattr(module, "TOKENIZER", {"mini": None, "paper": None})
    assert set(tokenizer) == {"mini", "paper"} == set(module.BACKBONE)


def test_alectra_small_s_tokenizer_is_bert_s():
    assert alectra_small.TOKENIZER == {"mini": None, "paper": "google-bert/bert-base-uncased"}


def test_unknown_method_is_refused_with_the_list():
    with pytest.raises(
        ValueError, match="no method named 'bert'; available: albert, alectra-small, electra-small, pabee"
    ):
        search_spaces.load("bert")


def test_search_spaces_import_neither_torch_nor_ray_nor_a_method():
    code = "import sys, search_spaces as s; [s.load(m) for m in s.available()]; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "ray", "mlflow", "transformers"} & set(modules)
    assert {name for name in modules if name.startswith("trainables")} <= {
        "trainables",
        "trainables.schema",
        "trainables.spelling",
    }
