"""Times per text and their ratios: pytest tests/analysis/test_times.py"""

from __future__ import annotations

import re
import shlex
from contextlib import closing

import numpy as np
import pytest
from helpers.made_studies import CONFIG, arm, evidence_of, read_table, write_study
from helpers.timed_studies import timed_study
from msgspec.structs import replace

import analysis
from analysis.layouts.answer import summary_table
from analysis.layouts.certainty_tables import scores_on_test_table
from analysis.layouts.evidence import gather
from analysis.layouts.time_tables import describe_times, times_table
from analysis.pictures import study_pictures
from analysis.pictures.time_picture import time_picture
from analysis.statistics.times import (
    LayerCosts,
    Measurement,
    Ratio,
    Times,
    compare_times,
    find_error,
    find_scale,
    list_measurements,
)
from analysis.studies.load import load_study
from analysis.tables import write_tables
from study import drop
from study.facts.events import ModelOnTest, ScoredOnTest
from study.facts.journal import Journal
from trainables.models.exit_rules import Patience, Threshold
from trainables.runs.times import TimedModel

MEANS = {"albert": 10.0, "palbert": 13.0, "pabee": 10.0}


def study_of(folder, *methods: str, seeds: int = 5, **measured):
    """A study whose models take `MEANS` for a text alone, and a tenth of it in a batch of 32."""
    records = [row for method in methods for row in arm(method, "rte", [0.7] * seeds)]
    write_study(folder, records, seeds=seeds)
    return timed_study(folder, lambda record, size: MEANS[record.method] / (10 if size > 1 else 1), **measured)


def times_of(*means: float, noise: float, seed: int, texts: int = 100) -> Times:
    rng = np.random.default_rng(seed)
    found = np.array(means)[:, None] * np.linspace(0.8, 1.2, texts) * (1 + noise * rng.normal(size=(len(means), 1)))
    rounds = found.mean(axis=1, keepdims=True) * (1 + noise * rng.normal(size=(len(means), 5)))
    return Times([*range(len(means))], found, rounds)


def test_ratio_of_slower_method_excludes_one():
    ratio = compare_times(times_of(13, 13, 13, noise=0.01, seed=0), times_of(10, 10, 10, noise=0.01, seed=1))
    assert ratio.differs and ratio.low < 1.3 < ratio.high and ratio.low > 1.2


def test_ratio_of_equal_methods_holds_one():
    ratio = compare_times(times_of(10, 10, 10, noise=0.01, seed=0), times_of(10, 10, 10, noise=0.01, seed=1))
    assert not ratio.differs and ratio.low < 1 < ratio.high


def test_equal_seeds_are_compared_in_pairs():
    """Models of one seed are equally slow in both methods."""
    own, other = (times_of(10, 20, 40, noise=0.001, seed=seed) for seed in (0, 1))
    assert compare_times(own, other).high < 1.01
    unpaired = Times([7, 8, 9], other.texts, other.rounds)
    assert compare_times(own, unpaired).high > 2


def test_one_seed_has_an_interval_over_rounds_and_texts():
    ratio = compare_times(times_of(13, noise=0.01, seed=0), times_of(10, noise=0.01, seed=1))
    assert 0.005 < ratio.high - ratio.low < 0.2 and ratio.low < ratio.value < ratio.high


def test_two_copies_of_one_model_rarely_differ():
    """A text's time is a median over rounds, which varies more than their mean."""
    rng, texts = np.random.default_rng(1), np.linspace(0.8, 1.2, 100)

    def measure_copy() -> Times:
        rounds = texts * (1 + 0.02 * rng.normal(size=(5, 1)))
        return Times([0], np.median(rounds, axis=0)[None], rounds.mean(axis=1)[None])

    assert sum(compare_times(measure_copy(), measure_copy()).differs for _ in range(500)) <= 0.05 * 500


def test_interval_of_a_time_holds_no_negative_time():
    times = Times([1, 2], np.array([[1.0, 1.1], [2.0, 2.2]]), np.ones((2, 3)))
    assert times.interval.low == 0 < times.mean < times.interval.high


def test_interval_of_a_time_allows_for_rounds_in_which_all_models_are_slow():
    texts, rounds = np.full((5, 40), 10.0), np.array([9.0, 11.0, 10.0])
    steady, drifting = (Times([*range(5)], texts, np.tile(own, (5, 1))) for own in (np.full(3, 10.0), rounds))
    assert (steady.interval.low, steady.interval.high) == (10.0, 10.0)
    assert drifting.interval.low < 9 and drifting.interval.high > 11


def test_a_machine_that_slows_all_models_alike_is_no_disturbance(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert", spread=0.005, drift=(1.0, 1.3, 0.8, 1.1, 0.9))
    (made,) = list_measurements([analysis.load(folder).study])
    assert not made.disturbance and made.spread == pytest.approx(0.005, rel=0.5)


def test_times_are_not_trusted_if_those_of_one_task_vary(tmp_path):
    records = [row for task in ("rte", "mrpc", "cola") for name in MEANS for row in arm(name, task, [0.7] * 5)]
    write_study(tmp_path / "s", records, seeds=5)
    timed_study(tmp_path / "s", lambda record, size: MEANS[record.method], sizes=(1,))
    assert not list_measurements([load_study(tmp_path / "s")])[0].disturbance
    rng = np.random.default_rng(0)
    with closing(Journal(tmp_path / "s")) as journal:
        event, trials = journal.facts.times[-1], {record.key: record for record in journal.facts.records}
        models = [
            replace(model, rounds=tuple((np.array(model.rounds) * rng.uniform(0.8, 1.2, len(model.rounds))).tolist()))
            if trials[model.key].task == "rte" and model.exit == "own"
            else model
            for model in event.models
        ]
        journal.append(replace(event, time=journal.now(), host="node-2", models=models))
    made = next(made for made in list_measurements([load_study(tmp_path / "s")]) if made.event.host == "node-2")
    assert "relative to one another, varied by" in made.disturbance


def test_tensorfloat32_is_not_named_for_a_cpu(tmp_path):
    config = CONFIG | {"precision": "tensorfloat32"}
    records = [row for name in ("albert", "palbert") for row in arm(name, "rte", [0.7] * 5, config=config)]
    write_study(tmp_path / "s", records, seeds=5)
    timed_study(tmp_path / "s", lambda record, size: MEANS[record.method])
    assert "tensorfloat32" not in times_table(evidence_of(tmp_path / "s")).heading


def test_median_and_slow_texts_are_over_texts_and_seeds():
    times = Times([1, 2], np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 30.0]]), np.ones((2, 3)))
    assert (times.mean, times.median) == (6.5, 2.0)
    assert times.slow == pytest.approx(np.percentile([1, 2, 3, 1, 2, 30], 90))


def test_table_has_milliseconds_ratios_and_parts_of_a_layer(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert", "pabee")
    write_tables([folder], tmp_path)
    rows = {row["arm, texts per batch"]: row for row in read_table(tmp_path / "times.csv")}
    assert float(rows["albert/rte, 1"]["mean_ms"]) == pytest.approx(10, abs=0.1)
    assert float(rows["palbert/rte, 32"]["mean_ms"]) == pytest.approx(1.3, abs=0.02)
    assert rows["albert/rte, 1"]["ratio"] == "" and rows["palbert/rte, 1"]["ratio"] == "1.30"
    assert rows["palbert against pabee, rte, 1"]["ratio"] == "1.30"
    low, high = (float(rows["pabee/rte, 1"][f"ratio_{end}"]) for end in ("low", "high"))
    assert low <= 1 <= high
    assert float(rows["pabee/rte, 1"]["heads_ms"]) == pytest.approx(0.1 * 10 / 12, abs=0.001)
    assert "A Processor, 1 thread (host node-1, " in rows["albert/rte, 1"]["block"]


def test_times_of_large_models_have_no_exponent(tmp_path):
    folder = write_study(tmp_path / "s", arm("albert", "rte", [0.7] * 5))
    (line,) = times_table(evidence_of(timed_study(folder, lambda record, size: 1234.0, sizes=(1,)))).lines
    assert re.fullmatch(r"12\d\d \(1[12]\d\d to 1[23]\d\d\)", line.entries["mean_ms"].text)
    assert line.entries["slow_ms"].text.isdecimal()


def test_seeds_that_were_not_timed_are_named(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert", seeds=5, seeds_timed=(42, 44))
    evidence = evidence_of(folder)
    table = times_table(evidence)
    assert "), without seeds 43, 45, 46; " in table.heading and "5 seeds" not in table.title
    assert "), without seeds 43, 45, 46: 2 of each arm's models, " in describe_times(evidence)[-1]
    whole = evidence_of(study_of(tmp_path / "whole", "albert", "palbert", seeds=5))
    assert "without seeds" not in times_table(whole).heading and "5 seeds" in times_table(whole).title


def test_arms_and_seeds_that_a_measurement_lacks_are_named_and_an_earlier_one_that_has_them_stays(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert", "pabee", seeds=5)
    with closing(Journal(folder)) as journal:
        event, trials = journal.facts.times[-1], {record.key: record for record in journal.facts.records}
        gone = {
            key for key, one in trials.items() if one.method == "pabee" or (one.method, one.seed) == ("palbert", 44)
        }
        kept = {name: [one for one in getattr(event, name) if one.key not in gone] for name in ("models", "layers")}
        journal.append(replace(event, time=journal.now(), **kept))
    evidence = evidence_of(folder)
    table = times_table(evidence)
    assert "), without palbert/rte seed 44 and pabee/rte; " in table.heading and "5 seeds" not in table.title
    assert len(evidence.measurements) == 2 and "without" not in table.blocks[0].title
    cells = evidence.cells_by_place
    assert evidence.find_time_ratio(cells["pabee", "rte"], cells["albert", "rte"], 1) is not None


def test_slow_model_stays_in_times_after_its_run_was_dropped(tmp_path):
    slow = next(one for one in arm("palbert", "rte", [0.7] * 5) if (one.phase, one.seed) == ("confirm", 43))
    folder = write_study(tmp_path / "s", [row for name in ("albert", "palbert") for row in arm(name, "rte", [0.7] * 5)])
    timed_study(folder, lambda record, size: 40.0 if record.key == slow.key else 10.0, sizes=(1,))
    before = times_table(evidence_of(folder))
    assert drop.main([str(folder), slow.key, "--because", "it exits late"]) == 0
    evidence = evidence_of(folder)
    after = times_table(evidence)
    assert [line.entries for line in after.lines] == [line.entries for line in before.lines]
    assert after.heading == before.heading
    (made,), cell = evidence.measurements, evidence.cells_by_place["palbert", "rte"]
    assert cell.seeds == [42, 44, 45, 46] and made.read(cell, 1).seeds == [42, 43, 44, 45, 46]


def test_times_and_test_scores_are_of_their_own_study(tmp_path):
    """Two studies of one plan have trials with the same keys, but other models."""
    folders = [write_study(tmp_path / name, [*arm("albert", "rte", [0.7] * 5)], seeds=5) for name in "ab"]
    timed_study(folders[0], lambda record, size: 10.0)
    with closing(Journal(folders[0])) as journal:
        keys = [record.key for record in journal.facts.records if record.phase == "confirm"]
        models = [ModelOnTest(key=key, score=0.6, metrics={"accuracy": 0.6}, mean_layers=3.0) for key in keys]
        journal.append(ScoredOnTest(time="", task="rte", rows=9, labels_digest="0" * 64, models=models))
    evidence = gather([load_study(folder) for folder in folders], separate=True)
    for table in (times_table(evidence), scores_on_test_table(evidence)):
        assert {line.label.partition("/")[0] for line in table.lines} - {"published ALBERT"} == {"albert (a)"}


def test_times_of_one_model_per_arm_are_over_no_seeds(tmp_path):
    of_one, of_five = (
        times_table(evidence_of(study_of(tmp_path / str(seeds), "albert", "palbert", seeds=seeds))).caption
        for seeds in (1, 5)
    )
    assert "are over texts and seeds. " in of_five and "intervals over seeds, texts and rounds. " in of_five
    assert "are over texts. " in of_one and "intervals over texts and rounds. " in of_one


def test_precision_of_timed_models_is_named_if_it_is_not_float32(tmp_path):
    records = [
        replace(row, config=row.config | {"precision": "bfloat16"})
        for method in ("albert", "palbert")
        for row in arm(method, "rte", [0.7] * 3)
    ]
    write_study(tmp_path / "s", records, seeds=3)
    folder = timed_study(tmp_path / "s", lambda record, size: MEANS[record.method])
    evidence = evidence_of(folder)
    assert "), in bfloat16; " in times_table(evidence).heading
    assert "), in bfloat16: " in describe_times(evidence)[-1] and "), in bfloat16. " in time_picture(evidence).caption
    assert "float32" not in times_table(evidence_of(study_of(tmp_path / "exact", "albert", "palbert"))).heading


def test_all_precisions_of_a_mixed_measurement_are_named(tmp_path):
    exact, rounded = (arm(method, "rte", [0.7] * 3) for method in ("albert", "palbert"))
    rounded = [replace(row, config=row.config | {"precision": "bfloat16"}) for row in rounded]
    write_study(tmp_path / "s", [*exact, *rounded], seeds=3)
    folder = timed_study(tmp_path / "s", lambda record, size: MEANS[record.method])
    assert "), in bfloat16 and float32; " in times_table(evidence_of(folder)).heading


def test_ratio_is_of_the_newest_measurement_that_timed_both(tmp_path):
    older, newer = (
        study_of(tmp_path / name, *own) for name, own in {"a": ["albert", "palbert"], "b": ["pabee"]}.items()
    )
    summary = {line.label: line.entries for line in summary_table(evidence_of(older, newer)).parts[0].lines}
    assert summary["palbert/rte"]["time_ratio"].text.startswith("1.30 (")
    assert summary["pabee/rte"]["time_ratio"].text == "-"


def test_separate_studies_are_timed_against_their_own_plain_models(tmp_path):
    studies = [load_study(study_of(tmp_path / name, "albert", "palbert")) for name in ("a", "b")]
    evidence = gather(studies, separate=True)
    for row in evidence.rows:
        own, plain = (evidence.cells_by_place[row.label, "rte"], evidence.find_plain((row.label, "rte")))
        assert [study.folder for study in plain.studies] == [study.folder for study in own.studies]
    (sentence, *_) = (line for line in describe_times(evidence) if line.startswith("Time on RTE"))
    assert "palbert (b) takes 1.30 times" in sentence and "as long as albert (b)" in sentence


def test_studies_of_other_tasks_keep_their_own_times(tmp_path):
    folders = []
    for task in ("rte", "mrpc"):
        records = [row for method in ("albert", "palbert") for row in arm(method, task, [0.7] * 3)]
        write_study(tmp_path / task, records, seeds=3)
        folders.append(timed_study(tmp_path / task, lambda record, size: MEANS[record.method]))
    evidence = evidence_of(*folders)
    summary = {line.label: line.entries for line in summary_table(evidence).parts[0].lines}
    assert all(summary[f"palbert/{task}"]["time_ratio"].text.startswith("1.30 (") for task in ("rte", "mrpc"))
    sentences = describe_times(evidence)
    assert any(line.startswith("Time on RTE, in batches of 1:") for line in sentences)
    assert any(line.startswith("Time on MRPC, in batches of 1:") for line in sentences)
    assert sentences[-1].count("node-1") == 2
    _, unit = study_pictures._compare_costs(evidence, [*evidence.cells_by_place])
    assert unit.startswith("time per text")


def test_sentences_have_the_ratios_of_all_measurements_of_a_task(tmp_path):
    older, newer = (
        study_of(tmp_path / name, *own) for name, own in {"a": ["albert", "palbert"], "b": ["albert", "pabee"]}.items()
    )
    single, _, earlier, _, scope = describe_times(evidence_of(older, newer))
    assert "between pabee and albert" in single and "palbert" not in single
    assert earlier.startswith("Time on RTE, in batches of 1: palbert takes 1.30 times")
    assert scope.count("host node-1") == 2
    third = study_of(tmp_path / "c", "albert", "pabee", host="node-9")
    on_third, _, on_first, *_ = describe_times(evidence_of(older, third))
    assert on_third.startswith("Time on RTE on A Processor (host node-9), in batches of 1: ")
    assert on_first.startswith("Time on RTE on A Processor (host node-1), in batches of 1: ")
    again = timed_study(older, lambda record, size: 2 * MEANS[record.method], host="node-2")
    assert describe_times(evidence_of(again))[-1].count("host ") == 1  # the newest has every pair


def test_sentences_compare_all_pairs(tmp_path):
    evidence = evidence_of(study_of(tmp_path / "s", "albert", "palbert", "pabee"))
    single, *_ = describe_times(evidence)
    assert single.startswith("Time on RTE, in batches of 1: palbert takes 1.30 times (95 % CI 1.")
    assert "as long as albert; palbert takes 1.30 times" in single and "as long as pabee" in single
    assert "no difference in time was found between pabee and albert (ratio 1.00, 95 % CI 1.00 to 1.00" in single


def test_missed_ratio_is_found_with_80_percent_power():
    """Of pairs of measurements, the second has the ratio that the first would have found."""

    def measure(mean: float) -> Ratio:
        seed[0] += 2
        own, other = (
            times_of(*[time] * 5, noise=0.01, seed=seed[0] + place) for place, time in enumerate((mean, 10.0))
        )
        return compare_times(own, other)

    seed = [0]
    missed = [ratio.missed for ratio in (measure(10.0) for _ in range(200)) if not ratio.differs]
    assert np.mean([measure(10 * ratio).differs for ratio in missed]) == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize(("mean", "seeds"), [(13.0, 3), (10.0, 2)])
def test_ratio_that_differs_or_has_two_seeds_misses_nothing(mean, seeds):
    own, other = (times_of(*[time] * seeds, noise=0.01, seed=seed) for seed, time in enumerate((mean, 10.0)))
    assert compare_times(own, other).missed is None


@pytest.mark.parametrize(("seeds", "is_known"), [(1, False), (2, False), (3, True)])
def test_fewer_than_three_seeds_miss_nothing_although_texts_vary_more_than_they_do(seeds, is_known):
    rng, texts = np.random.default_rng(0), np.linspace(5, 15, 40)
    exits = np.where(np.arange(40) % 2, 1.5, 0.5)
    own, other = (
        Times([*range(seeds)], texts * own * rng.normal(1, 0.01, (seeds, 1)), np.full((seeds, 5), 10.0))
        for own in (exits, np.ones(40))
    )
    ratio = compare_times(own, other)
    assert not ratio.differs and (ratio.missed is not None) == is_known


@pytest.mark.parametrize("seeds", [[42, 43], [42, 43, 44]])
def test_single_model_is_compared_with_that_of_its_seed(seeds):
    own = Times(seeds, np.outer([10.0, 13.0, 13.0][: len(seeds)], np.ones(9)), np.ones((len(seeds), 3)))
    other = Times([43], np.full((1, 9), 10.0), np.ones((1, 3)))
    assert compare_times(own, other).value == pytest.approx(1.3)
    assert compare_times(other, own).value == pytest.approx(1 / 1.3)


def test_sentence_names_the_difference_that_would_have_been_found(tmp_path):
    evidence = evidence_of(study_of(tmp_path / "s", "albert", "pabee"))
    (made,), cells = evidence.measurements, evidence.cells_by_place
    missed = made.compare(cells["pabee", "rte"], cells["albert", "rte"], 1).missed
    found = f"; a difference of about {100 * (missed - 1):.1g} % would have been found with 80 % power)"
    assert found in describe_times(evidence)[0]


def test_sentence_warns_if_the_slowest_texts_of_a_faster_method_take_longer(tmp_path):
    """ALBERT's texts take 8 to 12 ms, PABEE's 5.4 to 12.6 ms."""
    found = arm("albert", "rte", [0.7] * 5) + arm("pabee", "rte", [0.7] * 5)
    for width, warns in ((0.4, True), (0.2, False)):
        folder = write_study(tmp_path / str(width), found)
        timed_study(folder, lambda record, size: 10 if record.method == "albert" else 9, widths={"pabee": width})
        single, *_ = describe_times(evidence_of(folder))
        assert "pabee takes 0.90 times" in single
        assert ("although its 90th percentile is 11.9 against 11.6 ms" in single) == warns


def test_models_texts_and_rounds_are_counted_with_the_disturbance(tmp_path):
    evidence = evidence_of(study_of(tmp_path / "s", "albert", "palbert", others=0.02))
    (made,) = evidence.measurements
    singles, batches = (len(made.read(evidence.cells_by_place["albert", "rte"], size).texts[0]) for size in (1, 32))
    rounds = len(made.read(evidence.cells_by_place["albert", "rte"], 1).rounds[0])
    counts = f"5 of each arm's models, {singles} texts alone and {batches} batches of 32, in {rounds} rounds; "
    for text in (times_table(evidence).heading, describe_times(evidence)[-1]):
        assert counts + "other programs used 2 % of the processors" in text
    first, *others = made.event.models
    event = replace(made.event, models=[replace(first, texts=first.texts[:3]), *others])  # of a task with fewer texts
    assert f"models, 3 to {singles} texts alone and {batches} batches" in Measurement(event, made.study).extent


@pytest.mark.parametrize("sizes", [(1,), (1, 32)])
def test_caption_explains_pairs_and_batches(sizes, tmp_path):
    caption = times_table(evidence_of(study_of(tmp_path / "s", "albert", "palbert", sizes=sizes))).caption
    assert "paired: same texts, same rounds" in caption
    assert ("until the last text has left" in caption) == (32 in sizes)


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        ({"others": 0.4}, "other programs used 40 % of the processors"),
        ({"spread": 0.2}, "between rounds"),
    ],
)
def test_times_of_a_busy_machine_are_in_no_sentence(measured, reason, tmp_path):
    evidence = evidence_of(study_of(tmp_path / "s", "albert", "palbert", **measured))
    assert "; not to be trusted: " in times_table(evidence).heading and reason in times_table(evidence).heading
    (line,) = describe_times(evidence)
    assert line.startswith("No times are compared: ") and reason in line
    assert line.endswith(f"To measure again on an idle machine: python -m study.time {tmp_path / 's'}")


def test_unmeasured_study_names_the_command(tmp_path):
    evidence = evidence_of(write_study(tmp_path / "s", arm("albert", "rte", [0.7] * 5)))
    assert times_table(evidence) is None
    assert describe_times(evidence) == [
        f"Times were not measured. To measure them: python -m study.time {tmp_path / 's'}"
    ]


def test_command_that_measures_quotes_the_folder(tmp_path):
    evidence = evidence_of(write_study(tmp_path / "my study", arm("albert", "rte", [0.7] * 5)))
    (line,) = describe_times(evidence)
    assert shlex.split(line)[-1] == str(tmp_path / "my study")


def test_another_machine_adds_a_block(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert")
    timed_study(folder, lambda record, size: 2 * MEANS[record.method], host="node-2")
    table = times_table(evidence_of(folder))
    assert "node-2" in table.heading
    (other,) = table.blocks
    assert "node-1" in other.title
    own, earlier = ({line.label: line.entries for line in lines} for lines in (table.lines, other.lines))
    assert own["albert/rte, 1"]["mean_ms"].values[""] == pytest.approx(20, abs=0.2)
    assert earlier["albert/rte, 1"]["mean_ms"].values[""] == pytest.approx(10, abs=0.2)


def test_newer_measurement_on_the_same_machine_replaces_the_earlier(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert")
    timed_study(folder, lambda record, size: 2 * MEANS[record.method])
    timed_study(folder, lambda record, size: 3 * MEANS[record.method], others=0.9)  # busy
    table = times_table(evidence_of(folder))
    assert not table.blocks
    assert table.lines[0].entries["mean_ms"].values[""] == pytest.approx(20, abs=0.2)


def test_measurement_of_other_batch_sizes_stands_beside_the_earlier(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert")
    timed_study(folder, lambda record, size: MEANS[record.method], sizes=(8,))
    assert [made.batch_sizes for made in list_measurements([load_study(folder)])] == [[1, 8], [1, 32]]


def test_note_explains_heads_that_take_as_long_as_a_layer(tmp_path):
    table = times_table(evidence_of(study_of(tmp_path / "s", "albert", "palbert", heads=1.0)))
    (note,) = [note for note in table.notes if "palbert" in note]
    assert "the heads of palbert on rte take 100 % of the encoder's time; its Λ reads the weights" in note


def test_note_explains_heads_in_an_earlier_measurement_too(tmp_path):
    """The newest measurement is of another study, and of another method."""
    folders = [study_of(tmp_path / method, method, heads=1.0) for method in ("palbert", "albert")]
    notes = times_table(evidence_of(*folders)).notes
    assert [note.partition(" on ")[0].rpartition(" ")[2] for note in notes] == ["palbert", "albert"]


def timed_layer(layer: int, *texts: float, rule: str = "threshold") -> TimedModel:
    numbers = {"batch_size": 1, "mean_layers": layer, "texts": texts, "rounds": (float(np.mean(texts)),) * 3}
    return TimedModel(key="k", exit="layer", rule=rule, at=layer, **numbers)


def test_times_of_settings_follow_from_layers_and_exits():
    deciding, cut = {layer: timed_layer(layer, float(layer)) for layer in range(1, 7)}, np.arange(0.5, 3.5, 0.5)
    costs = LayerCosts(deciding, {3: timed_layer(3, 2.0)}, cut, ())
    layers = np.array([1, 1, 6, 6])
    assert costs.compute(Threshold(0.5), layers) == 3.5
    assert costs.compute(Patience(2, None), np.array([3, 4])) == 2.5  # the first decision is after layer 3
    numbers = {"batch_size": 1, "mean_layers": 3.5, "texts": (4.0, 3.0), "rounds": (3.5,), "exit_layers": (1, 6)}
    check = TimedModel(key="k", exit="setting", rule="threshold", at=0.5, **numbers)
    costs = LayerCosts(deciding, {}, cut, (check, replace(check, texts=(7.0, 7.0))))
    assert find_error(costs, [Threshold(0.5)]) == 0.5
    assert find_error(costs, [Threshold(0.6)]) is None


def test_lines_are_scaled_from_the_texts_in_detail_to_all():
    """Every fifth text is timed in detail, here the shortest."""
    ascending = Times([0], np.array([[1.0, 2.0, 3.0, 4.0, 5.0] * 2]), np.ones((1, 3)))
    alike = Times([0], np.full((1, 10), 2.0), np.ones((1, 3)))
    assert find_scale([ascending]) == 3 and find_scale([alike]) == 1
    assert find_scale([ascending, alike]) == 5 / 3


def test_ratio_computed_from_layers_is_of_mean_times_on_the_same_texts():
    """Half of the texts leave under patience 2, which decides first at layer 3 and so takes 2 instead of 3 ms there."""
    layers = {layer: timed_layer(layer, 0.5 * layer, 1.5 * layer, rule="patience") for layer in range(1, 7)}
    costs = LayerCosts(layers, {3: timed_layer(3, 1.0, 3.0, rule="patience")}, np.array([]), ())
    exit_layers = [np.array([[2, 4, 2, 4]]), np.array([[2, 6, 2, 6]])]
    plain = Times([0, 1], np.array([[4.0, 12.0], [4.0, 12.0]]), np.full((2, 3), 8.0))
    shares = {Patience(1, None): 0.5, Patience(2, None): 0.5}
    test = costs.compare(shares, exit_layers, plain)
    assert test.difference == pytest.approx(np.log([(3 - 0.5) / 8, (4 - 0.5) / 8]).mean())
    assert test.low < test.difference < test.high


@pytest.mark.parametrize("part", ["seeds", "texts", "rounds", "plain"])
def test_each_part_widens_interval_of_computed_ratio(part):
    def width(*, varied: bool) -> float:
        times = (1.0, 1.0 + 0.2 * (varied and part == "texts"))
        layers = {layer: timed_layer(layer, *(layer * time for time in times)) for layer in range(1, 7)}
        if varied and part == "rounds":
            layers = {layer: replace(own, rounds=(0.9 * layer, layer, 1.1 * layer)) for layer, own in layers.items()}
        exit_layers = [np.tile([2, 4], (1, 500)), np.tile([2 + (varied and part == "seeds"), 4], (1, 500))]
        plain = np.full((2, 2), 6.0) * np.array([[1.0], [1.05 if varied and part == "plain" else 1.0]])
        test = LayerCosts(layers, {}, np.array([]), ()).compare(
            {Threshold(0.5): 1.0}, exit_layers, Times([0, 1], plain, np.full((2, 3), 6.0))
        )
        return test.standard_error

    assert width(varied=True) > 1.05 * width(varied=False)


def test_layers_are_read_by_exit_rule(tmp_path):
    evidence = evidence_of(study_of(tmp_path / "s", "albert", "palbert"))
    (made,), cell = evidence.measurements, evidence.cells_by_place["palbert", "rte"]
    own, sure = made.read_layer_costs(cell), made.read_layer_costs(cell, "max_probability")
    assert own.deciding == pytest.approx(np.arange(1, 13) * 13 / 12)
    assert sure.deciding == pytest.approx(0.9 * own.deciding)
    assert own.num_texts == made.read(cell, 1).in_detail.texts.shape[1]
    assert made.read_layer_costs(cell, "entropy") is None


def test_frame_has_a_row_for_each_round(tmp_path):
    folder = study_of(tmp_path / "s", "albert", "palbert", seeds=2)
    frame = analysis.load(folder).times
    own = frame.query("exit == 'own' and batch_size == 1 and method == 'palbert'")
    assert len(own) == 2 * 5 and set(own["round"]) == {0, 1, 2, 3, 4}
    assert own["milliseconds"].mean() == pytest.approx(13, rel=0.02)
    assert own["trusted"].all() and own["counts"].all() and set(own["device"]) == {"A Processor"}
    assert set(frame["exit"]) == {"own", "layer", "cut", "setting"}
    empty = analysis.load(write_study(tmp_path / "e", arm("albert", "rte", [0.7] * 2), seeds=2)).times
    assert list(empty.columns) == list(frame.columns) and not len(empty)
