"""Two processes take one process's steps: pytest tests/trainables/runs/test_processes.py"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.corpora import pretraining_config, pretraining_spec, random_documents, write_corpus
from helpers.messages import one_line
from helpers.process_groups import in_processes
from msgspec.structs import replace
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from trainables.pretraining.configuration import PretrainingSpec
from trainables.pretraining.run import PretrainingRun, dropout_purpose

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A run of a few steps; without dropout, which no two processes draw alike."""

    name: str
    objective: str
    backbone: str | None = None
    changes: tuple[tuple[str, Any], ...] = ()
    tolerance: float = 1e-6

    def spec(self, corpus: str) -> PretrainingSpec:
        values = {"steps": 3, "hidden_dropout": 0.0, "classifier_dropout": 0.0, **dict(self.changes)}
        spec = pretraining_spec(self.objective, corpus, **values)
        return replace(spec, backbone=self.backbone or spec.backbone)


ACCUMULATED = (("gradient_accumulation", 2),)
CASES = (
    Case("mlm", "mlm"),
    Case("mlm, accumulated", "mlm", changes=ACCUMULATED),
    Case("electra-rtd", "electra-rtd"),
    Case("electra-rtd, accumulated", "electra-rtd", changes=ACCUMULATED),
    # With parameters that no loss depends on, and one of tiny gradients: Adam enlarges its rounding, in parts too.
    Case("sharebert", "mlm", "mini-sharebert", tolerance=1e-4),
)
BFLOAT16 = Case("bfloat16", "mlm", changes=(("precision", "bfloat16"),))
DROPOUT = Case("dropout", "mlm", changes=(("hidden_dropout", 0.5),))


def run_all(rank: int, *, corpus: str, cache: Path, left: Path) -> None:
    """Every case, as one of the processes, whose state is left in a file."""
    for case in (*CASES, BFLOAT16, DROPOUT):
        run, exchanges = PretrainingRun(case.spec(corpus), cache=cache), []
        if isinstance(run._loss, DistributedDataParallel):
            run._loss.register_comm_hook(exchanges, exchange)
        while not run.finished:
            run.run_epoch()
        torch.save(run.state(), left / f"{case.name} {rank}")
        (left / f"{case.name} {rank} exchanges").write_text(str(len(exchanges)))


def exchange(exchanges, bucket):  # PyTorch refuses annotations that are postponed
    """PyTorch's own exchange of gradients, counted."""
    exchanges.append(bucket.index())
    return allreduce_hook(None, bucket)


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Path:
    """What one process (`alone`) and two have left of every case: files `NAME RANK`."""
    folder, cache = tmp_path_factory.mktemp("groups"), tmp_path_factory.mktemp("cache")
    corpus = write_corpus(folder / "text", random_documents())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in ("alone", "together"):
        (folder / name).mkdir()
    run_all(0, corpus=corpus, cache=cache, left=folder / "alone")
    torch.set_num_threads(threads)
    in_processes(2, partial(run_all, corpus=corpus, cache=cache, left=folder / "together"), folder)
    return folder


def state_of(file: Path) -> dict[str, Any]:
    return torch.load(file, map_location="cpu", weights_only=True)


def largest_difference(one: dict[str, Any], two: dict[str, Any]) -> float:
    ours, theirs = one["model"], two["model"]
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_processes_end_with_the_weights_and_scores_of_one(case, left):
    alone = state_of(left / "alone" / f"{case.name} 0")
    for rank in (0, 1):
        together = state_of(left / "together" / f"{case.name} {rank}")
        assert largest_difference(together, alone) < case.tolerance
        for ours, theirs in zip(together["history"], alone["history"], strict=True):
            assert ours["tokens"] == theirs["tokens"] and ours["scores"] == pytest.approx(theirs["scores"], abs=1e-5)
            assert ours["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("objective", ["mlm", "electra-rtd"])
def test_gradients_are_exchanged_once_per_step_however_many_parts_it_has(objective, left):
    names = (objective, f"{objective}, accumulated")
    whole, parts = (int((left / "together" / f"{name} 0 exchanges").read_text()) for name in names)
    assert whole == parts > 0


@pytest.mark.long
def test_in_half_precision_they_differ_by_its_rounding(left):
    alone, together = (state_of(left / name / "bfloat16 0") for name in ("alone", "together"))
    assert 0 < largest_difference(together, alone) < 5e-3


@pytest.mark.long
def test_with_dropout_too_all_hold_the_same_weights(left):
    names = ("alone/dropout 0", "together/dropout 0", "together/dropout 1")
    alone, first, second = (state_of(left / name) for name in names)
    assert largest_difference(first, second) == 0 < largest_difference(first, alone)


def test_processes_draw_own_dropout_first_as_single():
    assert [dropout_purpose(rank) for rank in (0, 1)] == ["dropout", "dropout in process 1"]


def test_a_batch_that_processes_cannot_share_evenly_is_refused(snapshot):
    config = pretraining_config("mlm", batch_size=8, gradient_accumulation=2)
    assert [config.examples_at_once(number) for number in (1, 2, 4)] == [4, 2, 1]
    with pytest.raises(ValueError) as raised:
        config.examples_at_once(3)
    assert one_line(raised.value) == snapshot
