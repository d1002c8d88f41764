"""The actor that carries trials, without Ray: pytest tests/test_trainable.py"""

import gc
import json
import warnings
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from trials import spec_of

import trainables
from study.trainable import MESSAGE, StudyTrainable


def tensor_bytes() -> int:
    """Bytes of all tensors that anything still holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking at every object asks some for deprecated attributes
        tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def assignment(folder: Path, method: str, task: str) -> dict[str, str]:
    spec = asdict(spec_of(method, task, config={"epochs": 1}))
    where = {"folder": str(folder / method), "predictions": str(folder / f"{method}.npz")}
    return {MESSAGE: json.dumps({"spec": spec, **where, "device": "cpu", "cpus": 1, "gpus": 0, "threads": 1})}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_memory_is_back_at_its_baseline_after_each_trial(tmp_path):
    gc.collect()
    baseline = tensor_bytes()
    actor = None
    for method, task in zip(trainables.available(), ("rte", "cola", "stsb", "sst2", "mrpc"), strict=True):
        config = assignment(tmp_path, method, task)
        if actor is None:
            actor = StudyTrainable(config)
        else:
            actor.reset_config(config)
        row = json.loads(actor.step()[MESSAGE])
        assert row["finished"] and tensor_bytes() > baseline
        actor.cleanup()
        assert tensor_bytes() == baseline
