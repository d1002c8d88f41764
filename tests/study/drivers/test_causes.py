"""Whose fault it is that a trial broke off, without Ray: pytest tests/study/drivers/test_causes.py"""

from __future__ import annotations

import os
import re
import shutil
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch
from helpers.faulty_methods import write_method
from helpers.glue_folders import write_glue
from helpers.messages import shown
from helpers.trials import expected_of, next_message, spec_of
from msgspec.structs import replace

import trainables.albert
from study.drivers import trial_process
from study.drivers.causes import breaks_process, build_failure, lost_process
from study.drivers.messages import MESSAGES, AssignedTrial, Assignment, Message
from study.drivers.worker import Worker, run_trial
from study.facts.events import TRACEBACK_CHARACTERS
from trainables.files.method_files import include
from trainables.runs.training import TrainingRun
from trainables.runs.trial import OutOfMemory, TrainingError, Unavailable

pytestmark = pytest.mark.usefixtures("few_rows")


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def assigned(folder: Path, *, epochs: int = 0, **spec: object) -> AssignedTrial:
    """A search trial of two epochs, of which `epochs` were reported."""
    given = replace(spec_of("albert", "rte"), **spec)
    where = {"place": str(folder / "key"), "predictions": None}
    return AssignedTrial(key="key", spec=given, expected=expected_of(given), epochs=epochs, **where)


def news_of(trial: AssignedTrial, number: int = 1) -> list[Message]:
    """What a worker says of the trial, `number` times, before it lets it go."""
    running = run_trial(trial, device="cpu", gpus=0)
    try:
        return [next_message(running) for _ in range(number)]
    finally:
        running.close()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(28, "No space left on device"), "disk"),
        (Unavailable("no file /data/RTE/train.tsv"), "machine"),
        (ImportError("libcudnn.so.9: cannot open shared object file"), "machine"),
        (OutOfMemory("out of memory with batch_size 32; try batch_size 16"), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "memory"),
        (RuntimeError("No CUDA GPUs are available"), "machine"),
        (RuntimeError("Found no NVIDIA driver on your system."), "machine"),
        (AssertionError("Torch not compiled with CUDA enabled"), "machine"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), "machine"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "machine"),
        (RuntimeError("can't start new thread"), "machine"),
        (RuntimeError("CUDA error: device-side assert triggered"), "method"),
        (RuntimeError("Input type (torch.FloatTensor) and weight type (torch.CUDAFloatTensor) differ"), "method"),
        (TrainingError("loss is nan at step 3"), "method"),
        (IndexError("list index out of range"), "method"),
        (ValueError("math domain error"), "method"),
    ],
)
def test_an_error_has_the_cause_that_says_whether_trying_again_helps(error, cause):
    assert build_failure(error, node=None).cause == cause


def test_a_failure_is_one_line_with_the_end_of_its_traceback():
    try:
        raise ValueError("first\n" + "second " * 10_000)
    except ValueError as error:
        failure = build_failure(error, node=None)
    assert failure.error == "ValueError: first"
    assert len(failure.traceback) == TRACEBACK_CHARACTERS and failure.traceback.endswith("second \n")


NODE_DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: TrialActor
The actor died because its node has died. Node Id: 4f00ba
\tthe actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats
The actor never ran - it was cancelled before it started running."""


def test_a_node_that_is_lost_is_nobodys_fault_and_named(snapshot):
    failure = lost_process(NODE_DIED, is_preempted=False, node=None, lost_nodes={"4f00ba": "host-b"})
    assert (failure.cause, failure.node, failure.host) == ("preemption", "4f00ba", "host-b")
    assert failure.error == snapshot


def test_process_lost_with_its_node_is_nobodys_fault():
    said = "The actor is dead because its worker process has died.\nWorker exit type: SYSTEM_ERROR"
    gone = lost_process(said, is_preempted=False, node="a", lost_nodes={"a": "host-a"})
    assert (gone.cause, gone.host, gone.error) == ("preemption", "host-a", "Worker exit type: SYSTEM_ERROR")
    assert lost_process(said, is_preempted=False, node="a", lost_nodes={"b": "host-b"}).cause == "machine"


def test_an_error_that_a_gpu_stays_in_ends_the_process():
    assert breaks_process(RuntimeError("CUDA error: device-side assert triggered"))
    assert not breaks_process(RuntimeError("shape mismatch"))


@pytest.mark.parametrize(
    ("words", "is_of_method"), [("device-side assert triggered", True), ("uncorrectable ECC error encountered", False)]
)
def test_process_that_a_method_broke_has_crashed(words, is_of_method, monkeypatch):
    """So that the trial fails if the crash returns, and is not tried for ever as after a fault of the machine."""

    def fail(connection, place):
        raise RuntimeError(f"CUDA error: {words}")

    ours, theirs = Pipe()
    monkeypatch.setattr(trial_process, "_work", fail)
    monkeypatch.setattr(trial_process, "_end_with_launch", lambda launch: None)
    monkeypatch.setattr(trial_process, "_fork_guard", lambda: None)
    monkeypatch.setattr(trial_process.os, "nice", lambda number: None)
    monkeypatch.setattr(trial_process.os, "register_at_fork", lambda **functions: None)
    monkeypatch.setattr(trial_process.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(sys, "argv", ["trial_process", str(os.dup(theirs.fileno())), "0", "0", "0"])
    with pytest.raises(SystemExit):
        trial_process.main()
    message = MESSAGES.read(ours.recv_bytes(), where="a message")
    assert message.lost is not None and message.lost.is_crash == is_of_method


def test_absent_data_are_machine_fault_and_trial_resumes(tmp_path):
    write_glue(tmp_path / "data")
    trial = assigned(tmp_path, data=str(tmp_path / "data"))
    (tmp_path / "data").rename(tmp_path / "away")
    (news,) = news_of(trial)
    assert news.failure.cause == "machine" and "no folder" in news.failure.error
    assert "Unavailable" in news.failure.traceback and news.failure.host
    (tmp_path / "away").rename(tmp_path / "data")
    assert news_of(trial)[0].report.row.epoch == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"spiece.model": "no model"}, "^tokenizer '.*' cannot be loaded: "),
        ({"config.json": "{"}, "^backbone '.*': config.json is not JSON "),
        (
            {"config.json": '{"model_type": "bert", "num_hidden_layers": "many"}'},
            "^backbone '.*': config.json has num_",
        ),
        ({"config.json": '{"model_type": "bert", "vocab_size": 5}'}, "^the tokenizer has 7 tokens; .* 5 emb"),
        ({"config.json": '{"model_type": "gpt2"}'}, "^backbone '.*': config.json has model_type \"gpt2\"; "),
    ],
)
def test_unusable_backbone_or_tokenizer_is_a_user_error(changes, error, tmp_path):
    folder = tmp_path / "backbone"
    folder.mkdir()
    words = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man"])
    for name, content in ({"config.json": '{"model_type": "bert"}', "vocab.txt": words} | changes).items():
        (folder / name).write_text(content)
    (news,) = news_of(assigned(tmp_path, backbone=str(folder)))
    assert news.failure.cause == "method" and re.match(error, news.failure.error)


def test_a_backbone_that_is_away_is_the_machines_fault(tmp_path):
    (tmp_path / "backbone").mkdir()
    trial = assigned(tmp_path, backbone=str(tmp_path / "backbone"))
    (tmp_path / "backbone").rename(tmp_path / "away")
    (news,) = news_of(trial)
    assert news.failure.cause == "machine" and "is not a folder" in news.failure.error


def test_a_storage_that_is_away_is_not_made_anew(tmp_path):
    (news,) = news_of(assigned(tmp_path / "away"))
    assert news.failure.cause == "machine" and not (tmp_path / "away").exists()


@pytest.mark.slow
def test_a_resumed_trial_reads_the_data_where_they_lie_now(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_glue(tmp_path / "before")
    news_of(assigned(tmp_path, data=str(tmp_path / "before")))
    (tmp_path / "before").rename(tmp_path / "now")
    shutil.rmtree(tmp_path / "cache")
    news = news_of(assigned(tmp_path, epochs=1, data=str(tmp_path / "now")), 2)
    assert [one.report.row.epoch for one in news] == [1, 2] and news[0].restarted is None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trial's folder after its first epoch, and what a trial says whom nothing happens to."""
    folder = tmp_path_factory.mktemp("trained")
    news_of(assigned(folder))
    kept = shutil.copytree(folder / "key", folder / "kept")
    shutil.rmtree(folder / "key")
    return kept, news_of(assigned(folder), 2)


def damage(folder: Path, what: str) -> None:
    if what == "cut":
        (folder / "state.pt").write_bytes((folder / "state.pt").read_bytes()[:1000])
    elif what == "bytes":
        (folder / "state.pt").write_bytes(b"\0" * 1000)
    elif what == "flipped":
        content = bytearray((folder / "state.pt").read_bytes())
        content[len(content) // 2] ^= 1
        (folder / "state.pt").write_bytes(content)
    elif what == "gone":
        (folder / "state.pt").unlink()
    elif what == "model":
        shutil.rmtree(folder / "model-epoch-1")
    else:
        weights = folder / "model-epoch-1" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:100])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("cut", "state.pt is damaged"),
        ("bytes", "state.pt is damaged"),
        ("flipped", "state.pt is damaged: wrong checksum of "),
        ("gone", "state.pt is missing"),
        ("model", "model.safetensors is missing"),
        ("weights", "model.safetensors is damaged"),
    ],
)
def test_unusable_state_is_retrained_to_same_numbers(trained, tmp_path, what, reason):
    kept, undisturbed = trained
    shutil.copytree(kept, tmp_path / "key")
    damage(tmp_path / "key", what)
    news = news_of(assigned(tmp_path, epochs=1), 2)
    assert reason in news[0].restarted and news[1].restarted is None
    assert [scores(one) for one in news] == [scores(one) for one in undisturbed]


def scores(news: Message) -> tuple:
    row = news.report.row
    return row.epoch, row.selection_score, row.train_loss, row.mean_layers


def test_the_state_of_another_trial_is_not_gone_on_with(tmp_path, snapshot):
    news_of(assigned(tmp_path, seed=1))
    (news,) = news_of(assigned(tmp_path, seed=2))
    assert shown(news.restarted, tmp_path) == snapshot and news.report.row.epoch == 1


def test_trial_restarts_if_its_state_lacks_reported_epochs(tmp_path):
    news_of(assigned(tmp_path))
    (news,) = news_of(assigned(tmp_path, epochs=2))
    assert news.restarted is not None and "it has 1 of the 2 epochs that were reported" in news.restarted
    assert news.report.row.epoch == 1 and news.report.attested is not None
    assert news_of(assigned(tmp_path, epochs=1))[0].restarted is None


def test_a_full_disk_under_the_state_is_the_machines_fault(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    (news,) = news_of(assigned(tmp_path))
    assert news.failure.cause == "machine" and "cannot be written" in news.failure.error
    monkeypatch.undo()
    assert news_of(assigned(tmp_path))[0].report.row.epoch == 1


def test_an_exception_in_a_methods_code_is_its_own(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise IndexError("index 7")

    monkeypatch.setattr(TrainingRun, "epoch_in_steps", broken)
    (news,) = news_of(assigned(tmp_path))
    assert news.failure.cause == "method"
    assert news.failure.error.startswith("IndexError: index 7 (drivers/test_causes.py, line ")


def test_a_failure_says_the_seconds_of_all_attempts(tmp_path):
    """Those of earlier attempts are in the journal alone, as after a failure in the first epoch."""
    write_method(tmp_path / "methods", "nan", loss="loss = loss * float('nan')")
    trainables.include(tmp_path / "methods")
    try:
        trial = replace(assigned(tmp_path, method="nan", config=spec_of("nan", "rte").config), seconds=(100.0, 30.0))
        *_, news = run_trial(trial, device="cpu", gpus=0.5)
    finally:
        include(None)
    assert news.failure.error.startswith("loss is nan") and news.report is None
    seconds = news.seconds[0] - 100
    assert seconds > 0 and news.seconds[1] == pytest.approx(30 + seconds / 2)


def test_exception_place_is_deepest_line_of_own_file(tmp_path, monkeypatch):
    monkeypatch.setattr("trainables.models.classifiers.LastLayerModel", lambda *_: {}[2])
    (news,) = news_of(assigned(tmp_path))
    lines = Path(trainables.albert.__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if "return LastLayerModel(" in text)
    assert news.failure.error == f"KeyError: 2 (trainables/albert.py, line {line})"


def test_a_failure_that_says_all_itself_has_no_place(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise TrainingError("loss is nan at step 3")

    monkeypatch.setattr(TrainingRun, "epoch_in_steps", broken)
    (news,) = news_of(assigned(tmp_path))
    assert (news.failure.cause, news.failure.error) == ("method", "loss is nan at step 3")


def test_late_actor_deletes_nothing_of_ended_trial(tmp_path, monkeypatch):
    monkeypatch.setattr("study.drivers.worker.PAUSE_SECONDS", 0.0)  # after each step
    news_of(assigned(tmp_path))
    (tmp_path / "key" / "state.pt").unlink()  # as after its end
    for epochs in (0, 1):
        late = run_trial(assigned(tmp_path, epochs=epochs), device="cpu", gpus=0)
        next(late)
        late.close()
        assert (tmp_path / "key" / "model-epoch-1" / "model.safetensors").exists()


def test_actor_that_is_dropped_before_its_first_step_takes_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("study.storage.trial_places.HELD_SECONDS", 0.0)  # it would not wait, but take the folder over
    at_work = run_trial(assigned(tmp_path), device="cpu", gpus=0)
    next_message(at_work)
    dropped = Worker()
    dropped.begin(Assignment(trial=assigned(tmp_path), device="cpu", cpus=1, gpus=0, threads=1), node=None)
    dropped.release()
    assert next_message(at_work).report.row.epoch == 2
    at_work.close()
