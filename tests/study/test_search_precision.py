"""A search in one precision, its best repeated in another: pytest tests/study/test_search_precision.py"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.edited_studies import has
from helpers.launched_studies import launched_study, mini_plan
from helpers.plan_files import plan_from, with_lines
from helpers.simulation import Simulation
from msgspec.structs import replace
from optuna.distributions import CategoricalDistribution

import search_spaces.albert
from analysis.layouts.evidence import gather
from analysis.layouts.protocol_notes import describe_protocol
from analysis.studies.load import load_study
from analysis.tables import write_tables
from analysis.verify import verify
from study import launch, status
from study.facts.plan_file import compare_plans, require_plan, write_plan
from study.mirror import Mirror
from study.mlflow_mirror.run_content import StudyRuns
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.configuration.schema import to_plain

ONE_ARM = {"methods": ("albert",), "tasks": ("rte",)}
IN_BFLOAT16 = {"search_precision": "bfloat16"}
BFLOAT16 = 'search_precision = "bfloat16"'
TENSORFLOAT32 = 'search_precision = "tensorfloat32"'


def resolved_from(*arguments: str) -> ResolvedPlan:
    return resolve(plan_from("--method", "albert", "--task", "rte", *arguments))


def precisions(phases_and_configs) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for phase, config in phases_and_configs:
        found.setdefault(phase, set()).add(config["precision"])
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """With its tables, so that it can be verified."""
    folder = launched_study(tmp_path_factory.mktemp("runs") / "s", mini_plan(**ONE_ARM, **IN_BFLOAT16))
    write_tables([folder], folder / "tables")
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "s")


def test_search_trials_have_it_and_the_trials_of_numbers_their_own():
    methods = {"methods": ("albert", "palbert"), "tasks": ("rte",)}
    simulation = Simulation(mini_plan(**methods, **IN_BFLOAT16))
    simulation.launch()
    found = precisions((record.phase, record.config) for record in simulation.journal.records)
    assert found == {"search": {"bfloat16"}, "confirm": {"float32"}}


def test_a_confirm_trial_repeats_the_winner_in_all_else():
    simulation = Simulation(mini_plan(**ONE_ARM, **IN_BFLOAT16))
    arm = simulation.launch().progress.arms[0]
    (config,) = [dict(content) for content in {tuple(sorted(trial.config.items())) for trial in arm.facts.confirm}]
    assert config == {**arm.winner.search.config, "precision": "float32"}
    assert len(arm.confirmed) == 2


def test_study_without_it_keeps_hash_and_file():
    plain, other = mini_plan(**ONE_ARM), mini_plan(**ONE_ARM, **IN_BFLOAT16)
    assert "search_precision" not in json.dumps(to_plain(plain))
    assert plain.protocol_hash != other.protocol_hash
    assert compare_plans(plain, other) == ['protocol search_precision null -> "bfloat16"']


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "tensorfloat32"])
def test_the_precision_of_all_trials_is_a_fact_of_their_configuration(precision):
    plain, other = resolved_from(), resolved_from("--set", f"precision={precision}")
    assert compare_plans(plain, other) == [f'precision "float32" -> "{precision}"']
    keys = {
        plan.trial_key(plan.arms[0], phase="confirm", config=plan.arms[0].any_configuration, seed=42, start=None)
        for plan in (plain, other)
    }
    assert len(keys) == 2


@pytest.mark.parametrize(
    "arguments", [("--set", "precision=bfloat16"), ("--set", "learning_rate=0.001", "--set", "batch_size=32")]
)
def test_it_is_refused_where_it_changes_nothing(tmp_path, arguments):
    with pytest.raises(ValueError, match=r"search_precision is bfloat16, .*no effect"):
        resolved_from(*with_lines(tmp_path, BFLOAT16), *arguments)


def test_it_is_refused_where_a_method_tunes_its_precision(tmp_path, monkeypatch):
    monkeypatch.setitem(search_spaces.albert.SPACE, "precision", CategoricalDistribution(["float32", "bfloat16"]))
    monkeypatch.setitem(search_spaces.albert.PAPER_GRID, "precision", ["float32", "bfloat16"])
    monkeypatch.setattr(search_spaces.albert, "PUBLISHED", {})
    with pytest.raises(ValueError, match=r"search_precision is bfloat16, .*albert/rte tunes precision; "):
        resolved_from(*with_lines(tmp_path, BFLOAT16))


@pytest.mark.parametrize(
    ("line", "arguments", "message"),
    [
        (
            'search_precision = "float64"',
            [],
            "search_precision is 'float64'; allowed: bfloat16, float16, ",
        ),
        (
            BFLOAT16,
            ["--address", "auto", "--max-gpu-hours", "1"],
            "with search_precision their costs differ; ",
        ),
        (TENSORFLOAT32, [], "palbert/rte ask for tensorfloat32, but "),
        (
            "",
            ["--set", "precision=tensorfloat32"],
            "without a GPU: float32, bfloat16, float16",
        ),
        (
            "",
            ["--set", "precision=tensorfloat32", "--address", "auto", "--gpus-per-trial", "0"],
            "but have no GPU; allowed",
        ),
    ],
)
def test_a_launch_refuses_in_one_line(line, arguments, message, tmp_path, capsys, monkeypatch):
    for module in ("planned_study", "options"):
        monkeypatch.setattr(f"study.launching.{module}.count_local_gpus", lambda: 0)
    assert (
        launch.main(["--profile", "mini", "--task", "rte", *with_lines(tmp_path, line), *arguments, "--dry-run"]) == 2
    )
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_where_a_gpu_may_be_tensorfloat32_is_not_refused(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("study.launching.planned_study.count_local_gpus", lambda: 1)
    asked = ["--profile", "mini", "--task", "rte", *with_lines(tmp_path, TENSORFLOAT32), "--out", str(tmp_path)]
    assert launch.main([*asked, "--dry-run"]) == 0
    assert "search in tensorfloat32 (" in capsys.readouterr().out


def test_dry_run_names_it_per_arm_and_in_departures(capsys, tmp_path):
    lines = with_lines(tmp_path, BFLOAT16)
    asked = ["--profile", "mini", "--task", "rte", *lines, "--out", str(tmp_path), "--dry-run"]
    assert launch.main([*asked, "--departures"]) == 0
    said = capsys.readouterr().out
    assert "search in bfloat16 (" in said
    assert "precision of search trials: bfloat16" in " ".join(said.split())
    assert launch.main([*asked, "--explain", "palbert/rte"]) == 0
    explained = [line.split() for line in capsys.readouterr().out.splitlines()]
    origin = [*lines[:1], f"{lines[1]}:", "search_precision"]
    assert ["precision", "of", "search", "trials", '"bfloat16"', *origin] in explained


def test_captions_say_it(made, tmp_path):
    rule = "search trials in bfloat16, confirm trials in the precision that each method fixes; "
    assert rule in _caption(made)
    assert "search trials in" not in _caption(launched_study(tmp_path / "plain", mini_plan(**ONE_ARM)))


def _caption(folder):
    evidence = gather([load_study(folder)])
    return describe_protocol(evidence.studies, evidence.rows)


def test_the_status_says_what_its_best_score_is_of(made, capsys):
    assert status.main([str(made)]) == 0
    assert (
        "trials of the search run in bfloat16, and confirm trials run in the configured precision"
        in capsys.readouterr().out
    )


def test_it_verifies(made):
    assert verify(made) == []


def test_plan_with_another_search_precision_is_found(study):
    file = require_plan(study)
    arms = tuple(replace(arm, search_precision="tensorfloat32") for arm in file.plan.arms)
    write_plan(study, replace(file, plan=replace(file.plan, arms=arms)))
    assert has(verify(study), 'albert/rte search_precision is "tensorfloat32"; should be "bfloat16"')


def test_mlflow_shows_each_trials_own_precision(made):
    mirrored = Mirror(made, uri="")
    mirrored.read()
    runs = StudyRuns("s", require_plan(made).plan, mirrored.facts, mirrored.reports)
    own = {key: runs.trial(key).params for key in mirrored.facts.trials}
    found = precisions((trial.phase, own[key]) for key, trial in mirrored.facts.trials.items())
    assert found == {"search": {"bfloat16"}, "confirm": {"float32"}}
    assert runs.study(files={}, note="").params["search_precision"] == "bfloat16"
    assert not any("superseded" in runs.trial(key).tags for key in mirrored.facts.trials)
