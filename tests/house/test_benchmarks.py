"""What the benchmarks of the study engine measure, in small: pytest tests/house/test_benchmarks.py"""

import importlib

import numpy as np
import pytest
from helpers.launched_studies import launched_study, mini_plan

from analysis.studies.load import load_studies
from analysis.tables import make_tables
from benchmarks import (
    attention,
    demonstration,
    early_exit_speed,
    exit_costs,
    overhead,
    scale,
    search_strategies,
    statistics,
    utilisation,
)
from benchmarks.random_texts import random_examples
from study.facts.journal import Journal
from study.facts.plan_file import require_plan
from trainables.data import mini_glue
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS
from trainables.models.exit_rules import Patience, apply_exit


def test_busy_is_the_share_of_four_slots():
    spans = [(0.0, 10.0), (0.0, 10.0), (5.0, 10.0), (5.0, 10.0)]
    assert utilisation.figures_of(spans) == {"epochs": 4, "seconds": 10.0, "busy": 0.75}


def test_a_slow_study_misses_its_targets():
    ours = {"seconds_per_trial": 0.2, "mean_report_ms": 6.0, "growth_mb": 9.0}
    theirs = {"seconds_per_trial": 0.9, "growth_mb": 8.0}
    assert [held for _, held in overhead.time_checks({"study": ours, "tune-reuse": theirs})] == [False] * 2
    assert [held for _, held in overhead.memory_checks({"study": ours, "tune-bare": theirs})] == [False]


@pytest.mark.parametrize(("theirs", "held"), [(1.5, True), (1.49, False)])
def test_ray_tune_with_reuse_takes_fifteen_times_as_long(theirs, held):
    medians = {"study": {"seconds_per_trial": 0.1, "mean_report_ms": 1.0}, "tune-reuse": {"seconds_per_trial": theirs}}
    assert [*overhead.time_checks(medians)][-1] == (
        f"the better Ray Tune with MLflow takes {theirs / 0.1:.1f} x as long, at least 15.0",
        held,
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("contender", ["study", "optuna"])
def test_a_contender_runs_all_of_its_trials(contender):
    row = overhead.run_alone(contender, 8)
    assert row["trials"] == 8 and row["seconds"] > 0


@pytest.mark.long
@pytest.mark.slow
def test_slots_of_small_study_and_of_ray_tune_are_busy(tmp_path):
    sizes = ["--arms", "1", "--samples", "3", "--seeds", "2", "--epochs", "3", "--seconds", "0.2"]
    resolved = utilisation.unequal_arms(utilisation.build_parser().parse_args(sizes))
    study, tune = (
        utilisation.figures_of(spans_of(resolved, tmp_path))
        for spans_of in (utilisation.spans_of_study, utilisation.spans_of_tune)
    )
    assert study["busy"] > 0 and tune["busy"] > 0


SHORT_SIMULATIONS = ("mean", "epochs")
LONG_SIMULATIONS = [
    pytest.param(name, marks=pytest.mark.long)
    for name in (
        "metrics",
        "looks",
        "safe",
        "differences",
        "repeats",
        "rules",
        "chosen",
        "verdict",
        "verdict-on-dev",
        "searched",
        "times",
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHORT_SIMULATIONS, *LONG_SIMULATIONS])
def test_simulated_statistics_keep_what_they_state(name):
    rates = list(statistics.SIMULATIONS[name](statistics.QUICK))
    assert len(rates) >= 2 and all(rate.holds for rate in rates), [rate.describe() for rate in rates]


def test_a_rate_off_its_level_is_told():
    off = statistics.Rate("tables with a mark", 0.2, 1_000, "at most", 0.05)
    assert not off.holds and off.describe().startswith("OFF ")
    assert statistics.Rate("tables with a mark", 0.06, 1_000, "at most", 0.05).holds
    assert not statistics.Rate("covered", 0.9, 10_000, "about", 0.95).holds
    assert not statistics.Rate("covered", 0.9, 10_000, "at least", 0.95).holds
    assert statistics.Rate("power", 0.9, 10, "for comparison", None).holds


def test_the_studies_of_the_scale_benchmark_open_and_have_their_tables(tmp_path):
    folder = scale.made_study(tmp_path / "wide", trials=48, epochs=1)
    Journal(folder).close()
    assert make_tables(load_studies([folder]))[0].sidecar["incomplete"] == []


def test_nystrom_flops_are_linear_softmax_quadratic():
    sizes = ["--landmarks", "8", "--kernel-size", "3", "--rounds", "1"]
    arguments = attention.build_parser().parse_args(sizes)
    short, long = (attention.measure(tokens, arguments, "cpu")["flops"] for tokens in (128, 256))
    assert long["softmax"] == 4 * short["softmax"]
    assert long["nystrom"] == pytest.approx(2 * short["nystrom"], rel=0.05)
    assert short["softmax"] > short["nystrom"] > 0


@pytest.mark.parametrize(
    ("softmax", "nystrom", "crossing"),
    [
        ([1, 4, 16], [3, 3, 3], 256),
        ([4, 1, 16], [3, 3, 3], 512),
        ([1, 4, 2], [3, 3, 3], None),
        ([4, 4, 4], [3, 3, 3], 128),
    ],
)
def test_the_crossing_point_is_where_every_longer_text_is_faster_too(softmax, nystrom, crossing):
    times = zip((128, 256, 512), softmax, nystrom, strict=True)
    rows = [{"tokens": tokens, "seconds": {"softmax": s, "nystrom": n}} for tokens, s, n in times]
    assert attention.crossing_point(rows) == crossing


def test_all_ways_of_answering_leave_at_the_same_layers():
    sizes = ["--layers", "3", "--hidden-size", "64", "--examples", "8", "--batch-size", "4", "--rounds", "1"]
    arguments = early_exit_speed.build_parser().parse_args(sizes)
    model = early_exit_speed.random_palbert(arguments.layers, arguments.hidden_size).eval()
    examples = random_examples(np.arange(16, 64, 6))
    early, whole = (early_exit_speed.measure(model, examples, q, arguments) for q in (0.2, 1.0))
    assert early["layer_ratio"] > whole["layer_ratio"] == 1.0
    assert min(early["seconds"].values()) > 0


@pytest.mark.parametrize(
    ("layer_ratio", "speed_up", "reached"),
    [(2.0, 1.8, True), (2.0, 1.79, False), (1.0, 0.98, True), (1.0, 0.97, False)],
)
def test_compaction_reaches_its_share_of_the_layer_ratio_or_not(layer_ratio, speed_up, reached):
    row = {"q": 0.5, "layer_ratio": layer_ratio, "speed_up_against_full": speed_up}
    assert early_exit_speed.reaches(row) is reached
    assert early_exit_speed.missed_in_words(row).startswith(f"MISSED at q = 0.50: speed-up {speed_up:.3f}; wanted: ")


def test_costs_above_their_bars_are_named():
    ratios = {"plain": 1.0, "pabee, patience 1": 1.06, "pondernet": 1.04, "palbert, q .999": 1.31}
    ratios[exit_costs.PRODUCTS] = 1.2
    rows = [{"pooling": "mean", "batch_size": size, "ratios": ratios} for size in (1, 32)]
    assert exit_costs.missed_costs(rows[:1]) == [
        "MISSED by pabee, patience 1 at batch 1, mean: 1.060 times plain; wanted: 1.050",
        "MISSED by palbert, q .999 at batch 1, mean: 1.310 times plain; wanted: 1.300",
    ]
    assert len(exit_costs.missed_costs(rows)) == 4


@pytest.mark.slow
def test_costs_are_measured_where_every_layer_decides_and_nobody_leaves(monkeypatch):
    monkeypatch.setattr(exit_costs, "NUM_BATCHES", {2: 1})
    row = exit_costs.measure_costs("mean", 2, 1, lambda run: run() or 2.0)  # each arm checks that nobody leaves
    assert set(row["ratios"]) >= {*exit_costs.MOST} and {*row["ratios"].values()} == {1.0}
    model = exit_costs.make_model("pabee", "mean")
    (batch,) = exit_costs.make_batches(2)
    found = apply_exit(Patience(1, None), model.all_exits(batch))
    assert (found.exit_layer == model.encoder.num_layers).all()


@pytest.mark.parametrize("given", ["0", "-1", "2.5", "many"])
@pytest.mark.parametrize(
    ("command", "option"), [("early_exit_speed", "--rounds"), ("attention", "--rounds"), ("overhead", "--trials")]
)
def test_a_count_that_is_none_is_refused_in_one_line(command, option, given, capsys):
    with pytest.raises(SystemExit) as refused:
        importlib.import_module(f"benchmarks.{command}").build_parser().parse_args([option, given])
    assert refused.value.code == 2
    assert capsys.readouterr().err.endswith(f"argument {option}: {given!r} is not a whole number above 0\n")


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_longer_search_gets_nearer_to_best(tmp_path, sampler):
    study = launched_study(tmp_path / "surface", mini_plan(methods=("albert",), tasks=("rte",), samples=12))
    (arm,) = require_plan(study).plan.first_arms
    surface = search_strategies.Surface(study, arm)
    short, long = (search_strategies.regret(surface, arm, sampler=sampler, trials=n) for n in (1, 12))
    assert short > long >= 0


def test_evaluating_every_patience_finds_more_than_drawing_one():
    """Four configurations of three settings; only the last setting is good, and it runs twice the layers."""
    points = np.tile([50.0, 60.0, 70.0], (4, 1))
    trained = search_strategies.Trained(chosen_by=points, layers=np.tile([2.0, 3.0, 6.0], (4, 1)), scores=points)
    drawn, every = (search_strategies.found_by(trained, trials=2, most=6, every=own) for own in (False, True))
    assert drawn == pytest.approx(50 / 9 + 60 * 3 / 9 + 70 * 5 / 9, abs=0.5)
    assert every == 70
    assert search_strategies.found_by(trained, trials=2, most=3, every=True) == 60


def test_demonstration_has_options_of_the_makefile_and_data_of_its_generator(tmp_path):
    folder = demonstration.write_data(tmp_path / "data", mini_glue.SEED)
    command = demonstration.launch_command(folder, tmp_path, "study")
    assert " ".join(command).count(" --epochs 12 --select-by at:3 ") == 1
    for name in demonstration.DEMO_TASKS:
        for split in ("train", "dev"):
            ours, theirs = (load_split(TASKS[name], split, data) for data in (str(folder), "mini"))
            assert ours.texts == theirs.texts and (ours.labels == theirs.labels).all()
