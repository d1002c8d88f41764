"""Measured time in tables: pytest tests/analysis/test_latency_table.py"""

import csv

from helpers.made_studies import arm, made_latency, write_study
from msgspec.structs import replace

from analysis.tables import write_tables
from study.facts.record import Record
from trainables.runs.trial import Latency

SCORES = [0.70, 0.74, 0.71]


def latency(early: float, whole: float) -> Latency:
    """Milliseconds with the exit and with all 12 layers, at every batch size."""
    return made_latency(12, lambda layers, _: {6.0: early, 12.0: whole}[layers])


def timed_arm(*milliseconds: tuple[float, float]) -> list[Record]:
    search, *confirm = arm("palbert", "rte", SCORES[: len(milliseconds)])
    return [search, *(replace(row, latency=latency(*own)) for row, own in zip(confirm, milliseconds, strict=True))]


def test_measured_time_stands_beside_the_layer_ratio_median_over_seeds(tmp_path):
    write_tables([write_study(tmp_path, timed_arm((10.0, 15.0), (10.0, 13.0), (1.0, 9.0)))], tmp_path)
    with (tmp_path / "speed.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert [row[f"time_ratio_{size}"] for size in (1, 32)] == ["1.50"] * 2
    text = (tmp_path / "speed.md").read_text()
    assert "so many times less time, in batches of 1, 32 on A Processor, 1 thread" in text
    with (tmp_path / "latency.csv").open() as file:
        own, whole = csv.DictReader(file)
    assert own["arm"] == "palbert/rte, threshold 0.5 (its own)" and whole["arm"] == "palbert/rte, all layers"
    assert (own["layer_ratio"], own["gigaflops"], own["milliseconds_8"]) == ("2.00", "0.600", "10.00")
    assert (whole["layer_ratio"], whole["milliseconds_8"], whole["time_ratio_8"]) == ("1.00", "13.00", "1.00")


def test_where_nothing_was_timed_nothing_is_said_of_time(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES))], tmp_path)
    with (tmp_path / "speed.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["time_ratio_1"] == "" and "less time" not in (tmp_path / "speed.md").read_text()
    assert not (tmp_path / "latency.csv").exists()
