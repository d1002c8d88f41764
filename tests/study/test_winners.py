"""The best configurations of a study: pytest tests/study/test_winners.py"""

import json

import pytest
from helpers.launched_studies import launched_study, mini_plan

from study import winners
from study.decisions.progress import last_progress
from study.facts.study_facts import read_facts


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
    progress = last_progress(mini_plan(), read_facts(folder))
    for said, arm in zip(arms, progress.arms, strict=True):
        assert said["searched"] | said["fixed"] == arm.winner.config
        assert said["median"] == arm.median and len(said["scores"]) == 2


def test_latex_has_a_line_for_each_arm(folder, capsys):
    text = printed(capsys, folder, "--format", "latex")
    assert text.count(r"\\") == 5 and r"learning\_rate" in text and r"\toprule" in text


def test_study_without_a_completed_search_says_so(tmp_path, capsys):

    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",)))
    (folder / "events.jsonl").unlink()
    assert winners.main([str(folder)]) == 1
    assert capsys.readouterr().err == "no search of this study has completed a trial\n"
