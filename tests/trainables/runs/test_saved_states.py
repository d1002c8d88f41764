"""A trial that is saved and resumed: pytest tests/trainables/runs/test_saved_states.py"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers.bit_flips import flip_bit
from helpers.places import ROOT
from helpers.trials import FEW_ROWS, LINEAR, assert_equal_weights, run_to_the_end, spec_of, untimed, weights_of
from safetensors.torch import load_file, save_file

from trainables.files.sources import hash_folder
from trainables.runs.evaluation import full_depth_outputs
from trainables.runs.trained_model import load_trained
from trainables.runs.training import TrainingRun
from trainables.runs.trial import UnreadableState
from trainables.runs.trial_files import read_state, write_state

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rows")]

RESUME = """
import sys
from pathlib import Path
from trainables.runs.training import TrainingRun
rows, cache, *folders = sys.argv[1:]
for folder in map(Path, folders):
    run = TrainingRun.resume(folder, cache=Path(cache), limit=int(rows))
    while not run.finished:
        run.run_epoch()
        run.save(folder)
"""
RESUMED = ("albert", "palbert", "pondernet", "berxit")  # without and with exit, a sampled one, and turns of steps


@pytest.fixture(scope="module")
def resumed(cache, tmp_path_factory):
    """One trial per method, as it was after its first epoch, and the folder where a new process ran it to its end."""
    folders, runs = {}, {}
    for method in RESUMED:
        runs[method] = TrainingRun(spec_of(method, task="mrpc", config=LINEAR), cache=cache)
        runs[method].run_epoch()
        folders[method] = tmp_path_factory.mktemp(method)
        runs[method].save(folders[method])
    command = [sys.executable, "-c", RESUME, str(FEW_ROWS), str(cache), *map(str, folders.values())]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return {method: (runs[method], folders[method]) for method in folders}


@pytest.mark.parametrize("method", RESUMED)
def test_resumed_in_a_new_process_equals_uninterrupted(method, resumed, cache, tmp_path):
    run, folder = resumed[method]
    while not run.finished:
        run.run_epoch()
    run.save(tmp_path)
    ours, theirs = read_state(tmp_path), read_state(folder)
    assert_equal_weights(ours["model"], theirs["model"])
    assert untimed(ours["history"]) == untimed(theirs["history"])
    best = [load_file(path / f"model-epoch-{run.best_epoch}" / "model.safetensors") for path in (tmp_path, folder)]
    assert_equal_weights(*best)


@pytest.mark.parametrize("method", ["palbert", "pabee"])
def test_resumed_in_float16_equals_uninterrupted(method, cache, tmp_path):
    spec = spec_of(method, config={**LINEAR, "precision": "float16"})
    whole, run = TrainingRun(spec, cache=cache), TrainingRun(spec, cache=cache)
    for each in (whole, run):
        each._optimiser._scaler._init_scale = 2.0**60  # so large that steps are skipped in both epochs
        each.run_epoch()
    run.save(tmp_path / "state")
    torch.rand(3)
    run = TrainingRun.resume(tmp_path / "state", cache=cache)
    assert run.steps_done == 0 and run._optimiser.state()["scale"] == whole._optimiser.state()["scale"]
    for each in (whole, run):
        each.run_epoch()
    assert untimed(run.history) == untimed(whole.history)
    assert_equal_weights(weights_of(run, tmp_path / "one"), weights_of(whole, tmp_path / "two"))
    scale, steps = whole._optimiser.state()["scale"], 2 * whole.steps_per_epoch
    assert scale["skipped"] > 0 and whole._optimiser.steps == steps
    assert whole._optimiser._schedule.last_epoch == steps - scale["skipped"]
    assert math.isfinite(run.history[-1].train_loss)


def test_resuming_carries_the_costs_on(resumed):
    rows = read_state(resumed["albert"][1])["history"]
    assert [row["train_examples"] for row in rows] == [FEW_ROWS, 2 * FEW_ROWS]
    assert all(rows[0][name] < rows[1][name] for name in ("train_seconds", "eval_seconds"))


def test_resuming_needs_a_saved_trial(cache, tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} .*: state.pt is missing"):
        TrainingRun.resume(tmp_path, cache=cache)


@pytest.fixture(scope="module")
def half_done(cache, tmp_path_factory):
    """A trial of two epochs, saved after its second one; the first is the better one."""
    run = TrainingRun(spec_of(config={"epochs": 3, "learning_rate": 1e-12}), cache=cache)
    folder = tmp_path_factory.mktemp("half") / "trial"
    for _ in range(2):
        run.run_epoch()
        run.save(folder)
    assert run.best_epoch == 1
    return run, folder


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_model_is_not_resumed_with(half_done, cache, tmp_path, name):
    folder = shutil.copytree(half_done[1], tmp_path / "trial")
    flip_bit(folder / "model-epoch-1" / name, random.Random(name))
    with pytest.raises(UnreadableState, match=f"^{folder}: .*(epoch 1 was|{name} is) damaged"):
        TrainingRun.resume(folder, cache=cache)


def test_a_resumed_trial_reports_what_the_best_epoch_scored(half_done, cache, tmp_path):
    run, folder = half_done
    resumed = TrainingRun.resume(folder, cache=cache)
    own, theirs = (each.outcome(tmp_path / f"{id(each)}.npz") for each in (run, resumed))
    assert own.reported == theirs.reported == run.history[0].reported
    assert own.predictions_digest == theirs.predictions_digest
    assert (own.model_digest, theirs.model_digest) == (hash_folder(Path(own.model)),) * 2


def test_outputs_that_score_otherwise_than_their_epoch_are_not_resumed_with(half_done, cache, tmp_path):
    folder = shutil.copytree(half_done[1], tmp_path / "trial")
    state = read_state(folder)
    state["outputs"]["logits"] = -state["outputs"]["logits"]
    write_state(folder, state)
    with pytest.raises(UnreadableState, match=r"epoch 1 scores 0\.\d+, not 0\.\d+"):
        TrainingRun.resume(folder, cache=cache)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_state_without_digest_is_rescored(half_done, cache, tmp_path, is_damaged):
    folder = shutil.copytree(half_done[1], tmp_path / "trial")
    state = read_state(folder)
    write_state(folder, {name: value for name, value in state.items() if name not in ("model_digest", "outputs")})
    if is_damaged:
        file = folder / "model-epoch-1" / "model.safetensors"
        save_file({name: -value for name, value in load_file(file).items()}, file)
        with pytest.raises(UnreadableState, match="the model of epoch 1 scores"):
            TrainingRun.resume(folder, cache=cache)
    else:
        assert TrainingRun.resume(folder, cache=cache).outcome().reported == half_done[0].history[0].reported


def test_saved_models_are_equal_whatever_the_tokenizer_did_before(half_done, tmp_path):
    run, folder = half_done
    run._data.tokenizer("a dog", padding="max_length", truncation=True, max_length=9)
    assert run.write_model(tmp_path / "model") == hash_folder(folder / "model-epoch-1")


def test_killed_while_saving_leaves_a_whole_state(cache, tmp_path):
    """Kills at random moments of saving one epoch, the other, the one ... in one folder; each time it loads.

    It begins with the epoch that is not the saved one: no run saves the model again that its state already names.
    """
    run = TrainingRun(spec_of(config={"epochs": 9, "select": "last"}), cache=cache)
    snapshots = [tmp_path / "snapshot-1", tmp_path / "snapshot-2"]
    for snapshot in snapshots:
        run.run_epoch()
        run.save(snapshot)
    known = [TrainingRun.resume(snapshot, cache=cache).history for snapshot in snapshots]
    folder = tmp_path / "trial"
    survivor = TrainingRun.resume(snapshots[0], cache=cache)
    survivor.save(folder)
    moments = random.Random(5)
    for _ in range(6):
        there, other = sorted(snapshots, key=lambda snapshot: snapshot.name != f"snapshot-{survivor.best_epoch}")
        saves = [TrainingRun.resume(snapshot, cache=cache) for snapshot in [other, there] * 3]
        child = multiprocessing.get_context("fork").Process(target=_save_all, args=(saves, folder))
        child.start()
        time.sleep(moments.uniform(0.005, 0.06))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        survivor = TrainingRun.resume(folder, cache=cache)
        assert survivor.history in known
        load_trained(Path(survivor.outcome().model))


def _save_all(runs, folder):
    for run in runs:
        run.save(folder)


def test_saving_keeps_one_model_and_no_leftovers(cache, tmp_path):
    run = TrainingRun(spec_of(), cache=cache)
    (tmp_path / ".model-epoch-1.77").mkdir()  # as a killed process leaves it
    while not run.finished:
        run.run_epoch()
        run.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"model-epoch-{run.best_epoch}", "state.pt"]


def test_resumed_where_the_last_epoch_is_selected_equals_uninterrupted(cache, tmp_path):
    spec = spec_of("electra-small", config={"epochs": 2, "select": "last"})
    whole = run_to_the_end(spec, cache)
    whole.save(tmp_path / "whole")
    half = TrainingRun(spec, cache=cache)
    half.run_epoch()
    half.save(tmp_path / "half")
    resumed = TrainingRun.resume(tmp_path / "half", cache=cache)
    resumed.run_epoch()
    resumed.save(tmp_path / "half")
    assert untimed(resumed.history) == untimed(whole.history)
    models = [load_file(Path(run.outcome().model) / "model.safetensors") for run in (whole, resumed)]
    assert_equal_weights(*models)


def test_sharebert_is_resumed_bit_identically_and_loaded_as_it_was(cache, tmp_path):
    spec = spec_of("palbert", backbone="mini-sharebert", config={"epochs": 2, "select": "last"})
    whole, half = run_to_the_end(spec, cache), TrainingRun(spec, cache=cache)
    half.run_epoch()
    half.save(tmp_path / "half")
    resumed = TrainingRun.resume(tmp_path / "half", cache=cache)
    resumed.run_epoch()
    assert_equal_weights(weights_of(whole, tmp_path / "whole"), weights_of(resumed, tmp_path / "half"))
    loaded = load_trained(Path(whole.outcome().model)).model
    ours, theirs = (full_depth_outputs(model, whole._data.selection, 64) for model in (whole._model, loaded))
    assert torch.equal(ours.logits, theirs.logits) and torch.equal(ours.lambdas, theirs.lambdas)


def test_flipped_bit_at_end_of_state_is_no_machine_fault(tmp_path):
    """The end has the table of contents, from which a damaged place can lead before the file's beginning."""
    write_state(tmp_path, {"model": torch.arange(100.0)})
    content = (tmp_path / "state.pt").read_bytes()
    damaged = 0
    for place in range(len(content) - 60, len(content)):
        for bit in range(8):
            flipped = content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
            (tmp_path / "state.pt").write_bytes(flipped)
            try:
                assert torch.equal(read_state(tmp_path)["model"], torch.arange(100.0))
            except UnreadableState:
                damaged += 1
    assert damaged > 100
