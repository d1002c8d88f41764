"""What models score over layers, chosen on one half and measured on the other: pytest tests/analysis/test_curves.py"""

from __future__ import annotations

from dataclasses import replace as dataclass_replace
from pathlib import Path

import numpy as np
import pytest
from helpers.made_studies import made_latency, rows_in
from helpers.swept_studies import swept_study
from msgspec.structs import replace

from analysis.layouts.cost_tables import exits_table
from analysis.layouts.evidence import gather
from analysis.layouts.table import Entry
from analysis.statistics.costs import flops_of_exits
from analysis.statistics.curves import Settings, halves, make_curves, read_curves, shared_ranges
from analysis.studies.cells import Cell
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import Answers
from study.facts.study_folder import predictions_file
from trainables.data.tasks import TASKS
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
        measured.append(make_curves([model], [model]).score_at(6)[0])
    assert np.mean(flattered) > 0.75
    assert np.mean(measured) == pytest.approx(0.7, abs=0.015)


def test_halves_share_no_example_and_divide_each_split():
    split = np.array(["a"] * 101 + ["b"] * 50)
    one, two = halves(split)
    assert sorted([*one, *two]) == list(range(151))
    assert (sum(split[one] == "a"), sum(split[two] == "a"), sum(split[one] == "b")) == (51, 50, 25)


def test_one_setting_scores_the_mean_of_both_halves():
    model = settings_of([0.8], [6], rng=np.random.default_rng(0))
    curves = make_curves([model], [model])
    assert curves.score_at(6) == pytest.approx([model.scores[0]])
    assert curves.score_at(5.9) is curves.score_at(6.1) is None


def test_range_mean_is_the_area_under_the_measured_settings():
    model = settings_of([0.5, 0.7, 0.9], [2, 6, 8], rng=np.random.default_rng(1), n=4_000)
    curves = make_curves([model], [model])
    grid = np.linspace(3, 8, 5_001)
    expected = np.mean([curves.score_at(layers)[0] for layers in grid])
    found = curves.over(3, 8)
    assert found.scores == pytest.approx([expected], abs=1e-4)
    assert found.resampled.mean(axis=0) == pytest.approx(found.scores, abs=2e-3)


def test_elue_score_of_fixed_layers_is_zero_and_of_better_settings_their_height():
    rng = np.random.default_rng(2)
    fixed = settings_of(np.linspace(0.5, 0.9, LAYERS), range(1, LAYERS + 1), rng=rng)
    assert make_curves([fixed], [fixed]).elue().scores == pytest.approx([0])
    better = Settings(fixed.examples, fixed.answers[-1:], np.full((1, N), 6.5))
    height = fixed.scores[-1] - (fixed.scores[5] + fixed.scores[6]) / 2
    found = make_curves([better], [fixed]).elue()
    assert found.scores == pytest.approx([height])
    assert found.resampled.mean() == pytest.approx(height, abs=5e-3)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return swept_study(tmp_path_factory.mktemp("runs") / "s", ["albert", "palbert", "pabee", "pondernet"], ["rte"])


def test_stored_outputs_give_the_scores_of_the_sweep(study):
    cells = {row.method: row.cells["rte"] for row in rows_in(study)}
    assert read_curves(cells["albert"]) is None
    curves = read_curves(cells["pabee"])
    settings, fixed = curves.whole[0]
    assert settings.scores[0] == pytest.approx(cells["pabee"].scores[0])
    assert settings.mean_layers[0] == pytest.approx(cells["pabee"].records[0].mean_layers)
    assert fixed.mean_layers.tolist() == list(range(1, LAYERS + 1))
    assert len(read_curves(cells["pondernet"]).whole[0][0].answers) == 5 + 20  # draws, thresholds


def test_exits_table_has_curves_and_the_range_they_share(study):
    evidence = gather([load_study(study)])
    table = exits_table(evidence)
    assert "curve_difference" in table.columns and "elue_score" in table.columns
    fewest, most = shared_ranges(evidence.curves)["rte"]
    assert 1 < fewest < most <= LAYERS
    assert f"RTE {fewest:.1f} to {most:.1f}" in table.caption
    rows = {line.label: line.entries for line in table.lines}
    assert "curve_difference" not in rows[f"{evidence.curve_reference}/rte"]
    difference = evidence.compare_curves(evidence.curves)["pabee", "rte"].test
    own, other = (np.mean(evidence.curves[place, "rte"].over(fewest, most).scores) for place in ("pabee", "palbert"))
    assert difference.difference == pytest.approx(own - other)
    assert difference.low < difference.difference < difference.high


def test_layers_that_cost_twice_as_much_halve_a_curve_over_flops(study):
    evidence = gather([load_study(study)])
    own, costly = evidence.curves["palbert", "rte"], evidence.curves["palbert", "rte"].at_cost(TWICE_AND_TEN)
    assert costly.fewest_layers == pytest.approx(10 + 2 * own.fewest_layers)
    assert costly.over(16, 20).scores == pytest.approx(own.over(3, 5).scores)
    assert costly.elue().scores == pytest.approx(own.elue().scores)


def test_a_common_line_of_flops_changes_no_difference_of_curves(study):
    evidence = gather([load_study(study)])
    evidence.__dict__["curves_by_flops"] = {place: own.at_cost(TWICE_AND_TEN) for place, own in evidence.curves.items()}
    table = exits_table(evidence)
    for line in table.lines:
        over_layers, over_flops = (
            line.entries.get(name, Entry()).text for name in ("curve_difference", "curve_difference_by_flops")
        )
        assert over_layers == over_flops, line.label
    fewest, most = shared_ranges(evidence.curves)["rte"]
    ends = f"(RTE {10 + 2 * fewest:.3g} to {10 + 2 * most:.3g})"
    assert f'"Curve, FLOPs" is like "curve", but over MFLOPs instead of layers {ends}' in table.caption


def timed_cell(folder: Path, texts: tuple[TextFlops, ...], lengths: np.ndarray | None) -> Cell:
    """Palbert's cell of a new study, with this latency and these lengths of texts in its first seed's predictions."""
    study = swept_study(folder / "s", ["palbert"], ["rte"])
    (cell,) = (row.cells["rte"] for row in rows_in(study) if row.method == "palbert")
    latency = replace(made_latency(LAYERS, lambda layers, size: layers), texts=texts)  # 100 million FLOPs a layer
    path = predictions_file(study, cell.records[0].key)
    arrays = {name: array for name, array in np.load(path).items() if name != "lengths"}
    np.savez(path, **arrays, **({} if lengths is None else {"lengths": lengths}))
    return dataclass_replace(cell, records=tuple(replace(record, latency=latency) for record in cell.records))


def test_flops_of_older_records_lie_on_the_line_through_the_counted_settings(tmp_path):
    found = flops_of_exits(timed_cell(tmp_path, (), None))
    assert found[:, 0] == pytest.approx(100 * np.arange(1, LAYERS + 1)) and found.shape == (LAYERS, 1)


def test_flops_of_a_text_follow_the_square_of_its_length(tmp_path):
    """Three lengths, of which each is one text's, give the FLOPs of every other one."""
    layers, lengths = np.arange(1, LAYERS + 1), np.random.default_rng(0).integers(5, 60, N).astype(np.uint16)

    def cost(tokens):
        return 3 + layers * (24 * tokens + 4 * tokens**2.0)  # millions

    texts = tuple(TextFlops(tokens=n, by_layer=tuple(1e6 * cost(n))) for n in (5, 20, 59))
    found = flops_of_exits(timed_cell(tmp_path, texts, lengths))
    assert found == pytest.approx(np.stack([cost(int(n)) for n in lengths], axis=1))


def test_a_curve_over_flops_charges_each_text_its_own(tmp_path):
    curves = read_curves(timed_cell(tmp_path, (), None))
    costs = np.random.default_rng(1).uniform(1, 2, (LAYERS, N)).cumsum(axis=0)
    settings, by_cost = curves.whole[0][0], curves.at_cost(costs).whole[0][0]
    expected = [costs[settings.exit_layers[0][i] - 1, i] for i in range(N)]
    assert by_cost.mean_layers[0] == pytest.approx(np.mean(expected))
    assert by_cost.scores.tolist() == settings.scores.tolist()


def test_front_chosen_on_one_half_has_the_places_of_that_half():
    model = settings_of([0.6, 0.6, 0.6], [2, 4, 6], rng=np.random.default_rng(5))
    one, two = halves(model.examples.split)
    chosen = model.of(one)
    measured = make_curves([model], [model]).halves[0][0]
    places = pareto_places(chosen.mean_layers, chosen.scores)
    assert measured.scores.tolist() == pytest.approx(model.of(two).scores[places].tolist())
