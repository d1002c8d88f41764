"""Values that configurations refuse, in one line. Run: pytest tests/trainables/configuration/test_configuration.py"""

import json
import re

import pytest
from helpers.configurations import config_of

import trainables
from search_spaces import _every_method
from study import launch
from trainables.configuration import list_defaults
from trainables.data.tasks import TASKS


@pytest.mark.parametrize("method", trainables.list_methods())
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("learning_rate", 0.0, "learning_rate is 0.0; allowed: a number > 0.0"),
        ("learning_rate", "fast", "learning_rate is 'fast'; allowed: a number"),
        ("learning_rate", float("nan"), "learning_rate is nan; allowed: a number > 0.0"),
        ("weight_decay", float("inf"), "weight_decay is inf; allowed: a finite number"),
        ("batch_size", 0, "batch_size is 0; allowed: a whole number >= 1"),
        ("batch_size", 16.5, "batch_size is 16.5; allowed: a whole number"),
        ("epochs", True, "epochs is True; allowed: a whole number"),
        ("stop_after", -1, "stop_after is -1; allowed: a whole number >= 0"),
        ("select", "first", "select is 'first'; allowed: best, last"),
        ("weight_decay", -0.1, "weight_decay is -0.1; allowed: a number >= 0.0"),
        (
            "schedule",
            "step",
            "schedule is 'step'; allowed: constant, cosine, .*",
        ),
        (
            "schedule",
            "constant_with_warmup",
            "schedule is 'constant_with_warmup'; allowed: constant, cosine, .*",
        ),
        ("gradient_accumulation", 0, "gradient_accumulation is 0; allowed: a whole number >= 1"),
        ("decay_power", 0.0, "decay_power is 0.0; allowed: a number > 0.0"),
        ("warmup_ratio", 1.0, "warmup_ratio is 1.0; allowed: a number >= 0 and < 1"),
        ("classifier_dropout", 1.0, "classifier_dropout is 1.0; allowed: a number >= 0 and < 1"),
        ("layer_decay", 0.0, "layer_decay is 0.0; allowed: a number > 0 and <= 1"),
        ("batch_size", 10**12, "batch_size is 1000000000000; allowed: a whole number >= 1 and <= 1000000000"),
        ("max_length", 2, "max_length is 2; allowed: a whole number >= 3"),
        (
            "precision",
            "float64",
            "precision is 'float64'; allowed: .*; did you mean .*[?]",
        ),
    ],
)
def test_bad_value_of_a_shared_field(method, field, value, message):
    with pytest.raises(ValueError, match=f"^{method}: {message}$"):
        config_of(method, **{field: value})


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("palbert", {"lambda_layer_arch": "gru"}, "allowed: linear, linear_cat, linear_diff, rnn"),
        ("palbert", {"num_lambda_layers": -1}, "num_lambda_layers is -1; allowed: a whole number >= 0"),
        ("palbert", {"lambda_learning_rate": 0.0}, "lambda_learning_rate is 0.0"),
        ("palbert", {"beta": 0}, "beta is 0; allowed: a number > 0.0"),
        ("palbert", {"prior_lambda": 1.0}, "prior_lambda is 1.0; allowed: a number > 0 and < 1"),
        ("palbert", {"epsilon": 0.0}, "epsilon is 0.0; allowed: a number > 0 and < 1"),
        ("palbert", {"kl_direction": "both"}, "allowed: posterior_prior, prior_posterior"),
        ("palbert", {"posterior_tail": "cut"}, "allowed: constant, drop, remainder"),
        ("palbert", {"lambda_bias_init": "zero"}, "allowed: default, prior"),
        ("palbert", {"exit": "never"}, "allowed: expectation, expectation_legacy, last, sample, threshold"),
        ("palbert", {"q": 1.5}, "q is 1.5; allowed: a number >= 0 and <= 1"),
        ("palbert", {"q": -1}, "q is -1; allowed: a number >= 0 and <= 1"),
        ("palbert", {"q": None}, "q must be set when exit is threshold"),
        ("palbert", {"exit": "last"}, "q is 0.5 .* exit is threshold; .* null"),
        ("palbert", {"sample_draws": 5}, "sample_draws is 5 .* exit is sample; .* null"),
        ("pondernet", {"sample_draws": 0}, "sample_draws is 0; allowed: a whole number >= 1"),
        ("pondernet", {"q": 0.5}, "no field named q; available: .*sample_draws"),
        (
            "albert",
            {"batch_size": 4, "gradient_accumulation": 5},
            r"gradient_accumulation is 5; allowed: at most batch_size \(4\)",
        ),
        ("albert", {"schedule": "polynomial"}, "decay_power must be set .* polynomial"),
        (
            "albert",
            {"decay_power": 2.0},
            "decay_power is 2.0 .* schedule is polynomial",
        ),
        ("pabee", {"patience": 0}, "patience is 0; allowed: a whole number >= 1"),
        ("pabee", {"regression_threshold": 0}, "regression_threshold is 0; allowed: a number > 0.0"),
        ("electra-small", {"head": "mean"}, "allowed: first_token, pooled"),
        ("electra-small", {"layer_decay_convention": "hf"}, "allowed: paper, released"),
    ],
)
def test_bad_value_of_a_method_s_own_field(method, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        config_of(method, **changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", trainables.list_methods())
def test_no_stopping_early_where_the_last_epoch_is_selected(method):
    with pytest.raises(ValueError, match=f"^{method}: stop_after is 2, .* select is last$"):
        config_of(method, select="last", stop_after=2)


@pytest.mark.parametrize("method", trainables.list_methods())
def test_a_warm_up_is_a_share_or_steps(method):
    assert config_of(method, warmup_ratio=0.0, warmup_steps=50).warmup_steps == 50
    with pytest.raises(ValueError, match=f"^{method}: warmup_steps is 50, .* warmup_ratio is set$"):
        config_of(method, warmup_ratio=0.1, warmup_steps=50)


MISPLACED_THRESHOLD = pytest.mark.parametrize(
    ("task", "setting", "message"),
    [
        ("rte", 0.3, "is 0.3 but is used only when labels are scores (RTE has classes); set it to null"),
        ("stsb", None, "must be set when labels are scores (STS-B has scores)"),
    ],
)


@MISPLACED_THRESHOLD
def test_threshold_of_agreement_is_for_scores_alone(task, setting, message):
    config = config_of("pabee", regression_threshold=setting)
    with pytest.raises(ValueError, match=f"^regression_threshold {re.escape(message)}$"):
        trainables.load_method("pabee").build(config, None, TASKS[task])


@MISPLACED_THRESHOLD
def test_misplaced_threshold_is_refused_before_anything_is_made(task, setting, message, tmp_path, capsys):
    field = f"regression_threshold={json.dumps(setting)}"
    assert launch.main(["--method", "pabee", "--task", task, "--set", field, "--out", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == f"study.launch: regression_threshold {message}\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("method", trainables.list_methods())
def test_every_field_but_later_ones_must_be_given(method):
    defaults = {"pooling": "pooler", "gradient_accumulation": 1}
    assert list_defaults(trainables.load_method(method).Config) == defaults
    assert {name: _every_method.FIXED[name] for name in defaults} == defaults
