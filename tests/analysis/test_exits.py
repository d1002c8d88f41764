"""python -m pytest tests/analysis/test_exits.py"""

import re

import numpy as np
import pytest
from helpers.made_studies import record, rows_in, store_predictions, write_study
from helpers.swept_studies import swept_study

from analysis.layouts.evidence import gather
from analysis.layouts.exit_tables import RULES, exits_table
from analysis.statistics.exit_settings import apply_setting
from analysis.statistics.exits import Sweep, read_exits
from analysis.statistics.gains import measure_gains
from analysis.studies.cells import read_cell
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_cell_predictions, read_predictions
from study.facts.study_folder import predictions_file
from trainables.models.answer_rules import Entropy, FixedLayer
from trainables.models.exit_rules import apply_exit
from trainables.models.fronts import front_weights, pareto_places


def front(*points):
    layers, scores = np.array(points, dtype=float).T
    places = pareto_places(layers, scores)
    return layers[places].tolist(), scores[places].tolist()


def test_front_leaves_out_what_costs_more_and_scores_less():
    assert front((6, 0.7), (4, 0.6), (5, 0.5), (8, 0.7), (9, 0.8), (12, 0.75)) == ([4, 6, 9], [0.6, 0.7, 0.8])


def test_front_takes_the_best_of_settings_with_equal_layers():
    assert front((4, 0.5), (4, 0.6)) == ([4], [0.6])


@pytest.mark.parametrize(("layers", "score"), [(5, 0.65), (8, 0.8), (11, 0.8)])
def test_score_between_two_settings_lies_on_the_straight_line(layers, score):
    assert front_weights(np.array([4.0, 8.0]), layers, layers) @ [0.6, 0.8] == pytest.approx(score)


def test_mean_over_a_range_is_the_area_over_its_width():
    assert front_weights(np.array([4.0, 8.0]), 6, 12) @ [0.6, 0.8] == pytest.approx((2 * 0.75 + 4 * 0.8) / 6)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    folder = swept_study(tmp_path_factory.mktemp("runs") / "s", ["albert", "palbert", "pabee", "pondernet"], ["rte"])
    return {row.method: row.cells["rte"] for row in rows_in(folder)}


def test_rule_without_a_setting_has_no_curve(tmp_path):
    folder = swept_study(tmp_path / "s", ["palbert"], ["rte"])
    cell = read_cell(load_study(folder), "palbert", "rte")
    before = read_exits(cell)
    for row in cell.records:
        path = predictions_file(folder, row.key)
        arrays = dict(np.load(path))
        more = {
            "sweep_rule": "last",
            "sweep_field": "",
            "sweep_setting": np.nan,
            "sweep_mean_layers": 12,
            "sweep_score": 0.5,
        }
        np.savez(path, **arrays | {name: np.append(arrays[name], value) for name, value in more.items()})
    assert [sweep.rule for sweep in read_exits(cell).sweeps] == [sweep.rule for sweep in before.sweeps] == ["threshold"]


def test_method_that_always_runs_all_layers_has_no_sweep(cells):
    exits = read_exits(cells["albert"])
    assert exits.sweeps == () and not exits.is_early


@pytest.mark.parametrize(("method", "rule", "setting"), [("palbert", "threshold", 0.5), ("pabee", "patience", 6)])
def test_own_setting_of_a_sweep_is_what_the_records_say(cells, method, rule, setting):
    (sweep,) = read_exits(cells[method]).sweeps
    assert sweep.rule == rule
    own = sweep.settings.tolist().index(setting)
    assert sweep.scores[:, own].tolist() == pytest.approx(cells[method].scores)
    layers = [row.mean_layers for row in cells[method].records]
    assert sweep.mean_layers[:, own].tolist() == pytest.approx(layers)


def test_shares_are_of_all_examples(cells):
    exits = read_exits(cells["palbert"])
    assert exits.shares.shape == (5, 12)
    assert exits.shares.sum(axis=1).tolist() == pytest.approx([1.0] * 5)
    assert (exits.shares @ np.arange(1, 13)).tolist() == pytest.approx(exits.mean_layers.tolist())


def swept_cell(folder, *, q=0.3, missing=()):
    """A cell of three seeds whose sweep has q 0.2 and 0.4."""
    records = [
        record("palbert", "rte", 0.7 + 0.01 * i, seed=42 + i, config={"q": q}, mean_layers=6.0 + i) for i in range(3)
    ]
    search = record("palbert", "rte", 0.8, phase="search", config={"q": q})
    study = write_study(folder, [search, *records], seeds=3)
    for row in load_study(study).records_by_arm["palbert/rte"][1:]:
        if row.seed in missing:
            continue
        arrays = {"ids": np.arange(2), "split": np.array(["dev"] * 2), "labels": np.zeros(2), "logits": np.eye(2)[None]}
        swept = {"sweep_setting": [0.4, 0.2], "sweep_score": [0.9, 0.5], "sweep_mean_layers": [9.0, 3.0]}
        arrays |= {name: np.array(values) for name, values in swept.items()}
        exits = {"sweep_rule": np.array(["threshold"] * 2), "exit_layers": np.array([[6, 12]])}
        exits |= {"layer_logits": np.zeros((12, 2, 2)), "sweep_field": np.array(["q"] * 2)}
        exits["sweep_rule_fields"] = np.array([f'{{"q": {q}}}' for q in swept["sweep_setting"]])
        store_predictions(study, row.key, arrays | exits)
    return read_cell(load_study(study), "palbert", "rte")


def test_unswept_own_setting_joins_sweep(tmp_path):
    (sweep,) = read_exits(swept_cell(tmp_path)).sweeps
    assert sweep.settings.tolist() == [0.2, 0.3, 0.4]
    assert sweep.scores[:, 1].tolist() == pytest.approx([0.7, 0.71, 0.72])
    assert sweep.mean_layers.tolist() == [[3, 6, 9], [3, 7, 9], [3, 8, 9]]


def test_predictions_of_some_seeds_alone_make_no_sweep(tmp_path):
    exits = read_exits(swept_cell(tmp_path, missing=(43,)))
    assert (exits.sweeps, exits.shares) == ((), None)
    assert len(exits.scores) == 3


def test_sweep_keeps_settings_that_every_seed_has(tmp_path):
    """The first seed was not swept: an own method may get its settings before further seeds."""
    cell = swept_cell(tmp_path)
    path = predictions_file(cell.studies[0].folder, cell.records[0].key)
    with np.load(path) as file:
        arrays = {name: array[:0] if name.startswith("sweep_") else array for name, array in file.items()}
    np.savez(path, **arrays)
    (sweep,) = read_exits(cell).sweeps
    assert (sweep.field, sweep.settings.tolist()) == ("q", [0.3])


def test_cell_without_records_has_no_exits(tmp_path):
    study = write_study(tmp_path, [], methods=["palbert"], tasks=["rte"])
    assert read_exits(read_cell(load_study(study), "palbert", "rte")) is None


def test_posterior_is_the_mean_probability_of_leaving_of_each_seed(cells):
    exits = read_exits(cells["palbert"])
    stored = read_predictions(cells["palbert"].find_study(cells["palbert"].records[0]), cells["palbert"].records[0])
    assert exits.posterior.shape == (5, 12)
    assert exits.posterior[0].tolist() == pytest.approx(stored.exit_probabilities.mean(axis=1).tolist())
    assert read_exits(cells["pabee"]).posterior is None


def test_every_exit_setting_has_its_score_layers_and_speed_up(tmp_path):
    evidence = gather([load_study(swept_study(tmp_path / "made", ["albert", "pabee"], ["rte"]))])
    settings = exits_table(evidence).sidecar["settings"]
    sweep = evidence.exits["pabee", "rte"].sweeps[0]
    number = sweep.settings.tolist().index(3.0)
    layers = float(np.median(sweep.mean_layers[:, number]))
    coins = evidence.score_coins(("pabee", "rte"), sweep.mean_layers[None, :, number])
    (found,) = [own for own in settings if own["row"] == "pabee" and own["patience"] == 3]
    assert found == {
        "row": "pabee",
        "task": "rte",
        "rule": "patience",
        "patience": 3,
        "score": pytest.approx(100 * np.median(sweep.scores[:, number])),
        "coin": pytest.approx(100 * np.median(coins)),
        "mean_layers": pytest.approx(layers),
        "speed_up": pytest.approx(12 / layers),
    }
    assert {own["row"] for own in settings} == {"pabee"}  # albert has one exit, the last layer


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules") / "s"
    return gather([load_study(swept_study(folder, ["albert", "pabee", "palbert"], ["rte", "stsb"]))])


def test_every_rule_is_read_from_the_outputs_of_all_seeds(evidence):
    names = ["patience", "fixed", "entropy", "max_probability", "pcee", "f-pabee", "beem"]
    assert [sweep.rule for sweep in evidence.rules["pabee", "rte"]] == names
    assert [sweep.rule for sweep in evidence.rules["palbert", "rte"]] == ["threshold", "fixed", "patience", *names[2:]]
    assert [sweep.rule for sweep in evidence.rules["pabee", "stsb"]] == ["patience", "fixed"]
    assert ("albert", "rte") not in evidence.rules
    cell = evidence.cells_by_place["pabee", "rte"]
    entropy = evidence.rules["pabee", "rte"][2]
    for seed, row in enumerate(cell.records):
        stored = read_predictions(cell.find_study(row), row)
        result = apply_exit(Entropy(0.7), stored.outputs)
        place = entropy.settings.tolist().index(0.7)
        assert entropy.mean_layers[seed, place] == result.exit_layer.mean()
        assert entropy.scores[seed, place] == np.mean(result.logits.argmax(1) == stored.labels)


def test_rules_have_gains_near_three_layer_shares(evidence):
    table = exits_table(evidence)
    (block,) = (block for block in table.blocks if block.title == RULES)
    lines = {line.label: line.entries for line in block.lines}
    stored = read_cell_predictions(evidence.cells_by_place["pabee", "rte"])
    (gain,) = measure_gains(stored, [apply_setting(FixedLayer(6), stored)])
    entries = lines["pabee/rte, fixed"]
    assert entries["mean_layers"].text == "6.00" and entries["gain"].numbers["_setting"] == "6"
    assert entries["gain"].text == "all at layer 6"  # a fixed layer chooses nothing
    expected = [100 * gain.mean, 100 * gain.interval.low, 100 * gain.interval.high]
    assert [entries["gain"].values[name] for name in ("", "_low", "_high")] == pytest.approx(expected)
    assert len(block.lines) == 7 + 2 + 8 + 2 and any("STS-B: the labels are scores" in note for note in table.notes)
    rules = {(one["row"], one["task"], one["rule"]): one for one in table.sidecar["rules"]}
    beem, fixed = rules["pabee", "rte", "beem"], rules["pabee", "rte", "fixed"]
    assert len(beem["settings"]) == 11 and np.shape(beem["scores"]) == (5, 11)
    assert fixed["at_50"] == dict(
        zip(("gain", "low", "high", "layers", "setting"), (*map(pytest.approx, expected), 6, 6), strict=True)
    )
    assert fixed["at_25"]["layers"] == 3


def test_exits_table_has_six_columns_and_four_sentences(evidence):
    table = exits_table(evidence)
    assert list(table.columns) == ["mean_layers", "gain", "fewest_layers", "megaflops", "difference"]
    assert len(re.findall(r"\.(?: |$)", table.caption)) <= 4


def test_rule_without_a_setting_near_a_share_has_a_gap_there():
    far = Sweep("beem", "evidence", np.array([1.0]), np.array([[7.9], [8.1]]), np.zeros((2, 1)))
    assert far.nearest(9, within=1.0) == 0 and far.nearest(9, within=0.9) is None


def test_rule_of_an_included_method_joins_sweeps_fronts_and_tables(tmp_path):
    study = load_study(swept_study(tmp_path / "made", ["albert", "pabee"], ["rte"]))
    for path in (study.folder / "predictions").glob("*.npz"):
        arrays = dict(np.load(path))
        np.savez(path, **arrays | {"sweep_rule": np.array(["margin"] * len(arrays["sweep_rule"]), dtype=np.str_)})
    made = gather([study])
    assert [sweep.rule for sweep in made.exits["pabee", "rte"].sweeps] == ["margin"]
    assert [sweep.rule for sweep in made.rules["pabee", "rte"]][:3] == ["margin", "fixed", "patience"]
    assert ("pabee", "rte") not in made.curves  # whose answers only that method knows
    table = exits_table(made)
    margin = next(line for line in table.blocks[0].lines if line.label == "pabee/rte, margin")
    assert {entry.text for entry in margin.entries.values()} == {"–"}
    assert ("pabee", "rte") in made.gains  # its own answers are stored
    assert ("pabee", 3.0) in [(own["row"], own["patience"]) for own in table.sidecar["settings"]]
