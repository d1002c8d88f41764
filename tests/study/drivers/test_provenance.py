"""What workers attest and a launch refuses, without Ray: pytest tests/study/drivers/test_provenance.py"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.driven_cluster import Cluster
from helpers.journals import MadeJournal, failure_of, report_of, row_of
from helpers.launched_studies import PROVENANCE, mini_plan
from helpers.trials import expected_of, next_message, spec_of
from msgspec.structs import replace
from transformers import AutoConfig, AutoModel

from study.decisions.scheduler import Scheduler
from study.drivers.messages import AssignedTrial, Message
from study.drivers.tune_driver import _Scheduler
from study.drivers.worker import run_trial
from study.facts import provenance
from study.facts.events import EpochReported, NodeLeftOut, TrialRetried
from study.facts.provenance import Attestation, Provenance, join_code, list_contradictions
from study.launching.screen import describe_notice
from trainables.data import mini_glue
from trainables.data.tasks import TASKS
from trainables.files.sources import hash_of_file
from trainables.runs.trial import TrialSpec

SHORT = {"max_length": 16, "batch_size": 64}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Mini-RTE as TSV files, few rows of it."""
    folder = tmp_path / "glue"
    (folder / "RTE").mkdir(parents=True)
    for split in ("train", "dev"):
        rows = mini_glue.generate(TASKS["rte"], split)[:64]
        lines = ["\t".join([str(i), *texts, TASKS["rte"].file_labels[label]]) for i, texts, label in rows]
        (folder / "RTE" / f"{split}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n")
    return folder


def test_joined_code_names_each_value_once() -> None:
    both = Provenance(versions={"torch": "1.0, 2.0"}, git_commit="aaa, bbb", code_digest="c0de, f00d")
    again = Provenance(versions={"torch": "2.0"}, git_commit="aaa", code_digest="beef")
    assert join_code("mlm", [both, again]) == Provenance(
        versions={"torch": "1.0, 2.0"}, git_commit="bbb, aaa", code_digest="c0de, f00d, beef"
    )


def test_the_commit_is_asked_for_without_a_write_into_the_repository(tmp_path, monkeypatch):
    """A launch that is killed while git holds the index's lock would leave it to whoever commits next."""
    file, git = tmp_path / "file.py", ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    file.write_text("x = 1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    commit = next((tmp_path / ".git" / "refs" / "heads").iterdir()).read_text().strip()
    os.utime(file, (1, 1))  # so that git would write down that it has looked
    index = (tmp_path / ".git" / "index").read_bytes()
    assert provenance.read_git_commit() == commit
    file.write_text("x = 2\n")
    assert provenance.read_git_commit() == f"{commit}-dirty"
    assert (tmp_path / ".git" / "index").read_bytes() == index


def running(tmp_path: Path, spec: TrialSpec, expected: Attestation) -> Generator[Message, None, None]:
    (tmp_path / "trials").mkdir(exist_ok=True)
    given = {"place": str(tmp_path / "trials" / "key"), "predictions": None}
    return run_trial(AssignedTrial(key="key", spec=spec, expected=expected, epochs=0, **given), device="cpu", gpus=0)


def news_of(tmp_path: Path, spec: TrialSpec, expected: Attestation) -> Message:
    """The first that a worker says of the trial."""
    trial = running(tmp_path, spec, expected)
    try:
        return next_message(trial)
    finally:
        trial.close()


def states(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "trials").rglob("state.pt"))


def test_a_worker_attests_with_its_first_epoch_and_once(tmp_path, data):
    spec = spec_of("albert", "rte", data=str(data), config=SHORT | {"epochs": 2})
    trial = running(tmp_path, spec, expected_of(spec))
    first, second = next_message(trial).report, next_message(trial).report
    trial.close()
    assert list_contradictions(first.attested, expected_of(spec)) == [] and second.attested is None
    assert len(first.attested.tokens_digest) == 16 and first.attested.backbone_fingerprint.startswith("mini-albert@")


def test_a_process_that_goes_on_with_a_trial_attests_too(tmp_path, data):
    spec = spec_of("albert", "rte", data=str(data), config=SHORT | {"epochs": 2})
    news_of(tmp_path, spec, expected_of(spec))
    trial = running(tmp_path, spec, expected_of(spec))
    repeated, trained = next_message(trial).report, next_message(trial).report
    trial.close()
    assert repeated.row.epoch == 1 and repeated.attested == trained.attested
    assert list_contradictions(trained.attested, expected_of(spec)) == []


def test_labels_flipped_after_launch_are_refused(tmp_path, data):
    spec = spec_of("albert", "rte", data=str(data), config=SHORT)
    expected = expected_of(spec)
    dev = data / "RTE" / "dev.tsv"
    flipped = dev.read_text().replace("not_entailment", "?").replace("entailment", "not_entailment")
    dev.write_text(flipped.replace("?", "entailment"))
    news = news_of(tmp_path, spec, expected)
    assert news.report is None and news.failure is None and states(tmp_path) == []
    [fault] = list_contradictions(news.refused, expected)
    assert fault == f"data {news.refused.data_fingerprint}, not {expected.data_fingerprint}"


def test_a_forged_cache_of_tokens_is_not_trained_on(tmp_path, data):
    """Its digests are those of its files: only the trial that came before knows better."""
    spec = spec_of("albert", "rte", data=str(data), config=SHORT)
    good = news_of(tmp_path, spec, expected_of(spec)).report.attested
    shutil.rmtree(tmp_path / "trials")
    path = next((tmp_path / "cache").rglob("tokens.npy"))
    tokens = np.load(path)
    tokens[0] += 1
    np.save(path, tokens)
    digests = {file.name: hash_of_file(file) for file in path.parent.glob("*.npy")}
    (path.parent / "digests.json").write_text(json.dumps(digests))
    expected = replace(expected_of(spec), tokens_digest=good.tokens_digest)
    news = news_of(tmp_path, spec, expected)
    assert states(tmp_path) == []
    assert list_contradictions(news.refused, expected)[0].startswith("tokenised data ")


def test_changed_backbone_folder_is_refused(tmp_path, data):
    folder = tmp_path / "backbone"
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    AutoModel.from_config(AutoConfig.for_model("bert", vocab_size=50, **sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"]))
    spec = spec_of("albert", "rte", data=str(data), backbone=str(folder), config=SHORT)
    expected = expected_of(spec)
    description = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(description | {"layer_norm_eps": 1e-3}))
    news = news_of(tmp_path, spec, expected)
    assert [fault.split()[0] for fault in list_contradictions(news.refused, expected)] == ["backbone"]


# ---- what the launch says


def launch() -> tuple[Scheduler, str, Attestation]:
    """A launch with one trial handed out, its key, and what is expected of its worker."""
    scheduler = Scheduler(mini_plan(methods=("albert",), tasks=("rte",)), MadeJournal(), PROVENANCE)
    scheduler.begin_launch(command="", host="", pid=0)
    trial = scheduler.next_trial()
    return scheduler, trial.key, scheduler.make_expected_attestation(trial)


DIFFERENT = {
    "data_fingerprint": "data f00d, not ",
    "backbone_fingerprint": "backbone f00d, not mini-albert@",
    "tokenizer_fingerprint": "tokenizer f00d, not None",
    "code_digest": "code f00d, not c0de",
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_difference_from_plan_is_refused_unrecorded(field):
    scheduler, key, expected = launch()
    attested = replace(expected, **{field: "f00d"})
    with pytest.raises(
        ValueError, match=f"^trial {key} of albert/rte on node-1 differs from the plan: .*{DIFFERENT[field]}"
    ) as error:
        scheduler.report(key, replace(report_of(row_of(1, 0.5)), attested=attested))
    assert "\n" not in str(error.value)
    assert [event for event in scheduler._journal.events if isinstance(event, EpochReported)] == []


def test_a_node_with_another_version_is_refused_by_the_version():
    scheduler, key, expected = launch()
    attested = replace(expected, versions={"torch": "2.1.0", "accelerate": "1.0"})
    with pytest.raises(ValueError, match=r"plan: torch 2.1.0, not 2.13.0; nothing was recorded"):
        scheduler.check_attested(scheduler.facts.trials[key], attested, host="node-1")


def test_builds_of_one_version_do_not_differ():
    scheduler, key, expected = launch()
    scheduler.check_attested(
        scheduler.facts.trials[key], replace(expected, versions={"torch": "2.13.0+cu128"}), host="node-1"
    )


@pytest.mark.parametrize("field", ["tokens_digest", "backbone_digest"])
def test_trials_of_an_arm_must_agree_with_its_first(field):
    scheduler, key, expected = launch()
    first = replace(expected, tokens_digest="beef", backbone_digest="f11e")
    scheduler.report(key, replace(report_of(row_of(1, 0.5)), attested=first))
    second = scheduler.next_trial()
    expected = scheduler.make_expected_attestation(second)
    assert (expected.tokens_digest, expected.backbone_digest) == ("beef", "f11e")
    with pytest.raises(ValueError, match=r"f00d, not (beef|f11e)"):
        scheduler.check_attested(second, replace(first, **{field: "f00d"}), host="node-2")


def test_a_record_says_what_its_worker_found():
    scheduler, key, expected = launch()
    attested = replace(expected, tokens_digest="beef", backbone_digest="f11e")
    scheduler.report(key, replace(report_of(row_of(1, 0.5)), attested=attested))
    record = scheduler.end(key, failure=failure_of("method", error="over"))
    assert (record.tokens_digest, record.backbone_digest, record.code_digest) == ("beef", "f11e", "c0de")


@pytest.mark.parametrize("field", ["code_digest", "data_fingerprint", "backbone_fingerprint"])
def test_study_continues_without_node_of_other_code(tmp_path, monkeypatch, field):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, second = cluster.hand_out()
    assert cluster.refuse(first, "a", **{field: "f00d"}) == "STOP"
    (left_out,) = cluster.events(NodeLeftOut)
    assert (left_out.node, left_out.host, left_out.trials) == ("a", "host-a", 1) and "f00d, not " in left_out.error
    assert "\n" not in describe_notice(left_out) and "node host-a (a) gets no trials" in describe_notice(left_out)
    (again,) = cluster.events(TrialRetried)
    assert again.failure.cause == "node" and not cluster.scheduler.faults.is_final(again.key, again.failure)
    cluster.driver.begun(second)
    assert cluster.hand_out() == ["ray-2"]
    trials = cluster.scheduler.facts.trials.values()
    assert [cluster.driver._list_avoided_nodes(trial) for trial in trials] == [("a",)] * 3


def test_a_node_that_is_left_out_is_not_waited_for(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b", "c")
    first, *_ = cluster.hand_out()
    cluster.refuse(first, "a", code_digest="f00d")
    cluster.driver._slots_asked = -math.inf
    assert cluster.driver._count_slots() == 2


def test_other_code_on_every_node_refuses_launch(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, second = cluster.hand_out()
    cluster.refuse(first, "a", code_digest="f00d")
    noted = len(cluster.scheduler._journal.events)
    with pytest.raises(ValueError, match="of albert/rte on host-b differs from the plan: code beef, not c0de") as e:
        cluster.refuse(second, "b", code_digest="beef")
    assert "\n" not in str(e.value) and len(cluster.scheduler._journal.events) == noted
    assert cluster.scheduler.facts.records == []


@pytest.mark.parametrize("nodes", [(), ("a",)])
def test_the_only_node_is_not_left_out(tmp_path, monkeypatch, nodes):
    cluster = Cluster(tmp_path, monkeypatch, *nodes)
    (only,) = cluster.hand_out()
    with pytest.raises(ValueError, match="code f00d, not c0de"):
        cluster.refuse(only, "a", code_digest="f00d")
    assert cluster.events(NodeLeftOut) == []


def test_two_unlike_digests_blame_no_worker(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    first, second = cluster.hand_out()
    key = cluster.driver._keys[first]
    said = replace(cluster.expected(key), tokens_digest="beef", backbone_digest="f11e")
    cluster.scheduler.report(key, replace(report_of(row_of(1, 0.5)), attested=said), node="a")
    with pytest.raises(ValueError, match="tokenised data f00d, not beef"):
        cluster.refuse(second, "b", tokens_digest="f00d", backbone_digest="f11e")


# ---- the code


def test_code_digest_changes_with_sources_only(tmp_path):
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "one.py").write_text("x = 1\n")
    before = provenance.compute_code_digest([folder])
    (folder / "notes.txt").write_text("nothing")
    (folder / "__pycache__").mkdir()
    assert provenance.compute_code_digest([folder]) == before
    (folder / "inner" / "one.py").write_text("x = 2\n")
    assert provenance.compute_code_digest([folder]) != before
    (folder / "inner" / "one.py").write_text("x = 1\n")
    (folder / "two.py").touch()
    assert provenance.compute_code_digest([folder]) != before


def test_what_trains_and_the_engine_have_a_digest_each():
    trains, engine = ([provenance.ROOT / name for name in names] for names in (provenance.TRAINS, provenance.ENGINE))
    assert all((package / "__init__.py").exists() for package in trains + engine)
    found = provenance.read_provenance()
    assert (found.code_digest, found.versions["study"]) == tuple(map(provenance.compute_code_digest, (trains, engine)))


# As in a worker whose first work is an empty part of the smoke steps, before the first trial of PALBERT.
EDITED_LATER = """
from pathlib import Path
from study.drivers.worker import run_smoke_steps
run_smoke_steps({}, device="cpu", node=None)
with Path("trainables/models/ponder.py").open("a") as file:
    file.write("EDITED = True\\n")
from trainables.models import ponder
assert ponder.__file__ == str(Path("trainables/models/ponder.py").resolve()) and not hasattr(ponder, "EDITED")
"""


@pytest.mark.slow
def test_worker_runs_the_code_that_it_attested_after_an_edit(tmp_path):
    for package in provenance.TRAINS + provenance.ENGINE:
        unneeded = shutil.ignore_patterns("__pycache__")
        shutil.copytree(provenance.ROOT / package, tmp_path / package, ignore=unneeded)
    command, here = [sys.executable, "-c", EDITED_LATER], os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run(command, cwd=tmp_path, env=here, check=True)


# ---- nodes that go


class Controller:
    """What Ray's scheduler is given: trials that wait, and a way to drop them."""

    def __init__(self, *ray_ids: str) -> None:
        self.trials = [SimpleNamespace(trial_id=ray_id, status="PENDING") for ray_id in ray_ids]

    def get_trials(self) -> list[SimpleNamespace]:
        return list(self.trials)

    def stop_trial(self, trial: SimpleNamespace) -> None:
        self.trials.remove(trial)


def test_trial_waiting_for_lost_node_is_reassigned(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, monkeypatch, "a", "b")
    scheduler = cluster.scheduler
    (first, second), asked = cluster.hand_out(), _Scheduler(cluster.driver)
    key = cluster.driver._keys[first]
    for ray_id in (first, second):
        cluster.driver.begun(ray_id)
    failure = failure_of("machine", node="a")
    cluster.driver.reported(first, Message(key=key, host="host-a", node="a", failure=failure))
    scheduler.faults._trials[key].not_before = 0.0  # the wait after a fault is over
    (again,) = cluster.hand_out()
    assert cluster.driver._keys[again] == key and cluster.driver._waiting == {again: {"a"}}
    controller = Controller(again)
    assert asked.choose_trial_to_run(controller).trial_id == again  # "b" is there
    cluster.nodes_are("a")
    cluster.driver._next_placing = 0.0
    assert asked.choose_trial_to_run(controller) is None and controller.trials == []
    assert cluster.events(TrialRetried)[-1].failure.cause == "preemption"
    (once_more,) = cluster.hand_out()
    assert cluster.driver._keys[once_more] == key and cluster.driver._waiting == {once_more: frozenset()}
