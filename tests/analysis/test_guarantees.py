"""The table of exits that are shown to be safe: pytest tests/analysis/test_guarantees.py"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.made_studies import arm, edit_records, write_study
from helpers.swept_studies import swept_study
from scipy.stats import binom

from analysis.layouts.cost_tables import guarantees_table
from analysis.layouts.evidence import gather
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_cell_predictions


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "s"
    return gather([load_study(swept_study(folder, ["albert", "palbert", "pabee"], ["rte", "stsb"], examples=277))])


def test_classifiers_with_exit_settings_have_a_line_for_each_rule(evidence):
    table = guarantees_table(evidence)
    assert [line.label for line in table.lines] == ["palbert/rte, threshold", "pabee/rte, patience"]
    assert table.unit.startswith("layers; last_layer: points") and "by itself with 95 % confidence" in table.caption


def test_nothing_is_shown_safe_at_one_percent_by_277_examples(evidence):
    for line in guarantees_table(evidence).lines:
        assert line.entries["confident_1"].text == "none / none"
        assert line.entries["confident_1"].numbers == {"_with_labels": "12.00", "_without": "12.00"}
        assert "none" not in line.entries["confident_5"].text


def test_the_score_of_the_last_layer_stands_beside_each_guarantee(evidence):
    table = guarantees_table(evidence)
    assert next(iter(table.shown.values())) == "last layer" and "few right answers has few to lose" in table.caption
    for line, method in zip(table.lines, ("palbert", "pabee"), strict=True):
        stored = read_cell_predictions(evidence.cells_by_place[method, "rte"])
        scores = [100 * np.mean(own.layer_answers[-1] == own.labels) for own in stored]
        assert line.entries["last_layer"].text == f"{np.median(scores):.1f}"


def test_epochs_chosen_on_dev_weaken_guarantees(evidence, tmp_path):
    (note,) = guarantees_table(evidence).notes
    assert note.startswith("each model's epoch was chosen on the same dev set")
    last = swept_study(tmp_path / "s", ["pabee"], ["rte"], examples=277)
    edit_records(last, lambda rows: [row["config"].update(select="last") for row in rows])
    assert guarantees_table(gather([load_study(last)])).notes == []


def test_layers_are_the_median_over_seeds_of_the_boldest_safe_patience(evidence):
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
    line = next(line for line in guarantees_table(evidence).lines if line.label.startswith("pabee"))
    assert line.entries["confident_5"].numbers["_with_labels"] == f"{np.median(layers):.2f}"


def test_predictions_without_outputs_of_layers_promise_nothing(tmp_path):
    assert guarantees_table(gather([load_study(write_study(tmp_path, arm("pabee", "rte", [0.7] * 5)))])) is None
