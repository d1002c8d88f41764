"""Small trials for tests: mini-GLUE, tiny untrained backbones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.configurations import values_of
from torch import Tensor

import search_spaces
from study.decisions.scheduler import specify_trial
from study.drivers.messages import Message
from study.facts.events import EpochReported, read_events
from study.facts.plan_file import require_plan
from study.facts.provenance import Attestation, code_of_method, read_provenance
from study.facts.study_facts import read_facts
from trainables.configuration.schema import to_plain
from trainables.data.glue import fingerprint
from trainables.data.tasks import TASKS
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec
from trainables.runs.trial_files import read_state

# What tiny backbones need to learn from nothing; see tests/trainables/test_learnability.py.
FROM_NOTHING = {
    "learning_rate": 5e-4,
    "lambda_learning_rate": 5e-4,
    "batch_size": 16,
    "max_length": 48,
    "layer_decay": 1.0,
    "layer_decay_convention": None,
}


def spec_of(
    method: str = "albert", task: str = "sst2", *, seed: int = 1, config: dict | None = None, **spec: Any
) -> TrialSpec:
    """A trial of the method's first grid point, with two layers so that an epoch takes a fraction of a second."""
    values = values_of(method, task)
    values |= {name: value for name, value in FROM_NOTHING.items() if values.get(name) is not None}
    values |= {"num_hidden_layers": 2, "epochs": 2, "stop_after": 0, "batch_size": 32} | (config or {})
    return TrialSpec(
        method=method,
        task=task,
        config=values,
        seed=seed,
        **{"data": "mini", "backbone": search_spaces.load_space(method).backbone["mini"]} | spec,
    )


LINEAR = {"schedule": "linear", "warmup_ratio": 0.1, "gradient_clip": 1.0, "hidden_dropout": 0.1, "weight_decay": 0.01}
FEW_ROWS = 256  # of the 1,000 for training


@contextmanager
def training_on_few_rows() -> Iterator[None]:
    """Trials train on `FEW_ROWS` rows unless told otherwise, where nothing depends on what they learn."""
    with pytest.MonkeyPatch.context() as few:
        for function in (TrainingRun.__init__, TrainingRun.resume.__func__):
            few.setitem(function.__kwdefaults__, "limit", FEW_ROWS)
        yield


def run_to_the_end(spec: TrialSpec, cache: Path, **options: Any) -> TrainingRun:
    """The trial after its last epoch."""
    run = TrainingRun(spec, cache=cache, **options)
    while not run.finished:
        run.run_epoch()
    return run


def weights_of(run: TrainingRun, folder: Path) -> dict[str, Tensor]:
    """The weights in the run's saved state."""
    run.save(folder)
    return read_state(folder)["model"]


def untimed(history: Iterable[object]) -> list[dict[str, Any]]:
    """The rows of a run without their seconds."""
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in to_plain(history)]


def assert_equal_weights(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def next_message(trial: Iterator[Message]) -> Message:
    """What a worker says of its trial after an epoch, however long that takes."""
    return next(message for message in trial if message.key)


def check_as_alone(folder: Path, cache: Path) -> Counter[str]:
    """Trains each completed trial of a study here, where nothing happens to it; the number of trials by status.

    AssertionErrors say what came out otherwise, from which epoch on, and what had happened to the trial.
    """
    torch.set_num_threads(1)  # as a trial has
    plan, facts = require_plan(folder).plan, read_facts(folder)
    assert len({record.key for record in facts.records}) == len(facts.records), "a record is doubled"
    for record in facts.records:
        if record.status == "completed":
            spec = specify_trial(plan, facts, facts.trials[record.key])
            alone = run_to_the_end(spec, cache)
            scores, outcome = {row.epoch: row.selection_score for row in alone.history}, alone.outcome()
            reported = facts.trials[record.key].scores
            other = {epoch: (score, scores[epoch]) for epoch, score in reported.items() if score != scores[epoch]}
            assert outcome.reported is not None
            wanted = {name: getattr(outcome.reported, name) for name in ("score", "metrics", "mean_layers")}
            wanted |= {"epoch": alone.best_epoch, "epochs": len(alone.history)}
            differing = [name for name, value in wanted.items() if getattr(record, name) != value]
            assert not other and not differing, (record.key, other, differing, events_of(folder, record.key))
    return Counter(record.status for record in facts.records)


def events_of(folder: Path, key: str) -> list[str]:
    """What the journal says of a trial beside its reports."""
    events = (event for event in read_events(folder) if getattr(event, "key", None) == key)
    return [repr(event) for event in events if not isinstance(event, EpochReported)]


def expected_of(spec: TrialSpec) -> Attestation:
    """What a worker must find of the trial, as long as nobody has tokenised its data."""
    code = code_of_method(read_provenance(), spec.method)
    return Attestation(
        data_fingerprint=fingerprint(TASKS[spec.task], spec.data),
        tokens_digest=None,
        backbone_fingerprint=backbone_fingerprint(spec.backbone),
        backbone_digest=None,
        tokenizer_fingerprint=spec.tokenizer and backbone_fingerprint(spec.tokenizer, kind="tokenizer"),
        code_digest=code.code_digest,
        versions=code.versions,
    )
