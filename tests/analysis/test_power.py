"""The power that a dry run predicts: pytest tests/analysis/test_power.py"""

from __future__ import annotations

import math
import re

import pytest
from helpers.launched_studies import launched_study, mini_plan

from analysis.statistics.power import (
    SPREADS,
    Request,
    Spread,
    choose_spread,
    count_comparisons,
    describe_power,
    find_default,
    measure_own,
)
from analysis.studies.load import load_study
from benchmarks import seed_spreads
from benchmarks.simulated_scores import planned_power
from study import launch
from study.facts.plan_file import require_plan
from trainables.data.tasks import TASKS

SPREAD = Spread(rows=1_000, over_seeds=1e-4, interaction=4e-5, over_examples=1e-4, source="test")


@pytest.mark.long
@pytest.mark.slow
def test_predicted_differences_are_found_in_simulated_studies():
    rates = [*planned_power(4)]  # 500 studies each; `python -m benchmarks.statistics planned` runs 2,000
    assert len(rates) == 3 and all(rate.holds for rate in rates), [rate.describe() for rate in rates]


def test_power_follows_the_normal_test_with_many_seeds():
    error = (SPREAD.over_examples + 2 * SPREAD.over_seeds / 1_000) ** 0.5
    assert SPREAD.predict(1_000, comparisons=1) == pytest.approx((1.96 + 0.8416) * error, rel=0.005)


def test_more_seeds_find_smaller_differences_down_to_that_of_the_examples():
    found = [SPREAD.predict(seeds, comparisons=1) for seeds in (2, 3, 5, 10, 100)]
    assert found == sorted(found, reverse=True) and found[-1] > 2.8 * SPREAD.over_examples**0.5
    assert SPREAD.find_seeds(found[2], comparisons=1) == 5
    assert SPREAD.find_seeds(0.001, comparisons=1) is None
    assert SPREAD.predict(5, comparisons=32) > SPREAD.predict(5, comparisons=1)


def test_seed_variance_stays_on_a_smaller_dev_set():
    small = SPREAD.scale(250)
    assert small.over_seeds == pytest.approx(6e-5 + 4 * 4e-5) and small.over_examples == pytest.approx(4e-4)


def test_spreads_in_the_package_are_those_of_the_kept_studies():
    assert SPREADS.read_text().splitlines() == [seed_spreads.HEADER, *seed_spreads.list_rows()]


def test_default_is_of_the_task_or_of_one_with_its_metric():
    for task, source in (("cola", "CoLA in"), ("rte", "SST-2 in"), ("mnli", "SST-2 in"), ("mrpc", "SST-2 in")):
        assert find_default(TASKS[task]).source.startswith(source)
    assert find_default(TASKS["rte"]).source.endswith("cpu-sst2, also accuracy")
    assert find_default(TASKS["stsb"]) is None


def test_assumed_spread_comes_before_own_and_own_before_the_default():
    own = Spread(rows=277, over_seeds=9e-4, interaction=0.0, over_examples=math.nan, source="this study")
    task = TASKS["rte"]
    assert choose_spread(task, rows=277, assumed=2.0, own=own).over_seeds == pytest.approx(4e-4)
    chosen = choose_spread(task, rows=277, assumed=None, own=own)
    assert chosen.source == "this study" and chosen.over_seeds == 9e-4 and not math.isnan(chosen.over_examples)
    assert "cpu-sst2" in choose_spread(task, rows=277, assumed=None, own=None).source
    assert choose_spread(TASKS["stsb"], rows=1500, assumed=1.0, own=None) is None


def test_metric_of_no_kept_study_says_why_its_power_is_unknown(tmp_path):
    plan = mini_plan(tasks=("stsb",))
    (line,) = describe_power(
        Request(plan=plan, folder=str(tmp_path / "none"), rows={"stsb": 1500}, assumed={"stsb": 1.0})
    )
    assert line == (
        "power on STS-B is unknown before its first scores, because no kept study has pearson and spearman, and "
        "--assume-spread is the spread over seeds alone, not over dev examples"
    )


def test_generated_task_borrows_no_spread_of_real_data():
    task = TASKS["rte"]
    alone = Spread(rows=250, over_seeds=9e-4, interaction=0.0, over_examples=math.nan, source="this study")
    assert choose_spread(task, rows=250, assumed=None, own=None, is_generated=True) is None
    assert choose_spread(task, rows=250, assumed=None, own=alone, is_generated=True) is None
    assert choose_spread(task, rows=250, assumed=1.0, own=None, is_generated=True).source == "--assume-spread"


def test_comparisons_are_those_with_the_baseline():
    assert count_comparisons(mini_plan(methods=("albert", "pabee", "palbert"))) == 4  # two methods, two tasks
    assert count_comparisons(mini_plan(methods=("palbert",))) == 0


def test_single_method_has_the_power_of_one_comparison():
    plan = mini_plan(methods=("palbert",), tasks=("rte",))
    *table, last = describe_power(Request(plan=plan, folder="none", rows={"rte": 250}, assumed={"rte": 1.0}))
    assert last == "the tables make no comparison with the baseline; these numbers are for one"
    compared = mini_plan(methods=("albert", "palbert"), tasks=("rte",))
    one = describe_power(Request(plan=compared, folder="none", rows={"rte": 250}, assumed={"rte": 1.0}))
    assert one == [*table, "the tables make 1 comparison with the baseline"]


def test_power_of_an_extension_allows_for_the_analysis_before_it(tmp_path):
    made = {"methods": ("albert", "palbert"), "tasks": ("rte",)}
    folder = launched_study(tmp_path / "s", mini_plan(**made, seeds=4))
    request = Request(plan=mini_plan(**made, seeds=8), folder=str(folder), rows={"rte": 250}, assumed={"rte": 1.0})
    *_, row, _, _, last = describe_power(request)
    own = measure_own(load_study(folder), ["rte"])["rte"]
    spread = choose_spread(TASKS["rte"], rows=250, assumed=1.0, own=own)
    assert last == "p-values are corrected for 2 analyses of this study"
    assert row.split()[3] == f"{100 * spread.predict(8, comparisons=2):.1f}"


def test_study_measures_the_spread_of_its_own_scores(tmp_path):
    folder = launched_study(tmp_path / "s", mini_plan(tasks=("rte",), seeds=4))
    own = measure_own(load_study(folder), ["rte"])["rte"]
    assert own.over_seeds > 0 and own.source == "this study"
    few = launched_study(tmp_path / "few")
    assert measure_own(load_study(few), ["rte", "mrpc"]) == {}  # two seeds show no spread
    plan = require_plan(few).plan
    lines = describe_power(Request(plan=plan, folder=str(few), rows={"rte": 250, "mrpc": 250}, assumed={}))
    assert len(lines) == 2 and all("is unknown: the data are generated" in line for line in lines)


def dry_run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert launch.main(["--profile", "mini", "--task", "rte", *arguments, "--dry-run"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_dry_run_predicts_power_from_an_assumed_spread(tmp_path, capsys):
    out = dry_run(capsys, "--method", "albert,palbert", "--assume-spread", "1.2", "--out", str(tmp_path))
    assert "task dev rows spread 5 seeds 10 seeds for 1 for 2 for 3" in out, out
    assert re.search(r" RTE 250 1\.2 \d\.\d \d\.\d >100 >100 \d+ spread over seeds on RTE: --assume-spread ", out), out
    assert "the tables make 1 comparison with the baseline" in out
    unknown = dry_run(capsys, "--method", "albert,palbert", "--out", str(tmp_path))
    assert "power: unknown for generated tasks before the first scores; --assume-spread POINTS" in unknown


def test_dry_run_predicts_power_from_the_scores_of_the_study(tmp_path, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(tasks=("rte",), seeds=4))
    assert launch.main(["--continue", str(folder), "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "task dev rows spread 4 seeds 10 seeds" in out and "spread over seeds on RTE: this study" in out


def test_assumed_spread_is_checked(tmp_path, capsys):
    asked = ["--profile", "mini", "--task", "rte", "--out", str(tmp_path)]
    for more, fault in (
        (["--assume-spread", "1"], "--assume-spread requires --dry-run"),
        (["--dry-run", "--assume-spread", "0"], "--assume-spread 0: allowed: POINTS or TASK=POINTS, of more than 0"),
        (["--dry-run", "--assume-spread", "rte=x"], "--assume-spread rte=x: allowed: POINTS or TASK=POINTS"),
        (
            ["--dry-run", "--assume-spread", "1", "--assume-spread", "2"],
            "--assume-spread is given twice; allowed: once",
        ),
        (["--dry-run", *("--assume-spread", "rte=1") * 2], "--assume-spread rte is given twice; allowed: once"),
        (["--dry-run", "--assume-spread", "cola=1"], "no task of this study named 'cola'; available: rte"),
        (["--dry-run", "--toml", "--assume-spread", "1"], "--assume-spread predicts power, which --toml does not"),
    ):
        assert launch.main([*asked, *more]) == 2
        assert fault in (error := capsys.readouterr().err), error


def test_dry_run_states_the_split_that_selects(tmp_path, capsys):
    chosen = dry_run(capsys, "--out", str(tmp_path))
    assert "configurations and epochs are chosen on a holdout, a tenth of train; dev is only for the tables" in chosen
    on_dev = dry_run(capsys, "--selection", "dev", "--out", str(tmp_path))
    assert "configurations and epochs are chosen by their scores on dev, whose rows the tables score as well" in on_dev
    last = dry_run(capsys, "--set", "select=last", "--out", str(tmp_path))
    assert "factor=3 configurations are chosen on a holdout, " in last
    no_search = dry_run(capsys, "--samples", "0", "--out", str(tmp_path))
    assert "measures it epochs are chosen on a holdout, " in no_search
    neither = dry_run(capsys, "--samples", "0", "--epochs", "1", "--out", str(tmp_path))
    assert "nothing is chosen by scores: each trial keeps its last epoch" in neither
