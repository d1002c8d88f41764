"""Finding a run in MLflow: links, and what they search by: pytest tests/study/mlflow_mirror/test_links.py"""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.journals import CONFIG, MadeJournal
from helpers.made_studies import plan_of, write_plan_of
from helpers.mlflow_server import Server
from helpers.mlflow_stores import begin_search, planned, stored_runs
from helpers.places import ROOT, free_port

from study.facts.study_folder import BROWSE
from study.launching.last_screen import browse
from study.mirror import LINKS, main, mirror
from study.mirror import browse as browse_lines
from study.mlflow_mirror.tracking import build_default_uri
from study.terminal.text import wrap_line

pytestmark = pytest.mark.slow

ARMS, BEST, SEEDS, FAILURES = LINKS

BETTER = CONFIG | {"learning_rate": 5e-05}


@pytest.fixture
def journal(tmp_path: Path) -> MadeJournal:
    """PALBERT and PABEE on RTE, two seeds each; of PALBERT's search one trial was stopped, and one failed."""
    journal = planned(tmp_path / "runs" / "mine", methods=("palbert", "pabee"))
    begin_search(journal)
    journal.start("f" * 16, trial=2)
    journal.finish("f" * 16, error="loss is nan")
    journal.whole_trial("c" * 16, [0.5, 0.6], phase="confirm")
    journal.whole_trial("d" * 16, [0.5, 0.8], phase="confirm", trial=1)
    journal.whole_trial("9" * 16, [0.5], arm="pabee/rte")
    journal.whole_trial("7" * 16, [0.9], arm="pabee/rte", phase="confirm")
    journal.whole_trial("8" * 16, [0.4], arm="pabee/rte", phase="confirm", trial=1)
    journal.end()
    return journal


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


def found(uri: str, link: dict[str, str], also: str = "") -> list[str]:
    """Keys of the runs that MLflow finds for a link, and a condition besides."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (experiment,) = (e for e in client.search_experiments() if e.name == "mine")
    order = [f"{link['orderByKey']} {'ASC' if link['orderByAsc'] == 'true' else 'DESC'}"]
    runs = client.search_runs([experiment.experiment_id], link["searchFilter"] + also, order_by=order)
    return [run.data.tags["key"] for run in runs]


def add_better_search_trial(journal: MadeJournal) -> None:
    """The study is extended by a search trial, which becomes the winner."""
    write_plan_of(journal.folder, plan_of(["palbert", "pabee"], ["rte"], seeds=2, config=CONFIG, samples=4))
    journal.begin(launch=2)
    journal.whole_trial("1" * 16, [0.95], trial=3, config=BETTER)
    journal.whole_trial("2" * 16, [0.91], phase="confirm", config=BETTER)
    journal.whole_trial("3" * 16, [0.81], phase="confirm", trial=1, config=BETTER)
    journal.end(launch=2)


def test_links_find_best_runs_arms_seeds_and_failures(journal: MadeJournal, uri: str) -> None:
    mirror(journal.folder, uri)
    assert found(uri, LINKS[BEST]) == ["7" * 16, "d" * 16]
    assert found(uri, LINKS[BEST], " AND tags.arm = 'palbert/rte'") == ["d" * 16]
    assert found(uri, LINKS[ARMS]) == ["palbert/rte", "pabee/rte"]
    assert [key[0] for key in found(uri, LINKS[SEEDS])][:2] in (["7", "8"], ["8", "7"])
    assert set(found(uri, LINKS[SEEDS], " AND tags.arm = 'palbert/rte'")) == {"c" * 16, "d" * 16}
    assert found(uri, LINKS[FAILURES]) == ["f" * 16]


def test_searches_of_the_page_find_what_they_promise(journal: MadeJournal, uri: str) -> None:
    add_better_search_trial(journal)
    journal.begin(launch=3)
    journal.start("e" * 16, trial=4)
    journal.retry("e" * 16, "RuntimeError: node gone")
    journal.end(launch=3)
    mirror(journal.folder, uri)
    page = (ROOT / "docs" / "mlflow.md").read_text(encoding="utf-8")
    searches = re.findall(r"^\| `(tags\..+?)` \|", page, re.MULTILINE)
    shown = {search: set(found(uri, LINKS[ARMS] | {"searchFilter": search})) for search in searches}
    assert len(shown) == 9 and shown.pop("tags.key = '...'") == shown.pop("tags.other_code != ''") == set()
    assert shown.pop("tags.arm = 'palbert/rte'") == {"palbert/rte", *(letter * 16 for letter in "abcdef123")}
    assert shown.pop("tags.level = 'arm'") == {"palbert/rte", "pabee/rte"}
    assert shown == {
        "tags.counts = 'true'": {number * 16 for number in "2378"},
        "tags.best = 'true'": {"2" * 16, "7" * 16},
        "tags.stopped = 'asha'": {"b" * 16},
        "tags.superseded = 'true'": {"c" * 16, "d" * 16},
        "tags.retries != ''": {"e" * 16},
    }


def test_trial_stopped_by_asha_is_finished(journal: MadeJournal, uri: str) -> None:
    mirror(journal.folder, uri)
    runs = stored_runs(uri)
    assert (runs["b" * 16].info.status, runs["b" * 16].data.tags["stopped"]) == ("FINISHED", "asha")
    assert runs["f" * 16].info.status == "FAILED" and "stopped" not in runs["f" * 16].data.tags


def test_arm_has_winner_score_and_provenance(tmp_path: Path, uri: str) -> None:
    journal = planned(tmp_path / "mine")
    journal.begin()
    journal.whole_trial("a" * 16, [0.7])
    journal.begin(launch=2, code={"versions": {"torch": "2.13.0"}, "git_commit": "abc"})
    for number, score in enumerate([0.6, 0.8]):
        journal.whole_trial(f"{number}" * 16, [score], phase="confirm", trial=number)
    journal.end(launch=2)
    mirror(journal.folder, uri)
    run = stored_runs(uri)["palbert/rte"]
    winner = {"winner.learning_rate": "2e-05", "winner.batch_size": "32", "winner.epochs": "3"}
    assert winner.items() <= run.data.tags.items()
    assert run.data.metrics["score"] == 0.7
    wanted = {
        "git_commit": "abc",
        "mlflow.source.git.commit": "abc",
        "versions": "torch 2.13.0",
        "data": "hub",
        "device": "cpu",
    }
    wanted |= {"arm": "palbert/rte", "backbone": "albert/albert-base-v2", "data_fingerprint": "f00d"}
    assert {name: run.data.tags[name] for name in wanted} == wanted


def test_former_winner_gives_way(journal: MadeJournal, uri: str) -> None:
    mirror(journal.folder, uri)
    before = stored_runs(uri)
    add_better_search_trial(journal)
    mirror(journal.folder, uri)
    after = stored_runs(uri)
    assert after["palbert/rte"].data.tags["winner.learning_rate"] == "5e-05"
    assert after["palbert/rte"].info.run_id == before["palbert/rte"].info.run_id
    parents = {after[letter * 16].data.tags["mlflow.parentRunId"] for letter in "abcdf123"}
    assert parents == {after["palbert/rte"].info.run_id}
    assert found(uri, LINKS[BEST], " AND tags.arm = 'palbert/rte'") == ["2" * 16]
    assert set(found(uri, LINKS[SEEDS], " AND tags.arm = 'palbert/rte'")) == {"2" * 16, "3" * 16}


def test_trials_follow_an_arm_that_is_made_again(journal: MadeJournal, uri: str) -> None:
    from mlflow.tracking import MlflowClient

    mirror(journal.folder, uri)
    client = MlflowClient(tracking_uri=uri)
    client.delete_run(stored_runs(uri)["palbert/rte"].info.run_id)
    mirror(journal.folder, uri)
    after = stored_runs(uri)
    parents = {after[letter * 16].data.tags["mlflow.parentRunId"] for letter in "abcdf"}
    assert parents == {after["palbert/rte"].info.run_id}


def test_launch_prints_links_into_its_own_store(journal: MadeJournal, uri: str) -> None:
    assert browse(journal.folder, None) == []  # nothing is mirrored yet
    shutil.move(uri.removeprefix("sqlite:///"), journal.folder)
    assert main([str(journal.folder)]) == 0
    (served,) = browse(journal.folder, None)
    first, *lines = (journal.folder / BROWSE).read_text().splitlines()
    assert served == first and served.startswith("browse: ") and "mlflow ui --backend-store-uri sqlite:///" in served
    assert [line.strip().partition(":")[0] for line in lines] == [ARMS, BEST, SEEDS, FAILURES]
    page = "http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning&"
    for line in lines:
        name, _, query = line.partition(page)
        fields = {field: values[0] for field, values in parse_qs(query).items()}
        link = LINKS[name.strip().rstrip(":")]
        assert fields.pop("searchFilter").startswith(f"{link['searchFilter']} AND tags.study_id = '")
        assert fields.items() >= {field: link[field] for field in link if field != "searchFilter"}.items()
        is_chart = name.strip().rstrip(":") in (ARMS, SEEDS)  # a list shows no score before one adds its column
        assert fields.get("compareRunsMode") == ("CHART" if is_chart else None)


def test_link_leaves_out_another_study_of_the_same_name(journal: MadeJournal, tmp_path: Path, uri: str) -> None:
    other = planned(tmp_path / "elsewhere" / "mine")
    other.clock = 1.0  # begins later
    begin_search(other)
    other.end()
    mirror(other.folder, uri)
    (link,) = (line for line in browse_lines(mirror(journal.folder, uri)) if line.strip().startswith(ARMS))
    fields = {field: values[0] for field, values in parse_qs(link.partition("?")[2]).items()}
    assert len(found(uri, LINKS[ARMS])) == 3
    assert found(uri, fields) == ["palbert/rte", "pabee/rte"]


def test_command_that_serves_the_runs_is_short_and_whole(
    journal: MadeJournal, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored = mirror(journal.folder, uri)
    mirrored.uri = build_default_uri(journal.folder)
    monkeypatch.chdir(journal.folder.parents[1])
    monkeypatch.setattr("study.mirror.python", lambda: ".venv/bin/python")
    served, *_ = browse_lines(mirrored)
    command = ".venv/bin/python -m mlflow ui --backend-store-uri sqlite:///runs/mine/mlflow.db"
    assert served == f"browse:      {command}"
    assert wrap_line(served, 80) == f"browse:\n  {command}"
    monkeypatch.setattr("study.mirror.python", lambda: "/opt/venv/bin/python")  # runs in every folder
    assert browse_lines(mirrored)[0].endswith(f" sqlite:///{journal.folder}/mlflow.db")


def test_password_of_a_server_is_in_no_link(journal: MadeJournal, uri: str) -> None:
    mirrored = mirror(journal.folder, uri)
    mirrored.uri = "http://anna:secret@host:5000"
    served, first, *_ = browse_lines(mirrored)
    assert served == "browse:      http://anna:***@host:5000"
    assert first.split()[-1].startswith("http://anna:***@host:5000/#/experiments/1/runs?")


def test_links_are_not_printed_without_mlflow(tmp_path: Path) -> None:
    (tmp_path / BROWSE).write_text("browse:      http://host:5000\n")
    assert browse(tmp_path, "none") == []


def test_launch_prints_how_to_mirror_later(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    fault, later = browse(tmp_path, uri)
    assert fault == f"MLflow lacks some runs, because {uri} does not answer (Connection refused)"
    assert later.endswith(f"python -m study.mirror {tmp_path} --tracking-uri {uri}")


@pytest.mark.long
def test_server_finds_what_a_link_names(
    journal: MadeJournal, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(journal.folder), "--tracking-uri", server.uri]) == 0
    (link,) = (line.split()[-1] for line in capsys.readouterr().out.splitlines() if line.strip().startswith(BEST))
    with urllib.request.urlopen(link) as page:
        assert page.status == 200
    fields = {field: values[0] for field, values in parse_qs(urlsplit(urlsplit(link).fragment).query).items()}
    assert found(server.uri, fields, " AND tags.method = 'palbert' AND tags.task = 'rte'") == ["d" * 16]
