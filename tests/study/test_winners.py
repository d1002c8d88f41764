"""The best configurations of a study: pytest tests/study/test_winners.py"""

import json

import pytest
from helpers.departures import join_departures
from helpers.launched_studies import launch, launched_study, mini_plan
from helpers.plan_files import plan_from
from helpers.simulation import Simulation

from study import winners
from study.decisions.progress import compute_progress
from study.facts.journal_copy import COPY
from study.facts.plan_file import read_toml
from study.facts.study_facts import read_facts
from study.plans.resolution import resolve
from study.plans.settings import is_searched
from trainables.configuration.ranges import Interval


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return launched_study(tmp_path_factory.mktemp("runs") / "s", mini_plan())


def printed(capsys, *arguments):
    assert winners.main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_text_names_the_searched_fields_alone(folder, capsys):
    lines = printed(capsys, folder).splitlines()
    assert [line.split(":")[0] for line in lines] == ["albert/rte", "albert/mrpc", "pondernet/rte", "pondernet/mrpc"]
    assert lines[0].startswith("albert/rte: learning_rate 0.001") and "median" in lines[0]
    assert "beta" in lines[2] and "epochs" not in lines[2]


def test_json_has_the_winner_of_the_search_in_full(folder, capsys):
    arms = json.loads(printed(capsys, folder, "--format", "json"))
    progress = compute_progress(mini_plan(), read_facts(folder))
    for said, arm in zip(arms, progress.arms, strict=True):
        assert said["searched"] | said["fixed"] == arm.winner.config
        assert said["median"] == arm.median and len(said["scores"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"sampler": "grid", "samples": None}, marks=pytest.mark.long),
        pytest.param(
            {"settings": {"learning_rate": Interval(low=1e-4, high=2e-4), "albert/rte:epochs": 2}, "search_repeats": 2},
            marks=pytest.mark.long,
        ),
    ],
    ids=["random", "grid", "own ranges"],
)
def test_plan_of_winners_repeats_the_same_trials_without_a_search(tmp_path, capsys, more):
    first = launched_study(tmp_path / "first", mini_plan(**more))
    (tmp_path / "best.toml").write_text(printed(capsys, first, "--format", "toml"))
    plan = read_toml(tmp_path / "best.toml")
    assert not any(map(is_searched, plan.settings.values()))
    again = launched_study(tmp_path / "again", resolve(plan))
    records = read_facts(again).records
    assert {record.phase for record in records} == {"confirm"} and len(records) == 8
    before = {record.key: record.score for record in read_facts(first).records}
    assert all(before[record.key] == record.score for record in records)


@pytest.mark.parametrize(("method", "field"), [("berxit", "threshold"), ("pabee", "patience")])
def test_plan_of_winners_keeps_exit_settings_of_values_that_were_not_searched(tmp_path, method, field):
    asked = ["--profile", "mini", "--task", "rte", "--method", method, "--samples", "4"]
    plan = resolve(plan_from(*asked, "--vary", f"{method}:learning_rate=0.001,0.002"))
    progress = Simulation(plan).launch().progress
    (tmp_path / "best.toml").write_text(winners.as_toml(progress))
    again = resolve(plan_from("--plan", str(tmp_path / "best.toml")))
    assert {arm.name: arm.fixed for arm in again.arms} == {arm.name: arm.winner.config for arm in progress.arms}
    assert len({config[field] for config in (arm.fixed for arm in again.arms)}) == 2
    value = f"{method}:learning_rate=0.001"
    (part,) = resolve(plan_from("--plan", str(tmp_path / "best.toml"), "--method", value)).arms
    assert part.fixed == again.arm(f"{value}/rte").fixed


def test_plan_without_the_precision_of_a_search_keeps_the_configurations(tmp_path, capsys):
    first = launched_study(tmp_path / "first", mini_plan(search_precision="bfloat16"))
    (tmp_path / "best.toml").write_text(printed(capsys, first, "--format", "toml"))
    arms = compute_progress(mini_plan(search_precision="bfloat16"), read_facts(first)).arms
    assert [arm.fixed for arm in resolve(read_toml(tmp_path / "best.toml")).arms] == [arm.winner.config for arm in arms]


def test_winner_plan_lists_winners_and_gaps(tmp_path):
    plan = mini_plan(methods=("albert",))
    launch(tmp_path / "s", plan, killed_after=14)
    lines = winners.as_toml(compute_progress(plan, read_facts(tmp_path / "s"))).splitlines()
    assert lines[1].startswith("# albert/rte: learning_rate 0.00") and "search score 7" in lines[1]
    assert lines[2] == "# albert/mrpc has no winner yet, so this plan has the paper's values"


def test_study_without_a_completed_search_says_so(tmp_path, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",)))
    (folder / COPY).unlink()
    (folder / "events.jsonl").write_bytes((folder / "events.jsonl").read_bytes().splitlines(keepends=True)[0])
    assert winners.main([str(folder)]) == 1
    assert capsys.readouterr().err == "no search of this study has completed a trial\n"


def test_captions_name_fields_where_every_arm_has_its_own_values(tmp_path):
    first = launched_study(tmp_path / "first", mini_plan())
    (tmp_path / "best.toml").write_text(winners.as_toml(compute_progress(mini_plan(), read_facts(first))))
    plan = resolve(read_toml(tmp_path / "best.toml"))
    assert "learning_rate of single arms, beta of single arms" in join_departures(plan.departures["protocol"])
    again = launched_study(tmp_path / "again", plan)
    notes = (again / "tables" / "dev.md").read_text()
    assert "epochs 4, learning_rate of single arms, beta of single arms" in notes and "albert/rte learning" not in notes
