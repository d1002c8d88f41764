"""Verdicts, spread, equal compute and layers: pytest tests/analysis/test_more_tables.py"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
import shutil

import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.made_studies import (
    arm,
    config_of,
    edit_records,
    predicted_study,
    read_table,
    record,
    write_study,
)
from helpers.places import ROOT
from helpers.swept_studies import swept_study
from msgspec.structs import replace

from analysis.layouts.paper_tables import ON_THESE_ROWS
from analysis.layouts.rendering import json_text
from analysis.layouts.table import Line, Table
from analysis.studies.load import load_study
from analysis.tables import make_tables, render_files, table_files, write_tables
from trainables.runs.trial import TextFlops


def tables_of(folder) -> dict[str, Table]:
    return {table.name: table for table in make_tables([load_study(folder)])}


def line(table: Table, label: str):
    return next(line.entries for line in table.lines if line.label == label)


def all_lines(tables: dict[str, Table]) -> list[Line]:
    return [line for table in tables.values() for block in table.parts for line in block.lines]


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> dict[str, Table]:
    folder = tmp_path_factory.mktemp("runs") / "swept"
    return tables_of(swept_study(folder, ["albert", "pabee", "palbert"], ["rte", "sst2"], searches=24))


def test_published_numbers_all_have_counted_verdicts(tmp_path):
    near = arm("albert", "rte", [0.764, 0.765, 0.766, 0.765, 0.764])
    far = arm("palbert", "rte", [0.70, 0.701, 0.70, 0.702, 0.699])
    tables = tables_of(write_study(tmp_path, near + far))
    verdicts = tables["verdicts"]
    assert line(verdicts, "albert - ALBERT (Tab.2)")["rte"].mark == "="
    assert line(verdicts, "palbert - PALBERT (Tab.2)")["rte"].mark == "(≠)"
    assert line(verdicts, "palbert - PALBERT (Tab.2)")["rte"].text == "-8.3"
    told = "our numbers are compared with 2 published numbers: 1 reproduced, 1 not by this configuration"
    assert any(note.startswith(told) for note in tables["dev"].notes)


@pytest.mark.parametrize(
    ("spread", "status", "mark"),
    [(0.001, "completed", "≠"), (0.06, "completed", "?"), (0.001, "stopped", "(≠)")],
)
def test_a_verdict_knows_what_another_search_would_change(tmp_path, spread, status, mark):
    searched = [
        record("palbert", "rte", 0.70 - spread * i, phase="search", seed=9 + i, trial=1 + i, config=config_with(i))
        for i in range(7)
    ]
    searched[-1] = replace(searched[-1], status=status)
    confirmed = arm("palbert", "rte", [0.70, 0.701, 0.70, 0.702, 0.699])
    tables = tables_of(write_study(tmp_path, [*confirmed, *searched], samples=8))
    assert line(tables["verdicts"], "palbert - PALBERT (Tab.2)")["rte"].mark == mark


def config_with(number):
    return config_of("palbert") | {"learning_rate": 1e-5 + 1e-6 * (number + 1)}


def test_number_with_unknown_seed_count_has_no_verdict(tmp_path):
    tables = tables_of(write_study(tmp_path, arm("pabee", "rte", [0.80, 0.81, 0.80, 0.79, 0.80])))
    labels = " ".join(line.label for line in tables["verdicts"].lines)
    assert "PABEE README" not in labels and "(Tab.2)" in labels


def test_pabee_s_table_has_parameters_and_speed_of_ours_and_theirs(tmp_path):
    table = tables_of(write_study(tmp_path, arm("pabee", "rte", [0.8] * 5, mean_layers=8.0)))["published"]
    ours, theirs = line(table, "pabee"), line(table, "published PABEE (1.57x)")
    assert (ours["parameters_millions"].text, ours["speed_up"].text) == ("12", "1.50")
    assert (theirs["parameters_millions"].text, theirs["speed_up"].text, theirs["rte"].text) == ("12", "1.57", "80.1")


@pytest.mark.slow
def test_every_published_row_stands_in_some_table(swept):
    """Of the papers that have a layout."""
    printed = {line.label for line in all_lines(swept) if line.published}
    for label in ("PABEE (1.62x)", "PABEE (2.42x)", "BERT-base", "ALBERT-large", "ALBERT-9L", "PonderNet + Q-exit"):
        assert f"published {label}" in printed


def test_exits_have_layers_and_difference_beside_the_baseline(tmp_path):
    layers = [1.0, 1.0, 1.0, 5.33, 1.0]
    records = [
        record("palbert", "rte", 0.7, phase="search", seed=1),
        record("albert", "rte", 0.7, phase="search", seed=1),
    ]
    texts = (TextFlops(tokens=9, by_layer=tuple(range(1, 13))),)
    for method in ("albert", "palbert"):
        own = layers if method == "palbert" else [12.0] * 5
        records += [
            record(method, "rte", 0.7, seed=42 + i, mean_layers=ran, text_flops=texts) for i, ran in enumerate(own)
        ]
    table = tables_of(write_study(tmp_path, records))["exits"]
    entries = line(table, "palbert/rte")
    assert entries["mean_layers"].text == "1.00 of 12" and "medians over seeds" in table.caption
    assert entries["mean_layers"].numbers == {"": "1.00", "_low": "1.00", "_high": "5.33", "_of": "12"}
    assert entries["megaflops"].text == "–"  # no predictions are stored


def test_exits_have_a_gain_and_the_tested_difference(swept):
    entries = line(swept["exits"], "palbert/rte")
    assert entries["difference"].values == line(swept["comparisons"], "palbert - albert, RTE")["difference"].values
    assert "gain" in entries and "gain" not in line(swept["exits"], "albert/rte")


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("dev", "points"),
        ("exits", "points"),  # layers and megaflops have their unit in the column's name
        ("published", "points; speed_up: ratio"),
        ("comparisons", "points; p_value, adjusted_p_value: probability"),
    ],
)
def test_unit_names_the_columns_that_are_not_in_points(swept, name, unit):
    assert swept[name].unit == unit


def test_sources_tell_seed_examples_search_and_epoch_apart(tmp_path):
    study = predicted_study(tmp_path, {"palbert": 0.7}, ["rte"])
    entries = line(tables_of(study)["sources"], "palbert/rte")
    assert list(entries) == ["seed", "dev_examples", "search", "best_minus_last"]
    assert float(entries["dev_examples"].numbers[""]) == pytest.approx(100 * (0.7 * 0.3 / 400) ** 0.5, rel=0.2)
    assert entries["best_minus_last"].text == "+10.0"  # epoch 3 of 8, each epoch 2 points below


def test_json_has_the_numbers_of_the_csv_with_all_digits(swept):
    for name, table in swept.items():
        full, printed = (table_files(table)[f"{name}.{ending}"] for ending in ("json", "csv"))
        for fields, row in zip(json.loads(full)["lines"], csv.DictReader(io.StringIO(printed)), strict=True):
            for column in row.keys() - {"unit"}:
                value = fields.get(column, "")
                if isinstance(value, str):
                    assert value == row[column] and not re.fullmatch(r"[-+]?[\d.e-]+", value), (name, column)
                else:
                    assert value == pytest.approx(float(row[column]), rel=0.05, abs=0.06), (name, column)


def test_json_is_read_by_strict_parsers(swept):
    table = swept["comparisons"]
    (line, *_) = table.lines
    endless = dataclasses.replace(line.entries["difference"], values={"": 1.0, "_freedom": math.inf})
    table = dataclasses.replace(table, lines=[dataclasses.replace(line, entries={"difference": endless})], blocks=[])
    (fields,) = json.loads(json_text(table), parse_constant=pytest.fail)["lines"]
    assert fields["difference"] == 1.0 and "difference_freedom" not in fields


def test_json_has_standard_errors_of_tests_and_seconds_of_compute(swept):
    compared, compute = (json.loads(json_text(swept[name]))["lines"][0] for name in ("comparisons", "compute"))
    assert compared["difference_standard_error"] > 0 and compared["difference_freedom"] >= 4
    assert compute["together_gpu_seconds"] + compute["together_cpu_seconds"] > 0


def test_means_in_json_are_scores_of_cells(swept):
    mean = next(one for one in swept["dev"].sidecar["means"] if (one["row"], one["task"]) == ("palbert", "rte"))
    values = line(swept["dev"], f"palbert, mean, {ON_THESE_ROWS}")["rte"].values
    assert (100 * mean["low"], 100 * mean["high"]) == (values["_low"], values["_high"])


def test_equal_compute_is_left_out_of_short_searches(tmp_path):
    short = swept_study(tmp_path / "s", ["albert", "palbert"], ["rte"], searches=8)
    assert "equal_compute" not in tables_of(short)


def test_equal_compute_is_in_every_unit(swept):
    entries = line(swept["equal_compute"], "palbert/rte")
    assert [*entries] == ["equal_trials", "equal_epochs", "equal_examples", "equal_seconds"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": 0.7}, "the mean of accuracy is 0.725"),
        ({"metrics": {}}, "metrics lack accuracy"),
        ({"metrics": {"accuracy": 72.5}}, "but the mean of accuracy is 72.5"),
    ],
)
def test_impossible_record_is_one_line_with_place(tmp_path, change, message):
    folder = write_study(tmp_path, arm("albert", "rte", [0.725] * 5))
    edit_records(folder, lambda rows: rows[2].update(change))
    with pytest.raises(ValueError, match=rf"events.jsonl: record '\w+' of albert/rte: .*{message}") as refused:
        load_study(folder)
    assert "\n" not in str(refused.value)


def test_files_of_dropped_tables_are_removed(tmp_path):
    folder = swept_study(tmp_path / "s", ["albert", "palbert"], ["rte"])
    write_tables([folder], tmp_path / "out")
    assert (tmp_path / "out" / "comparisons.md").exists()
    (tmp_path / "out" / "notes.md").write_text("mine")
    shutil.rmtree(folder / "predictions")
    written = render_files(write_tables([folder], tmp_path / "out")).keys()
    assert {path.name for path in (tmp_path / "out").iterdir()} == written | {"notes.md"}


def test_every_published_number_is_printed_by_some_layout(tmp_path):
    """Dev scores on ALBERT, BERT or RoBERTa; test scores have a table of their own."""
    albert = write_study(tmp_path / "a", arm("albert", "sst2", [0.7] * 5) + arm("electra-small", "sst2", [0.7] * 5))
    roberta = write_study(tmp_path / "r", arm("albert", "sst2", [0.7] * 5), backbone="FacebookAI/roberta-base")
    bert = write_study(tmp_path / "b", arm("albert", "sst2", [0.7] * 5), backbone="google-bert/bert-base-uncased")
    printed = {
        line.label for folder in (albert, bert, roberta) for line in all_lines(tables_of(folder)) if line.published
    }
    facts = read_table(ROOT / "analysis" / "published.csv")
    assert {f"published {fact['label']}" for fact in facts if fact["split"] != "test"} - printed == set()


def test_winners_table_has_line_per_search(tmp_path):
    study = load_study(launched_study(tmp_path / "s", mini_plan()))
    table = next(table for table in make_tables([study]) if table.name == "winners")
    arms = ["albert/rte", "albert/mrpc", "pondernet/rte", "pondernet/mrpc"]
    assert [line.label for line in table.lines] == [*arms, "albert, searched in", "pondernet, searched in"]
    assert {*table.lines[0].entries} == {"learning_rate"} and "beta" in table.lines[2].entries
    repeated = next(record for record in study.records_by_arm["albert/rte"] if record.phase == "confirm")
    assert table.lines[0].entries["learning_rate"].text == f"{repeated.config['learning_rate']:.3g}"
