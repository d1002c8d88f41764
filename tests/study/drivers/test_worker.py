"""The worker that runs trials one after another: pytest tests/study/drivers/test_worker.py"""

import gc
import warnings
from itertools import cycle
from pathlib import Path

import msgspec
import pytest
import torch
from helpers.trials import expected_of, next_message, spec_of

import trainables
from study.drivers.messages import AssignedTrial, Assignment, Message
from study.drivers.worker import Worker, run_trial

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rows")]


def tensor_bytes() -> int:
    """Bytes of all tensors that anything still holds."""
    gc.unfreeze()  # what a worker has set aside is looked at too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking at every object asks some for deprecated attributes
        tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def assigned(folder: Path, method: str, task: str, *, seed: int = 1, epochs: int = 1) -> AssignedTrial:
    spec = spec_of(method, task, seed=seed, config={"epochs": epochs})
    key = f"{method}-{seed}"
    folder.mkdir(exist_ok=True)
    where = {"place": str(folder / key), "predictions": str(folder / f"{key}.npz")}
    return AssignedTrial(key=key, spec=spec, expected=expected_of(spec), epochs=0, **where)


def begin(worker: Worker, trial: AssignedTrial) -> None:
    worker.release()
    worker.begin(Assignment(trial=trial, device="cpu", cpus=1, gpus=0, threads=1), node=None)


def said(worker: Worker) -> Message:
    """After an epoch, however long that takes."""
    while (message := worker.step()).steps:
        pass
    return message


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.long
def test_memory_is_back_at_its_baseline_after_each_trial(tmp_path):
    gc.collect()
    baseline = tensor_bytes()
    worker = Worker()
    by_build = {
        trainables.load_method(method).build: method for method in trainables.list_methods()
    }  # one for each model
    first = next(iter(by_build.values()))
    for method, task in zip(by_build.values(), cycle(("rte", "cola", "stsb", "mrpc")), strict=False):
        trial = assigned(tmp_path, method, task)
        if method != first:  # without predictions, a trial is not timed, which takes longer than its training
            trial = msgspec.structs.replace(trial, predictions=None)
        begin(worker, trial)
        news = said(worker)
        assert news.report.row.finished and tensor_bytes() > baseline
        worker.release()
        assert tensor_bytes() == baseline


def test_worker_continues_after_a_trial_that_cannot_be_run(tmp_path):
    broken = msgspec.structs.replace(assigned(tmp_path, "albert", "rte", seed=1), place=str(tmp_path / "broken"))
    broken = msgspec.structs.replace(broken, spec=msgspec.structs.replace(broken.spec, data="/nowhere"))
    worker = Worker()
    begin(worker, broken)
    first = said(worker)
    begin(worker, assigned(tmp_path, "albert", "rte", seed=2))
    second = said(worker)
    worker.release()
    assert "no folder /nowhere; data must be " in first.failure.error and second.report.row.finished


def test_flops_are_counted_only_if_the_model_stays(tmp_path):
    kept, left = (assigned(tmp_path, "albert", "rte", seed=seed) for seed in (1, 2))
    found = []
    for trial in (kept, msgspec.structs.replace(left, predictions=None)):
        worker = Worker()
        begin(worker, trial)
        found.append(said(worker).report.outcome.text_flops)
        worker.release()
    assert [bool(flops) for flops in found] == [True, False]


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_that_is_given_up_begins_again_and_nothing_differs(tmp_path, monkeypatch, epoch):
    monkeypatch.setattr("study.drivers.worker.PAUSE_SECONDS", 0.0)  # after each step
    trials = [assigned(tmp_path / name, "palbert", "rte", epochs=2) for name in "ab"]
    whole, cut = (run_trial(trial, device="cpu", gpus=0) for trial in trials)
    rows = [next_message(whole).report.row for _ in range(2)]
    for _ in range(epoch - 1):
        next_message(cut)
    before = torch.get_rng_state()
    told = [next(cut).steps for _ in range(3)]
    assert [steps.done for steps in told] == [1, 2, 3] and told[0].of > 3
    cut.close()
    assert torch.equal(torch.get_rng_state(), before)
    again = run_trial(trials[1], device="cpu", gpus=0)
    news = [next_message(again) for _ in range(2)]
    again.close()
    whole.close()
    numbers = [(row.epoch, row.selection_score, row.train_loss, row.mean_layers) for row in rows]
    assert numbers == [
        (n.report.row.epoch, n.report.row.selection_score, n.report.row.train_loss, n.report.row.mean_layers)
        for n in news
    ]
