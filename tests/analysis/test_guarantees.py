"""The exits in the table `exits` that are shown to be safe: pytest tests/analysis/test_guarantees.py"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.made_studies import arm, edit_records, write_study
from helpers.swept_studies import swept_study
from scipy.stats import binom

from analysis.layouts.evidence import gather
from analysis.layouts.exit_tables import CHOSEN_ON_DEV, SAFE, exits_table
from analysis.layouts.table import Line, Table
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_cell_predictions


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "s"
    return gather([load_study(swept_study(folder, ["albert", "palbert", "pabee"], ["rte", "stsb"], examples=277))])


@pytest.fixture(scope="module")
def table(evidence) -> Table:
    return exits_table(evidence)


def safe_lines(table: Table) -> list[Line]:
    """The lines of the block of guarantees."""
    return next(block.lines for block in table.blocks if block.title == SAFE)


@pytest.mark.slow
def test_classifiers_with_exit_settings_have_a_guarantee_for_each_rule(table):
    places = [tuple(own[name] for name in ("row", "task", "rule")) for own in table.sidecar["guarantees"]]
    assert places == [("palbert", "rte", "threshold"), ("pabee", "rte", "patience")]
    rules = ("palbert/rte, threshold", "pabee/rte, patience")
    assert [line.label for line in safe_lines(table)] == [f"{rule}, {risk} %" for rule in rules for risk in (1, 2, 5)]


def test_nothing_is_shown_safe_at_one_percent_by_277_examples(table):
    for own in table.sidecar["guarantees"]:
        assert own["lost_1_percent"] == {"with_labels": 12.0, "without": 12.0}
        assert own["lost_5_percent"]["with_labels"] < 12.0


def test_risk_that_no_exit_keeps_is_none_in_the_table(tmp_path):
    few = gather([load_study(swept_study(tmp_path / "s", ["pabee"], ["rte"], examples=100))])
    one, two, five = (line.entries["mean_layers"] for line in safe_lines(exits_table(few)))
    assert (one.text, one.numbers, two.text) == ("none", {"": "12.00"}, "none")
    assert five.text == "none" or float(five.text) < 12


def test_the_score_of_the_last_layer_stands_beside_each_guarantee(evidence, table):
    for own in table.sidecar["guarantees"]:
        stored = read_cell_predictions(evidence.cells_by_place[own["row"], "rte"])
        scores = [100 * np.mean(each.layer_answers[-1] == each.labels) for each in stored]
        assert own["last_layer"] == pytest.approx(np.median(scores))


def test_epochs_chosen_on_dev_weaken_guarantees(table, tmp_path):
    assert [note for note in table.notes if CHOSEN_ON_DEV in note]
    last = swept_study(tmp_path / "s", ["pabee"], ["rte"], examples=277)
    edit_records(last, lambda rows: [row["config"].update(select="last") for row in rows])
    assert not [note for note in exits_table(gather([load_study(last)])).notes if CHOSEN_ON_DEV in note]


def test_layers_are_the_median_over_seeds_of_the_boldest_safe_patience(evidence, table):
    layers = []
    for predictions in read_cell_predictions(evidence.cells_by_place["pabee", "rte"]):
        answers, found = predictions.layer_answers, 12.0
        for setting in range(12, 0, -1):
            run = []
            for column in answers.T:
                same = np.flatnonzero([(column[i : i + setting + 1] == column[i]).all() for i in range(12 - setting)])
                run.append(same[0] + setting + 1 if len(same) else 12)
            own = answers[np.array(run) - 1, np.arange(277)]
            lost = ((answers[-1] == predictions.labels) & (own != predictions.labels)).sum()
            if binom.cdf(lost, 277, 0.05) > 0.05:
                break
            found = float(np.mean(run))
        layers.append(found)
    own = next(own for own in table.sidecar["guarantees"] if own["row"] == "pabee")
    assert own["lost_5_percent"]["with_labels"] == pytest.approx(np.median(layers))
    line = next(line for line in safe_lines(table) if line.label == "pabee/rte, patience, 5 %")
    assert line.entries["mean_layers"].text == f"{np.median(layers):.2f}"


def test_predictions_without_outputs_of_layers_promise_nothing(tmp_path):
    table = exits_table(gather([load_study(write_study(tmp_path, arm("pabee", "rte", [0.7] * 5)))]))
    assert table.sidecar["guarantees"] == table.sidecar["rules"] == table.blocks == []
