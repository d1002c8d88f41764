"""Curves of scores over layers and FLOPs, chosen on one half of dev: pytest tests/analysis/test_curves.py"""

from __future__ import annotations

from dataclasses import replace as dataclass_replace
from pathlib import Path

import numpy as np
import pytest
from helpers.made_studies import rows_in
from helpers.places import ROOT
from helpers.swept_studies import swept_study
from msgspec.structs import replace

from analysis.layouts.evidence import gather
from analysis.layouts.exit_tables import exits_table
from analysis.statistics.costs import flops, flops_of_exits
from analysis.statistics.curves import Settings, make_curves, read_curves, shared_ranges
from analysis.statistics.exit_settings import halves
from analysis.studies.cells import Cell
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Answers, Predictions, read_cell_predictions
from study.facts.events import EpochReported, read_events
from study.facts.study_folder import predictions_file
from trainables.data.tasks import TASKS
from trainables.models.exit_rules import HALVED_FROM, apply_exit
from trainables.models.fronts import pareto_places
from trainables.runs.trial import TextFlops

N, LAYERS = 200, 12
TWICE_AND_TEN = 10 + 2 * np.arange(1, LAYERS + 1)[:, None]  # a cost of each layer


def settings_of(chances, layers, *, rng, n=N) -> Settings:
    """Settings that answer an example right with these chances, each at one layer."""
    labels = rng.integers(2, size=n)
    right = rng.random((len(chances), n)) < np.array(chances)[:, None]
    examples = Answers(TASKS["rte"], np.arange(n), np.array(["dev"] * n), labels, labels[None])
    exit_layers = np.broadcast_to(np.array(layers)[:, None], right.shape)
    return Settings(examples, np.where(right, labels, 1 - labels), exit_layers)


def test_useless_settings_gain_nothing():
    """One setting that is right in 70 % of examples, and 20 that are no better, at about its cost."""
    chances, layers = [0.7] * 21, [6, *(6 - 0.001 * step for step in range(1, 21))]
    flattered, measured = [], []
    for seed in range(60):
        model = settings_of(chances, layers, rng=np.random.default_rng(seed))
        flattered.append(max(model.scores))
        measured.append(make_curves([model]).over(6, 6).scores[0])
    assert np.mean(flattered) > 0.75
    assert np.mean(measured) == pytest.approx(0.7, abs=0.015)


def test_halves_share_no_example_and_divide_each_split():
    split = np.array(["a"] * 101 + ["b"] * 50)
    one, two = halves(split)
    assert sorted([*one, *two]) == list(range(151))
    assert (sum(split[one] == "a"), sum(split[two] == "a"), sum(split[one] == "b")) == (51, 50, 25)


def test_one_setting_scores_the_mean_of_both_halves():
    model = settings_of([0.8], [6], rng=np.random.default_rng(0))
    curves = make_curves([model])
    assert curves.over(6, 6).scores == pytest.approx([model.scores[0]])
    assert curves.fewest_layers == curves.most_layers == 6


def test_range_mean_is_the_area_under_the_measured_settings():
    model = settings_of([0.5, 0.7, 0.9], [2, 6, 8], rng=np.random.default_rng(1), n=4_000)
    curves = make_curves([model])
    grid = np.linspace(3, 8, 5_001)
    expected = np.mean([np.interp(grid, half[0].mean_layers, half[0].scores) for half in curves.halves])
    found = curves.over(3, 8)
    assert found.scores == pytest.approx([expected], abs=1e-4)
    assert found.resampled.mean(axis=0) == pytest.approx(found.scores, abs=2e-3)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return swept_study(tmp_path_factory.mktemp("runs") / "s", ["albert", "palbert", "pabee", "pondernet"], ["rte"])


def test_stored_outputs_give_the_scores_of_the_sweep(study):
    cells = {row.method: row.cells["rte"] for row in rows_in(study)}
    assert read_curves(cells["albert"]) is None
    curves = read_curves(cells["pabee"])
    settings = curves.models[0]
    assert settings.scores[0] == pytest.approx(cells["pabee"].scores[0])
    assert settings.mean_layers[0] == pytest.approx(cells["pabee"].records[0].mean_layers)
    assert len(read_curves(cells["pondernet"]).models[0].answers) == 5 + 20  # draws, thresholds


def test_exits_file_has_curve_differences_on_shared_range(study):
    evidence = gather([load_study(study)])
    curves = exits_table(evidence).sidecar["curves"]
    assert [(one["row"], one["over"], one["reference"]) for one in curves] == [
        (row, "layers", "palbert") for row in ("pabee", "pondernet")
    ]
    fewest, most = shared_ranges(evidence.curves)["rte"]
    assert 1 < fewest < most <= LAYERS and curves[0]["range"] == (fewest, most)
    own, other = (np.mean(evidence.curves[place, "rte"].over(fewest, most).scores) for place in ("pabee", "palbert"))
    assert curves[0]["difference"] == pytest.approx(100 * (own - other))
    assert curves[0]["low"] < curves[0]["difference"] < curves[0]["high"]


def test_layers_that_cost_twice_as_much_halve_a_curve_over_flops(study):
    evidence = gather([load_study(study)])
    own, costly = evidence.curves["palbert", "rte"], evidence.curves["palbert", "rte"].at_cost(TWICE_AND_TEN)
    assert costly.fewest_layers == pytest.approx(10 + 2 * own.fewest_layers)
    assert costly.over(16, 20).scores == pytest.approx(own.over(3, 5).scores)


def test_a_common_line_of_flops_changes_no_difference_of_curves(study):
    evidence = gather([load_study(study)])
    evidence.__dict__["curves_by_flops"] = {place: own.at_cost(TWICE_AND_TEN) for place, own in evidence.curves.items()}
    curves = exits_table(evidence).sidecar["curves"]
    for over_layers, over_flops in zip(curves[:2], curves[2:], strict=True):
        assert (over_layers["over"], over_flops["over"]) == ("layers", "megaflops")
        assert over_layers["difference"] == pytest.approx(over_flops["difference"])
        assert over_flops["range"] == pytest.approx([10 + 2 * end for end in over_layers["range"]])


def timed_cell(folder: Path, texts: tuple[TextFlops, ...], lengths: np.ndarray | None) -> Cell:
    """Palbert's cell of a new study, with these FLOPs and these lengths of texts in its first seed's predictions."""
    study = swept_study(folder / "s", ["palbert"], ["rte"])
    (cell,) = (row.cells["rte"] for row in rows_in(study) if row.method == "palbert")
    path = predictions_file(study, cell.records[0].key)
    arrays = {name: array for name, array in np.load(path).items() if name != "lengths"}
    np.savez(path, **arrays, **({} if lengths is None else {"lengths": lengths}))
    return dataclass_replace(cell, records=tuple(replace(record, text_flops=texts) for record in cell.records))


def test_without_counts_or_lengths_of_texts_there_are_no_flops(tmp_path):
    texts = (TextFlops(tokens=5, by_layer=tuple(range(1, LAYERS + 1))),)
    assert flops_of_exits(timed_cell(tmp_path / "older", (), np.full(N, 9))) is None
    assert flops_of_exits(timed_cell(tmp_path / "shorter", texts, None)) is None
    assert flops_of_exits(timed_cell(tmp_path / "long", texts, np.full(N, HALVED_FROM))) is None


def test_flops_of_a_text_follow_the_square_of_its_length(tmp_path):
    """Three lengths, of which each is one text's, give the FLOPs of every other one."""
    layers, lengths = np.arange(1, LAYERS + 1), np.random.default_rng(0).integers(5, 60, N).astype(np.uint16)

    def cost(tokens):
        return 3 + layers * (24 * tokens + 4 * tokens**2.0)  # millions

    texts = tuple(TextFlops(tokens=n, by_layer=tuple(1e6 * cost(n))) for n in (5, 20, 59))
    found = flops_of_exits(timed_cell(tmp_path, texts, lengths))
    assert found == pytest.approx(np.stack([cost(int(n)) for n in lengths], axis=1))


def test_long_texts_have_a_parabola_of_their_own(tmp_path):
    """From `HALVED_FROM` tokens on, an exit saves a part of its layer."""
    layers, lengths = np.arange(1, LAYERS + 1), np.random.default_rng(0).integers(5, 500, N).astype(np.uint16)

    def cost(tokens):
        return (layers - 0.5 * (tokens >= HALVED_FROM)) * (24 * tokens + 4 * tokens**2.0)  # millions

    counted = (5, 100, 255, 256, 300, 499)
    texts = tuple(TextFlops(tokens=n, by_layer=tuple(1e6 * cost(n))) for n in counted)
    found = flops_of_exits(timed_cell(tmp_path, texts, lengths))
    assert found == pytest.approx(np.stack([cost(int(n)) for n in lengths], axis=1))


@pytest.mark.parametrize(("counted", "is_known"), [((5, 16, 24, 43, 59), True), ((5, 20, 59), False)])
def test_nystrom_flops_are_shown_if_the_counts_determine_them(counted, is_known, tmp_path):
    """Counts at three lengths, as in older studies, leave open what each segment of 8 tokens adds."""
    layers, lengths = np.arange(1, LAYERS + 1), np.random.default_rng(0).integers(5, 60, N).astype(np.uint16)

    def cost(tokens):
        landmarks = -(-tokens // 8)
        return 3 + layers * (24 * tokens + 4 * tokens * landmarks + 2 * landmarks**2 + landmarks**3.0)  # millions

    texts = tuple(TextFlops(tokens=n, by_layer=tuple(1e6 * cost(n))) for n in counted)
    cell = timed_cell(tmp_path, texts, lengths)
    nystrom = {"attention": "nystrom", "num_landmarks": 8, "max_length": 64}
    records = tuple(replace(record, config={**record.config, **nystrom}) for record in cell.records)
    found = flops_of_exits(dataclass_replace(cell, records=records))
    assert (found is not None) is is_known
    if is_known:
        assert found == pytest.approx(np.stack([cost(int(n)) for n in lengths], axis=1))


def test_flops_are_of_the_dev_texts_under_the_own_exit(tmp_path):
    lengths = np.random.default_rng(0).integers(5, 60, N).astype(np.uint16)
    texts = tuple(
        TextFlops(tokens=n, by_layer=tuple(1e6 * n * layer for layer in range(1, LAYERS + 1))) for n in (5, 30, 60)
    )
    cell = timed_cell(tmp_path, texts, lengths)
    layers = [own.exit_layers[0].astype(float) for own in read_cell_predictions(cell)]
    assert flops(cell) == pytest.approx(np.median([np.mean(own * lengths) for own in layers]))


KEPT = ROOT / "benchmarks" / "results" / "real" / "cpu"


def test_flops_of_kept_dev_texts():
    cells = gather([load_study(KEPT / "cpu-sst2")]).cells_by_place
    cell = cells["albert", "sst2"]
    assert flops(cell) == pytest.approx(471, abs=0.5)


def plain_curve(model: Predictions, cost: float, low: float, high: float) -> float:
    """The mean score between two costs along the best settings of one half, measured on the other; both halves."""
    results = [apply_exit(rule, model.outputs) for rule in model.sweep_rules]
    points = [(model.exit_layers[0], model.answers[0])]
    points += [(result.exit_layer, result.logits.argmax(axis=1)) for result in results]
    means = []
    one, two = halves(model.split)
    for choosing, measuring in ((one, two), (two, one)):
        best, front = -np.inf, []
        scored = [(layers[choosing].mean(), -matthews(model.labels, answers, choosing)) for layers, answers in points]
        for number in sorted(range(len(points)), key=scored.__getitem__):
            if -scored[number][1] > best:
                best = -scored[number][1]
                front.append(number)
        at = [cost * points[number][0][measuring].mean() for number in front]
        scores = [matthews(model.labels, points[number][1], measuring) for number in front]
        order = np.argsort(at, kind="stable")
        grid = np.linspace(low, high, 40_001)
        means.append(np.interp(grid, np.array(at)[order], np.array(scores)[order]).mean())
    return float(np.mean(means))


def matthews(labels: np.ndarray, answers: np.ndarray, rows: np.ndarray) -> float:
    one, two = labels[rows], answers[rows]
    return float(np.corrcoef(one, two)[0, 1]) if np.ptp(one) and np.ptp(two) else 0.0


@pytest.mark.parametrize(
    ("method", "difference", "interval"), [("pabee", 1.7, (-1.0, 4.3)), ("pondernet", -8.2, (-13.1, -3.3))]
)
def test_kept_curves_over_flops_that_are_in_proportion_to_the_layers(method, difference, interval):
    """CoLA's records count a batch under all layers, but no layer by itself: each layer gets an equal share here."""
    evidence = gather([load_study(KEPT / "cpu-cola")])
    cells = {name: evidence.cells_by_place[name, "cola"] for name in ("palbert", "pabee", "pondernet")}
    last = [event for event in read_events(KEPT / "cpu-cola") if isinstance(event, EpochReported) and event.outcome]
    latencies = {event.key: event.outcome.latency for event in last}
    costs = {
        name: np.median([latencies[record.key].exits[1].flops for record in cell.records]) / 6e6
        for name, cell in cells.items()
    }
    by_flops = {
        (name, "cola"): evidence.curves[name, "cola"].at_cost(cost * np.arange(1, 7)[:, None])
        for name, cost in costs.items()
    }
    test = evidence.compare_curves(by_flops)[method, "cola"].test
    found = [100 * number for number in (test.difference, test.low, test.high)]
    assert found == pytest.approx([difference, *interval], abs=0.06)
    ends = shared_ranges(by_flops)["cola"]
    own, other = (
        np.mean([plain_curve(model, costs[name], *ends) for model in read_cell_predictions(cells[name])])
        for name in (method, "palbert")
    )
    assert 100 * (own - other) == pytest.approx(test.difference * 100, abs=0.05)
    assert evidence.curves_by_flops == {}  # the tables have none: nothing was counted by layer


def test_a_curve_over_flops_charges_each_text_its_own(tmp_path):
    curves = read_curves(timed_cell(tmp_path, (), None))
    costs = np.random.default_rng(1).uniform(1, 2, (LAYERS, N)).cumsum(axis=0)
    settings, by_cost = curves.models[0], curves.at_cost(costs).models[0]
    expected = [costs[settings.exit_layers[0][i] - 1, i] for i in range(N)]
    assert by_cost.mean_layers[0] == pytest.approx(np.mean(expected))
    assert by_cost.scores.tolist() == settings.scores.tolist()


def test_front_chosen_on_one_half_has_the_places_of_that_half():
    model = settings_of([0.6, 0.6, 0.6], [2, 4, 6], rng=np.random.default_rng(5))
    one, two = halves(model.examples.split)
    chosen = model.of(one)
    measured = make_curves([model]).halves[0][0]
    places = pareto_places(chosen.mean_layers, chosen.scores)
    assert measured.scores.tolist() == pytest.approx(model.of(two).scores[places].tolist())
