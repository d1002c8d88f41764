"""Finding a run in MLflow: views, links, and what they search by: pytest tests/study/mlflow_mirror/test_views.py"""

from __future__ import annotations

import json
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.journals import CONFIG, MadeJournal
from helpers.made_studies import plan_of, write_plan_of
from helpers.mlflow_server import Server
from helpers.mlflow_stores import free_port, planned, stored_runs

from study import launch_stages
from study.launch_stages import browse
from study.mirror import main
from study.mlflow_mirror import views
from study.mlflow_mirror.follower import mirror
from study.mlflow_mirror.tracking import default_uri
from study.mlflow_mirror.views import ARMS, BEST, FAILURES, SEEDS, TAG, VIEWS, views_with_runs
from study.status import read_progress

pytestmark = pytest.mark.slow

BETTER = CONFIG | {"learning_rate": 5e-05}


@pytest.fixture
def journal(tmp_path: Path) -> MadeJournal:
    """PALBERT and PABEE on RTE, two seeds each; of PALBERT's search one trial was stopped, and one failed."""
    journal = planned(tmp_path / "runs" / "mine", methods=("palbert", "pabee"))
    journal.begin()
    journal.whole_trial("a" * 16, [0.5, 0.7, 0.6])
    journal.start("b" * 16, trial=1)
    journal.epoch("b" * 16, 1, 0.4)
    journal.stop("b" * 16, rung=1, score=0.4, cutoff=0.5)
    journal.finish("b" * 16, score=0.4, epoch=1, status="stopped")
    journal.start("f" * 16, trial=2)
    journal.finish("f" * 16, score=None, epoch=None, status="failed", error="loss is nan")
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


def found(uri: str, view: dict[str, Any], also: str = "") -> list[str]:
    """Keys of the runs that MLflow finds for a view, and a condition besides."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (experiment,) = (e for e in client.search_experiments() if e.name == "mine")
    order = [f"{view['orderByKey']} {'ASC' if view['orderByAsc'] else 'DESC'}"]
    runs = client.search_runs([experiment.experiment_id], view["searchFilter"] + also, order_by=order)
    return [run.data.tags["key"] for run in runs]


def add_better_search_trial(journal: MadeJournal) -> None:
    """The study is extended by a search trial, which becomes the winner."""
    write_plan_of(journal.folder, plan_of(["palbert", "pabee"], ["rte"], seeds=2, config=CONFIG, samples=4))
    journal.begin(launch=2)
    journal.whole_trial("1" * 16, [0.95], trial=3, config=BETTER)
    journal.whole_trial("2" * 16, [0.91], phase="confirm", config=BETTER)
    journal.whole_trial("3" * 16, [0.81], phase="confirm", trial=1, config=BETTER)
    journal.end(launch=2)


def test_the_views_find_the_best_run_of_each_arm_its_seeds_and_its_failures(journal: MadeJournal, uri: str) -> None:
    mirror(journal.folder, uri)
    assert found(uri, BEST.state()) == ["7" * 16, "d" * 16]
    assert found(uri, BEST.state(), " AND tags.arm = 'palbert/rte'") == ["d" * 16]
    assert found(uri, ARMS.state()) == ["palbert/rte", "pabee/rte"]
    assert [key[0] for key in found(uri, SEEDS.state())][:2] in (["7", "8"], ["8", "7"])
    assert set(found(uri, SEEDS.state(), " AND tags.arm = 'palbert/rte'")) == {"c" * 16, "d" * 16}
    assert found(uri, FAILURES.state()) == ["f" * 16]
    assert not [view.key for view in VIEWS if "start_time" in view.order_by]  # then MLflow folds trials below their arm


def test_every_column_of_a_view_is_something_that_its_runs_have(journal: MadeJournal, uri: str) -> None:
    mirror(journal.folder, uri)
    runs = stored_runs(uri)
    for view in VIEWS:
        for key in found(uri, view.state()):
            data = runs[key].data
            assert data.tags["mlflow.note.content"]
            there = {"attributes.`Description`"} | {
                f"{kind}.`{name}`" for kind in ("metrics", "params", "tags") for name in getattr(data, kind)
            }
            assert set(view.columns) <= there, (view.key, key)


def test_a_trial_that_asha_stopped_does_not_look_failed(journal: MadeJournal, uri: str) -> None:
    mirror(journal.folder, uri)
    runs = stored_runs(uri)
    assert (runs["b" * 16].info.status, runs["b" * 16].data.tags["stopped"]) == ("FINISHED", "asha")
    assert runs["f" * 16].info.status == "FAILED" and "stopped" not in runs["f" * 16].data.tags


def test_an_arm_has_its_winner_its_score_and_what_it_is_made_of(tmp_path: Path, uri: str) -> None:
    journal = planned(tmp_path / "mine")
    journal.begin()
    journal.whole_trial("a" * 16, [0.7])
    for number, score in enumerate([0.6, 0.8]):
        journal.start(f"{number}" * 16, phase="confirm", trial=number)
        journal.finish(f"{number}" * 16, score=score, epoch=1, versions={"torch": "2.13.0"}, git_commit="abc")
    journal.end()
    mirror(journal.folder, uri)
    run = stored_runs(uri)["palbert/rte"]
    assert run.data.params == {"learning_rate": "2e-05", "batch_size": "32", "epochs": "3"}
    assert run.data.metrics["score"] == 0.7
    wanted = {
        "git_commit": "abc",
        "mlflow.source.git.commit": "abc",
        "versions": "torch 2.13.0",
        "data": "hub",
        "device": "cpu",
    }
    wanted |= {"arm": "palbert/rte", "backbone": "albert/albert-base-v2", "data_fingerprint": "f00d"}
    wanted |= {"mlflow.note.content": "Score 0.7000, the median of 0.6000 (seed 42), 0.8000 (seed 43)."}
    assert {name: run.data.tags[name] for name in wanted} == wanted


def test_a_former_winner_gives_way_in_the_arm_and_in_the_views(journal: MadeJournal, uri: str) -> None:
    mirror(journal.folder, uri)
    before = stored_runs(uri)
    add_better_search_trial(journal)
    mirror(journal.folder, uri)
    after = stored_runs(uri)
    assert after["palbert/rte"].data.params["learning_rate"] == "5e-05"
    assert after["palbert/rte"].info.run_id != before["palbert/rte"].info.run_id  # MLflow's parameters never change
    parents = {after[letter * 16].data.tags["mlflow.parentRunId"] for letter in "abcdf123"}
    assert parents == {after["palbert/rte"].info.run_id}
    assert found(uri, BEST.state(), " AND tags.arm = 'palbert/rte'") == ["2" * 16]
    assert set(found(uri, SEEDS.state(), " AND tags.arm = 'palbert/rte'")) == {"2" * 16, "3" * 16}


def test_a_writer_lost_between_an_arm_and_its_trials_is_made_good(journal: MadeJournal, uri: str) -> None:
    from mlflow.tracking import MlflowClient

    mirror(journal.folder, uri)
    client = MlflowClient(tracking_uri=uri)
    client.delete_run(stored_runs(uri)["palbert/rte"].info.run_id)
    mirror(journal.folder, uri)
    after = stored_runs(uri)
    parents = {after[letter * 16].data.tags["mlflow.parentRunId"] for letter in "abcdf"}
    assert parents == {after["palbert/rte"].info.run_id}


def test_a_view_that_somebody_deleted_comes_back_and_others_stay(journal: MadeJournal, uri: str) -> None:
    from mlflow.tracking import MlflowClient

    mirror(journal.folder, uri)
    client = MlflowClient(tracking_uri=uri)
    client.set_experiment_tag("1", TAG + "own", "{}")
    client.delete_experiment_tag("1", TAG + "best")
    mirror(journal.folder, uri)
    tags = client.get_experiment("1").tags
    assert set(tags) >= {TAG + "own", *(TAG + view.key for view in VIEWS)}


def test_a_launch_prints_links_into_the_studys_own_store(
    journal: MadeJournal, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_stages, "free_port", lambda: 5000)
    assert len(browse(journal.folder, None, read_progress(journal.folder))) == 1  # nothing is mirrored yet
    shutil.move(uri.removeprefix("sqlite:///"), journal.folder)
    mirror(journal.folder, default_uri(journal.folder))
    served, *lines, one_arm = browse(journal.folder, None, read_progress(journal.folder))
    assert served.startswith("browse: ") and "mlflow ui --backend-store-uri sqlite:///" in served
    assert [line.strip().partition(":")[0] for line in lines] == [view.name for view in (BEST, ARMS, SEEDS, FAILURES)]
    page = "http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey="
    assert [line.partition(page)[2] for line in lines] == ["best", "arms", "seeds&compareRunsMode=CHART", "failures"]
    condition = one_arm.partition(": ")[2].strip()
    searched = {"searchFilter": condition, "orderByKey": "attributes.start_time", "orderByAsc": True}
    wanted = ["palbert/rte", *(letter * 16 for letter in "abfcd")]
    assert sorted(found(default_uri(journal.folder), searched)) == sorted(wanted)


def test_where_another_listens_on_the_port_of_mlflow_command_and_links_have_the_next_one(
    journal: MadeJournal, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.move(uri.removeprefix("sqlite:///"), journal.folder)
    mirror(journal.folder, default_uri(journal.folder))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(views, "PORT", taken.getsockname()[1])
        served, first, *_ = browse(journal.folder, None, read_progress(journal.folder))
        port = int(served.rpartition(" --port ")[2])
        assert port > taken.getsockname()[1] and f"http://127.0.0.1:{port}/#/" in first


def test_no_link_opens_a_view_without_runs(tmp_path: Path) -> None:
    journal = planned(tmp_path / "mine")
    journal.begin()
    journal.whole_trial("a" * 16, [0.5, 0.7])
    assert views_with_runs(read_progress(journal.folder)) == [ARMS]
    journal.whole_trial("c" * 16, [0.5, 0.6], phase="confirm")
    assert views_with_runs(read_progress(journal.folder)) == [BEST, ARMS, SEEDS]


def test_a_launch_says_where_the_links_into_a_server_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = read_progress(planned(tmp_path / "mine").folder)
    monkeypatch.setattr(launch_stages, "silence_of", lambda uri: None)
    (line,) = browse(tmp_path, "http://anna:secret@host:5000", progress)
    assert line == f"browse:      http://anna:***@host:5000, links in {tmp_path / 'mirror.log'}"
    assert browse(tmp_path, "none", progress) == []


def test_of_a_server_that_is_away_a_launch_prints_no_link_but_how_to_write_there_later(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    fault, later = browse(tmp_path, uri, read_progress(planned(tmp_path / "mine").folder))
    assert fault == f"not all of it is in MLflow: {uri} does not answer (Connection refused)"
    assert later.endswith(f"python -m study.mirror {tmp_path} --tracking-uri {uri}")


@pytest.mark.long
@pytest.mark.slow
def test_a_link_into_a_server_names_a_view_that_finds_the_best_palbert_run_on_rte(
    journal: MadeJournal, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(journal.folder), "--tracking-uri", server.uri]) == 0
    (link,) = (line.split()[-1] for line in capsys.readouterr().out.splitlines() if line.startswith(BEST.name))
    with urllib.request.urlopen(link) as page:
        assert page.status == 200
    where = urlsplit(urlsplit(link).fragment)
    experiment = where.path.split("/")[2]
    with urllib.request.urlopen(f"{server.uri}/api/2.0/mlflow/experiments/get?experiment_id={experiment}") as answer:
        tags = {tag["key"]: tag["value"] for tag in json.load(answer)["experiment"]["tags"]}
    view = json.loads(tags[TAG + parse_qs(where.query)["viewStateShareKey"][0]])
    assert view["name"] == "Best run of each arm"
    state = json.loads(view["state"])
    assert found(server.uri, state, " AND tags.method = 'palbert' AND tags.task = 'rte'") == ["d" * 16]
    assert state["selectedColumns"][0] == "metrics.`score`"
