"""Values that configurations refuse, in one line. Run: pytest tests/trainables/configuration/test_configuration.py"""

import json

import pytest
from helpers.configurations import config_of
from helpers.messages import one_line

import trainables
from search_spaces import _every_method
from study import launch
from trainables.configuration import list_defaults
from trainables.data.tasks import TASKS


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 0.0},
        {"learning_rate": "fast"},
        {"learning_rate": float("nan")},
        {"weight_decay": float("inf")},
        {"batch_size": 0},
        {"batch_size": 16.5},
        {"epochs": True},
        {"stop_after": -1},
        {"select": "first"},
        {"select": "last", "stop_after": 2},
        {"weight_decay": -0.1},
        {"schedule": "step"},
        {"schedule": "constant_with_warmup"},
        {"gradient_accumulation": 0},
        {"decay_power": 0.0},
        {"warmup_ratio": 1.0},
        {"warmup_ratio": 0.1, "warmup_steps": 50},
        {"classifier_dropout": 1.0},
        {"layer_decay": 0.0},
        {"batch_size": 10**12},
        {"max_length": 2},
        {"precision": "float64"},
    ],
    ids=str,
)
def test_bad_value_of_a_shared_field(changes, snapshot):
    messages = set()
    for method in trainables.list_methods():
        with pytest.raises(ValueError) as raised:
            config_of(method, **changes)
        assert str(raised.value).startswith(f"{method}: ")
        messages.add(one_line(raised.value).removeprefix(f"{method}: "))
    (message,) = messages
    assert message == snapshot


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("palbert", {"lambda_layer_arch": "gru"}),
        ("palbert", {"num_lambda_layers": -1}),
        ("palbert", {"lambda_learning_rate": 0.0}),
        ("palbert", {"beta": 0}),
        ("palbert", {"prior_lambda": 1.0}),
        ("palbert", {"epsilon": 0.0}),
        ("palbert", {"kl_direction": "both"}),
        ("palbert", {"posterior_tail": "cut"}),
        ("palbert", {"lambda_bias_init": "zero"}),
        ("palbert", {"exit": "never"}),
        ("palbert", {"q": 1.5}),
        ("palbert", {"q": -1}),
        ("palbert", {"q": None}),
        ("palbert", {"exit": "last"}),
        ("palbert", {"sample_draws": 5}),
        ("pondernet", {"sample_draws": 0}),
        ("pondernet", {"q": 0.5}),
        ("albert", {"batch_size": 4, "gradient_accumulation": 5}),
        ("albert", {"schedule": "polynomial"}),
        ("albert", {"decay_power": 2.0}),
        ("pabee", {"patience": 0}),
        ("pabee", {"regression_threshold": 0}),
        ("electra-small", {"head": "mean"}),
        ("electra-small", {"layer_decay_convention": "hf"}),
    ],
    ids=str,
)
def test_bad_value_of_a_method_s_own_field(method, changes, snapshot):
    with pytest.raises(ValueError) as error:
        config_of(method, **changes)
    assert one_line(error.value) == snapshot


@pytest.mark.parametrize("method", trainables.list_methods())
def test_a_warm_up_is_a_share_or_steps(method):
    assert config_of(method, warmup_ratio=0.0, warmup_steps=50).warmup_steps == 50


MISPLACED_THRESHOLD = pytest.mark.parametrize(("task", "setting"), [("rte", 0.3), ("stsb", None)])


@MISPLACED_THRESHOLD
def test_misplaced_threshold_is_refused_before_anything_is_made(task, setting, tmp_path, capsys, snapshot):
    config = config_of("pabee", regression_threshold=setting)
    with pytest.raises(ValueError) as raised:
        trainables.load_method("pabee").build(config, None, TASKS[task])
    field = f"regression_threshold={json.dumps(setting)}"
    assert launch.main(["--method", "pabee", "--task", task, "--set", field, "--out", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == f"study.launch: {raised.value}\n" == snapshot
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("method", trainables.list_methods())
def test_every_field_but_later_ones_must_be_given(method):
    defaults = {"pooling": "pooler", "gradient_accumulation": 1}
    assert list_defaults(trainables.load_method(method).Config) == defaults
    assert {name: _every_method.FIXED[name] for name in defaults} == defaults
