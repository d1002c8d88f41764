"""Every search space fits its method. Run: pytest tests/search_spaces/test_search_spaces.py"""

import math
import subprocess
import sys

import pytest
from helpers.configurations import values_of

import search_spaces
import trainables
from search_spaces import alectra_small
from study.contract.space_rules import POINT_RULES, RULES, Method
from trainables.data.tasks import GLUE_TASKS

NO_ENTROPY = "deebert needs classes to compute an entropy; STS-B has scores"
EVERY_METHOD = pytest.mark.parametrize("method", search_spaces.list_methods())


def test_methods_and_search_spaces_are_twins():
    assert search_spaces.list_methods() == trainables.list_methods()
    named = {"albert", "alectra-small", "electra-small", "pabee", "palbert", "pondernet", "sharebert"}
    assert set(search_spaces.list_methods()) >= named


@pytest.mark.slow
@EVERY_METHOD
@pytest.mark.parametrize("rule", (*RULES, *POINT_RULES), ids=lambda rule: rule.__name__)
def test_the_two_files_of_a_method_fit_each_other(method, rule):
    assert list(rule(Method(method))) == []


@EVERY_METHOD
@pytest.mark.parametrize("task", GLUE_TASKS)
def test_methods_support_tasks_but_entropy_needs_classes(method, task):
    refused = Method(method).refuses(task)
    assert refused == (NO_ENTROPY if (method, task) == ("deebert", "stsb") else None)


@pytest.mark.parametrize(
    ("method", "size"),
    [("albert", 12), ("pabee", 12), ("pondernet", 12), ("palbert", 36), ("electra-small", 4), ("alectra-small", 9)],
)
def test_size_of_the_paper_s_grid(method, size):
    assert math.prod(len(values) for values in search_spaces.load_space(method).paper_grid.values()) == size


def test_protocol_of_the_palbert_paper():
    fixed = search_spaces.load_space("palbert").fixed
    assert (fixed["epochs"], fixed["stop_after"], fixed["q"], fixed["epsilon"]) == (25, 5, 0.5, 0.05)
    grid = search_spaces.load_space("palbert").paper_grid
    assert grid["learning_rate"] == [1e-5, 2e-5, 3e-5, 5e-5] and grid["batch_size"] == [16, 32, 128]
    assert grid["lambda_learning_rate"] == [1e-5, 2e-5, 3e-5] and grid["beta"] == [0.5]


def test_electra_small_trains_longer_on_rte_and_stsb():
    epochs = {task: values_of("electra-small", task)["epochs"] for task in ("cola", "rte", "stsb")}
    assert epochs == {"cola": 3, "rte": 10, "stsb": 10}


def test_electra_small_s_values_are_the_released_code_s():
    """google-research/electra at 8a46635: configure_finetuning.py, and eps and clip_norm of model/optimization.py."""
    values = values_of("electra-small", "cola")
    released = {
        "learning_rate": 1e-4,
        "batch_size": 32,
        "epochs": 3,
        "weight_decay": 0.01,
        "layer_decay": 0.8,
        "warmup_ratio": 0.1,
    }
    released |= {
        "max_length": 128,
        "classifier_dropout": 0.1,
        "hidden_dropout": 0.1,
        "adam_epsilon": 1e-6,
        "gradient_clip": 1.0,
    }
    assert {field: values[field] for field in released} == released
    assert (values["head"], values["layer_decay_convention"]) == ("first_token", "released")
    assert (values["schedule"], values["select"]) == ("linear_from_start", "last")


def test_the_last_epoch_is_selected_where_the_original_evaluates_once():
    methods = ("albert", "pabee", "pondernet", "palbert", "electra-small")
    selected = [search_spaces.load_space(method).fixed["select"] for method in methods]
    assert selected == ["best", "best", "best", "best", "last"]


def test_pondernet_draws_once_and_more_often_on_tiny_backbones():
    space = search_spaces.load_space("pondernet")
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
    published = search_spaces.load_space("alectra-small").published
    assert set(published) == set(readme)
    for task, (batch_size, epochs, learning_rate) in readme.items():
        assert published[task] == [{"batch_size": batch_size, "learning_rate": learning_rate}]
        assert values_of("alectra-small", task)["epochs"] == epochs


def test_sharebert_is_fine_tuned_by_the_one_command_of_its_readme():
    """jchenghu/sharebert at e54fe72, README.md."""
    space = search_spaces.load_space("sharebert")
    command = {
        "learning_rate": 5e-5,
        "batch_size": 64,
        "epochs": 5,
        "weight_decay": 0.01,
        "gradient_clip": 1.0,
        "max_length": 128,
    }
    command |= {"schedule": "polynomial", "warmup_steps": 50}
    assert not space.space and {field: space.fixed[field] for field in command} == command


def test_alectra_small_s_tokenizer_is_bert_s():
    assert alectra_small.TOKENIZER == {"mini": None, "paper": "google-bert/bert-base-uncased"}


def test_unknown_method_is_refused_with_the_list(snapshot):
    with pytest.raises(ValueError) as raised:
        search_spaces.load_space("bert")
    assert str(raised.value) == snapshot


def test_search_spaces_import_neither_torch_nor_ray_nor_a_method():
    code = "import sys, search_spaces as s; [s.load_space(m) for m in s.list_methods()]; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "ray", "mlflow", "transformers"} & set(modules)
    assert {name for name in modules if name.startswith("trainables")} <= {
        "trainables",
        "trainables.encoders",
        "trainables.encoders.architectures",
        "trainables.files.atomic_files",
        "trainables.files.method_files",
        "trainables.configuration",
        "trainables.configuration.ranges",
        "trainables.configuration.schema",
        "trainables.files",
        "trainables.files.sources",
        "trainables.configuration.spelling",
    }
