"""What the benchmarks of the study engine measure, in small: pytest tests/house/test_benchmarks.py"""

import dataclasses
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.simulation import Simulation
from msgspec.structs import replace

from analysis.studies.load import load_studies
from analysis.tables import make_tables
from benchmarks import (
    attention,
    early_exit_speed,
    overhead,
    scale,
    search_strategies,
    statistics,
    stopping_rules,
    utilisation,
)
from benchmarks.random_texts import random_examples
from study import profiles
from study.counterfactual.curves import epochs_of
from study.facts.journal import Journal
from study.plans.plan import EarlyStopping
from study.plans.resolution import resolve


@pytest.mark.parametrize("contender", search_strategies.CONTENDERS)
def test_regret_never_rises_with_the_noise_gone(contender):
    landscape = search_strategies.Landscape("steady", noise=0.0, slowness=0.0)
    regrets = search_strategies.regrets(landscape, contender, [4, 36, 72])
    assert 0 <= regrets[2] <= regrets[1] <= regrets[0] < 1 and regrets[2] < regrets[0]


def test_the_regret_of_the_optimum_is_zero():
    landscape = search_strategies.Landscape("steady", noise=0.0, slowness=0.0, seed=3)
    random = np.random.default_rng(3)
    learning_rate, weight_decay, dropout = random.uniform(0.1, 0.9, size=3)
    best = {
        "learning_rate": 1e-5 * 100**learning_rate,
        "weight_decay": 0.3 * weight_decay,
        "dropout": 0.5 * dropout,
        "batch_size": [16, 32, 128][int(2 * random.choice([0.0, 0.5, 1.0]))],
    }
    assert landscape.score(best, search_strategies.EPOCHS) == pytest.approx(1.0)


def test_a_search_that_stops_trials_starts_more_of_them():
    started = {}
    for contender in search_strategies.CONTENDERS:
        clock = search_strategies.Clock(search_strategies.CONTENDERS[contender](0), search_strategies.LANDSCAPES[0])
        for _ in range(60):
            clock.step()
        started[contender] = len(clock.epochs_done)
    assert started["full"] < min(started["study"], started["tune"])


def test_a_restart_goes_on_with_the_trials_that_ran():
    search = search_strategies.StudySearch(0, stopping=False)
    clock = search_strategies.Clock(search, search_strategies.LANDSCAPES[0])
    for _ in range(10):
        clock.step()
    running = {key for _, key, _ in clock.running}
    clock.cut_off()
    search.restart()
    clock.step()
    assert running <= {key for _, key, _ in clock.running}


def test_searches_of_each_contender_are_held_against_each_other():
    with ThreadPoolExecutor(1) as pool:
        measured = search_strategies.measure(pool, search_strategies.LANDSCAPES[0], 2, [9, 18])
    rows = search_strategies.compare(measured, "steady", [1, 2])
    assert [row["budget"] for row in rows] == [1, 2] and {*rows[0]["against"]} == {"tune", "full"}


def test_the_verdict_is_worse_where_most_seeds_are():
    good, bad = np.linspace(0.1, 0.2, 20), np.linspace(0.3, 0.5, 20)
    assert search_strategies.paired(bad, good)["verdict"] == "WORSE"
    assert search_strategies.paired(good, bad)["verdict"] == "better"
    assert search_strategies.paired(good, good)["verdict"] == "equal"


def rising_curves(finals: Sequence[float], *, epochs: int = 9) -> stopping_rules.StoredCurves:
    """Curves that never cross."""
    scores = tuple(tuple(final * (1 - 0.5**epoch) for epoch in range(1, epochs + 1)) for final in finals)
    finals = tuple(curve[-1] for curve in scores)
    return stopping_rules.StoredCurves("albert/rte", epochs, scores, finals, seconds=(1.0,) * len(finals))


@pytest.mark.parametrize("rule", stopping_rules.CONTENDERS)
def test_every_rule_finds_the_best_of_curves_that_never_cross(rule):
    curves = rising_curves([0.1 * n for n in range(1, 10)])
    replay = stopping_rules.replayed(0, curves, rule, [2, 60])
    assert replay.regrets[0] >= replay.regrets[1] == replay.regrets[2] == 0


def epochs_spent(rule: str, curves: stopping_rules.StoredCurves) -> dict[int, int]:
    """By curve, once the search is over."""
    clock = search_strategies.Clock(stopping_rules.CONTENDERS[rule](curves, 0), curves)
    for _ in range(sum(map(len, curves.scores))):
        clock.step()
    assert not clock.running
    return {int(key): epochs for key, epochs in clock.epochs_done.items()}


def test_rules_spend_what_they_are_to_spend():
    finals = [0.1 * n for n in range(1, 10)]
    spent = {rule: sorted(epochs_spent(rule, rising_curves(finals)).values()) for rule in stopping_rules.CONTENDERS}
    assert spent["none"] == [9] * 9
    assert spent["promotion"] == [1] * 6 + [3, 3] + [9]
    assert spent["pasha"] == [1] * 6 + [3] * 3  # the rankings agree, so that nothing is trained further
    assert {3, 9} == {*spent["late-asha"]}
    assert {1, 3, 9} >= {*spent["asha"]} and {1, 3, 9} >= {*spent["hyperband"]}
    assert sum(spent["asha"]) < min(sum(spent["hyperband"]), sum(spent["late-asha"])) < 81


def test_pasha_trains_on_where_two_rungs_rank_trials_unlike():
    rising = rising_curves([0.1 * n for n in range(1, 10)])
    crossing = tuple((*curve[:2], 1 - curve[2], *curve[3:]) for curve in rising.scores)
    assert max(epochs_spent("pasha", dataclasses.replace(rising, scores=crossing)).values()) == 9


def test_a_trial_that_ends_by_itself_leaves_its_slot():
    curves = rising_curves([0.5, 0.6])
    short = dataclasses.replace(curves, scores=(curves.scores[0][:2], curves.scores[1]))
    assert epochs_spent("none", short) == {0: 2, 1: 9}


@pytest.mark.parametrize(
    ("other", "above", "noise"),
    [
        ([0.6, 0.5, 0.8], 2, 0.1),
        ([0.6, 0.5, 0.6], 2, 0.0),  # crossed once
        ([0.6, 0.5, 0.8], 3, 0.0),  # not beyond the rung
    ],
)
def test_the_noise_of_pasha_is_the_distance_of_curves_that_have_crossed_twice(other, above, noise):
    assert stopping_rules.noise_between([[0.5, 0.6, 0.7], other], above=above, otherwise=0.0) == pytest.approx(noise)


def test_places_within_the_noise_are_the_same_ranking():
    below, top = {"a": 0.5, "b": 0.6, "c": 0.9}, {"a": 0.7, "b": 0.6}
    assert not stopping_rules.same_ranking(top, below, 0.05)
    assert stopping_rules.same_ranking(top, below, 0.11)


def simulated_curves(early_stopping: EarlyStopping | None) -> stopping_rules.StoredCurves:
    small = {"methods": ("albert",), "tasks": ("rte",), "samples": 12, "sampler": "random", "epochs": 9}
    simulation = Simulation(resolve(replace(profiles.load("mini"), **small, early_stopping=early_stopping)))
    simulation.launch()
    (arm,), journal = simulation.resolved.arms, simulation.journal
    return stopping_rules.curves_of_arm(arm, journal.facts.arm(arm.name), epochs_of(journal.events))


def test_curves_of_a_study_are_its_search_trials_to_their_end():
    curves = simulated_curves(None)
    assert [len(curve) for curve in curves.scores] == [9] * 12
    assert [max(curve) for curve in curves.scores] == [*curves.finals]


def test_curves_of_stopped_trials_are_refused():
    with pytest.raises(ValueError, match=r"\d of 12 search trials of albert/rte were cut short; allowed: --early"):
        simulated_curves(EarlyStopping())


def test_busy_is_the_share_of_four_slots():
    spans = [(0.0, 10.0), (0.0, 10.0), (5.0, 10.0), (5.0, 10.0)]
    assert utilisation.figures_of(spans) == {"epochs": 4, "seconds": 10.0, "busy": 0.75}


def test_a_slow_study_misses_its_targets():
    ours = {"seconds_per_trial": 0.2, "mean_report_ms": 6.0, "growth_mb": 9.0}
    theirs = {"seconds_per_trial": 0.9, "growth_mb": 8.0}
    assert [held for _, held in overhead.time_checks({"study": ours, "tune-reuse": theirs})] == [False] * 3
    assert [held for _, held in overhead.memory_checks({"study": ours, "tune-bare": theirs})] == [False]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("contender", ["study", "optuna"])
def test_a_contender_runs_all_of_its_trials(contender):
    row = overhead.run_alone(contender, 8)
    assert row["trials"] == 8 and 0 < row["seconds"] < 120


@pytest.mark.long
@pytest.mark.slow
def test_slots_of_a_small_study_are_busier_than_ray_tune_leaves_them(tmp_path):
    sizes = ["--arms", "1", "--samples", "3", "--seeds", "2", "--epochs", "3", "--seconds", "0.2"]
    resolved = utilisation.unequal_arms(utilisation.build_parser().parse_args(sizes))
    study, tune = (
        utilisation.figures_of(spans_of(resolved, tmp_path))
        for spans_of in (utilisation.spans_of_study, utilisation.spans_of_tune)
    )
    assert study["busy"] > tune["busy"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["optimism", "verdict", "median", "repeats", "claims"])
def test_simulated_statistics_keep_what_they_state(name):
    rates = list(statistics.SIMULATIONS[name](statistics.QUICK))
    assert len(rates) >= 2 and all(rate.holds for rate in rates), [rate.in_words() for rate in rates]


def test_a_rate_off_its_level_is_told():
    off = statistics.Rate("tables with a mark", 0.2, 1_000, "at most", 0.05)
    assert not off.holds and off.in_words().startswith("OFF ")
    assert statistics.Rate("tables with a mark", 0.06, 1_000, "at most", 0.05).holds
    assert not statistics.Rate("covered", 0.9, 10_000, "about", 0.95).holds
    assert not statistics.Rate("covered", 0.9, 10_000, "at least", 0.95).holds
    assert statistics.Rate("power", 0.9, 10, "for comparison", None).holds


def test_the_studies_of_the_scale_benchmark_open_and_have_their_tables(tmp_path):
    folder = scale.made_study(tmp_path / "wide", trials=48, epochs=1)
    Journal(folder).close()
    assert make_tables(load_studies([folder]))[0].sidecar["incomplete"] == []


def test_flops_of_nystrom_attention_grow_with_the_length_and_those_of_softmax_with_its_square():
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
    times = zip((128, 256, 512), softmax, nystrom)
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


@pytest.mark.parametrize("given", ["0", "-1", "2.5", "many"])
@pytest.mark.parametrize(
    ("command", "option"), [("early_exit_speed", "--rounds"), ("fused_seeds", "--members"), ("overhead", "--trials")]
)
def test_a_count_that_is_none_is_refused_in_one_line(command, option, given, capsys):
    with pytest.raises(SystemExit) as refused:
        importlib.import_module(f"benchmarks.{command}").build_parser().parse_args([option, given])
    assert refused.value.code == 2
    assert capsys.readouterr().err.endswith(f"argument {option}: {given!r} is not a whole number above 0\n")
