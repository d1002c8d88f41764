"""Values that configurations refuse, in one line. Run: pytest tests/test_config.py"""

import dataclasses
import json

import pytest

import search_spaces
import trainables
from study import launch
from trainables.data.tasks import TASKS


def config_of(method, **changes):
    space = search_spaces.load(method)
    values = dict(space.fixed) | {field: values[0] for field, values in space.paper_grid.items()}
    return trainables.load(method).Config(**(values | changes))


@pytest.mark.parametrize("method", trainables.available())
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("learning_rate", 0.0, "learning_rate is 0.0; it must be a number above 0"),
        ("learning_rate", "fast", "learning_rate is 'fast'; it must be a number above 0"),
        ("learning_rate", float("nan"), "learning_rate is nan; it must be a number above 0"),
        ("batch_size", 0, "batch_size is 0; it must be a whole number, at least 1"),
        ("batch_size", 16.5, "batch_size is 16.5; it must be a whole number, at least 1"),
        ("epochs", True, "epochs is True; it must be a whole number, at least 1"),
        ("stop_after", -1, "stop_after is -1; it must be a whole number, at least 0"),
        ("weight_decay", -0.1, "weight_decay is -0.1; it must be a number, at least 0"),
        ("schedule", "cosine", "schedule is 'cosine'; it must be one of: constant, linear, linear_from_start"),
        ("warmup_ratio", 1.0, "warmup_ratio is 1.0; it must be at least 0 and below 1"),
        ("classifier_dropout", 1.0, "classifier_dropout is 1.0; it must be at least 0 and below 1"),
        ("layer_decay", 0.0, "layer_decay is 0.0; it must be above 0 and at most 1"),
        ("max_length", 2, "max_length is 2; it must be a whole number, at least 3"),
        ("precision", "float16", "precision is 'float16'; it must be one of: float32, bfloat16"),
    ],
)
def test_bad_value_of_a_shared_field(method, field, value, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        config_of(method, **{field: value})


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("palbert", {"lambda_layer_arch": "gru"}, "must be one of: linear, linear_cat, linear_diff, rnn"),
        ("palbert", {"num_lambda_layers": -1}, "num_lambda_layers is -1; it must be a whole number, at least 0"),
        ("palbert", {"lambda_layer_arch": "rnn", "num_lambda_layers": 0}, "num_lambda_layers is 0; .* at least 1"),
        ("palbert", {"lambda_learning_rate": 0.0}, "lambda_learning_rate is 0.0"),
        ("palbert", {"beta": 0}, "beta is 0; it must be a number above 0"),
        ("palbert", {"prior_lambda": 1.0}, "prior_lambda is 1.0; it must be above 0 and below 1"),
        ("palbert", {"epsilon": 0.0}, "epsilon is 0.0; it must be above 0 and below 1"),
        ("palbert", {"kl_direction": "both"}, "must be one of: prior_posterior, posterior_prior"),
        ("palbert", {"posterior_tail": "cut"}, "must be one of: constant, drop, remainder"),
        ("palbert", {"lambda_bias_init": "zero"}, "must be one of: default, prior"),
        ("palbert", {"exit": "never"}, "must be one of: threshold, sample, expectation, expectation_legacy, last"),
        ("palbert", {"q": 1.5}, "q is 1.5; it must be from 0"),
        ("palbert", {"q": None}, "q must be set when exit is threshold"),
        ("palbert", {"exit": "last"}, "q is 0.5 but is used only when exit is threshold; set it to null"),
        ("palbert", {"sample_draws": 5}, "sample_draws is 5 but is used only when exit is sample; set it to null"),
        ("pondernet", {"sample_draws": 0}, "sample_draws is 0; it must be a whole number, at least 1"),
        ("pondernet", {"q": 0.5}, "q is 0.5 but is used only when exit is threshold; set it to null"),
        ("pabee", {"patience": 0}, "patience is 0; it must be a whole number, at least 1"),
        ("pabee", {"regression_threshold": 0}, "regression_threshold is 0; it must be a number above 0"),
        ("electra-small", {"head": "mean"}, "must be one of: first_token, pooled"),
        ("electra-small", {"layer_decay_convention": "hf"}, "must be one of: paper, released"),
    ],
)
def test_bad_value_of_a_method_s_own_field(method, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        config_of(method, **changes)
    assert "\n" not in str(error.value)


MISPLACED_THRESHOLD = pytest.mark.parametrize(
    ("task", "setting", "message"),
    [
        ("rte", 0.3, "is 0.3 but is used only when labels are scores, and RTE has classes; set it to null"),
        ("stsb", None, "must be set when labels are scores, and STS-B has scores"),
    ],
)


@MISPLACED_THRESHOLD
def test_threshold_of_agreement_is_for_scores_alone(task, setting, message):
    config = config_of("pabee", regression_threshold=setting)
    with pytest.raises(ValueError, match=f"^regression_threshold {message}$"):
        trainables.load("pabee").build(config, None, TASKS[task])


@MISPLACED_THRESHOLD
def test_misplaced_threshold_is_refused_before_anything_is_made(task, setting, message, tmp_path, capsys):
    field = f"regression_threshold={json.dumps(setting)}"
    assert launch.main(["--method", "pabee", "--task", task, "--set", field, "--out", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == f"study.launch: regression_threshold {message}\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("method", trainables.available())
def test_every_field_must_be_given(method):
    fields = dataclasses.fields(trainables.load(method).Config)
    assert all(field.default is dataclasses.MISSING for field in fields)
