"""A pretraining on a worker, and trials that start from it: pytest tests/study/drivers/test_pretraining_trials.py"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.corpora import pretraining_spec, random_documents, write_corpus
from helpers.glue_folders import write_glue
from helpers.trials import expected_of, spec_of
from msgspec.structs import replace

from study.drivers.messages import AssignedTrial
from study.drivers.provenance import provenance
from study.drivers.running_trial import RunningTrial
from study.facts.attestation import Attestation, contradictions
from study.facts.events import Report
from study.storage.stored_models import local_model
from trainables.corpora.corpus import corpus_fingerprint
from trainables.encoders.backbones import backbone_fingerprint
from trainables.runs.pretraining_trial import PretrainingSpec
from trainables.schema import to_plain

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> PretrainingSpec:
    """Five steps in three epochs."""
    corpus = write_corpus(tmp_path_factory.mktemp("text"), random_documents())
    return pretraining_spec("albert-mlm", corpus, steps=5)


@pytest.fixture(params=["folder", "uri"])
def place(request, tmp_path) -> str:
    (tmp_path / "trials").mkdir()
    return f"{'file://' if request.param == 'uri' else ''}{tmp_path}/trials/key"


def expected_of_pretraining(spec: PretrainingSpec) -> Attestation:
    code = provenance()
    return Attestation(
        data_fingerprint=corpus_fingerprint(spec.corpus),
        tokens_digest=None,
        backbone_fingerprint=backbone_fingerprint(spec.backbone),
        backbone_digest=None,
        tokenizer_fingerprint=None,
        code_digest=code.code_digest,
        versions=code.versions,
    )


def reports_of(assigned: AssignedTrial, *, epochs: int | None = None) -> list[Report]:
    """What a worker says of the trial, to its end or for so many epochs."""
    trial, reports = RunningTrial(assigned, device="cpu", gpus=0), []
    while not trial.is_over and len(reports) != epochs:
        news = trial.next_news()
        assert news.report is not None, news
        reports.append(news.report)
    trial.release()
    return reports


def pretrained(spec: PretrainingSpec, place: str, *, epochs: int | None = None) -> list[Report]:
    expected = expected_of_pretraining(spec)
    given = {"pretraining": spec, "expected": expected, "place": place, "predictions": None}
    return reports_of(AssignedTrial(key="key", epochs=0, **given), epochs=epochs)


def untimed(reports: list[Report]) -> list[dict]:
    rows = [to_plain(report.row) for report in reports]
    return [{name: value for name, value in row.items() if not name.endswith("_seconds")} for row in rows]


def test_it_reports_steps_and_held_out_scores_and_leaves_its_last_model(spec, place):
    reports = pretrained(spec, place)
    assert [(r.row.epoch, r.row.metrics["steps"], r.row.score) for r in reports] == [
        (1, 2, None),
        (2, 4, None),
        (3, 5, None),
    ]
    outcome = reports[-1].outcome
    scores = {"mlm_accuracy", "mlm_loss", "sop_accuracy", "steps", "tokens"}
    assert outcome.metrics == reports[-1].row.metrics and outcome.metrics.keys() == scores
    assert outcome.model == f"{place}/model-epoch-3" and outcome.data_differences == ()
    with local_model(outcome.model) as folder:
        assert backbone_fingerprint(str(folder)) == outcome.model_fingerprint


def test_another_process_goes_on_with_it_and_it_ends_the_same(spec, place, tmp_path):
    (tmp_path / "whole").mkdir()
    whole = pretrained(spec, str(tmp_path / "whole" / "key"))
    for epochs in (1, 2):
        assert len(pretrained(spec, place, epochs=epochs)) == epochs
    again = pretrained(spec, place)
    assert untimed(again) == untimed(whole)
    assert again[-1].outcome.model_fingerprint == whole[-1].outcome.model_fingerprint


def trial_from(outcome_model: str, fingerprint: str, tmp_path: Path) -> AssignedTrial:
    data = write_glue(tmp_path / "glue", rows=64)
    sizes = {"epochs": 2, "max_length": 16, "num_hidden_layers": 1}
    trial = spec_of("albert", "rte", data=str(data), backbone=outcome_model, config=sizes)
    expected = replace(expected_of(replace(trial, backbone="mini-albert")), backbone_fingerprint=fingerprint)
    return AssignedTrial(
        key="trial", spec=trial, epochs=0, expected=expected, place=f"{tmp_path}/trials/trial", predictions=None
    )


@pytest.mark.filterwarnings("ignore:.*rows; the official")
def test_trials_start_from_its_model_and_say_where_it_lies_for_everybody(spec, place, tmp_path):
    outcome = pretrained(spec, place)[-1].outcome
    assigned = trial_from(outcome.model, outcome.model_fingerprint, tmp_path)
    (first,) = reports_of(assigned, epochs=1)
    assert first.attested.backbone_fingerprint == outcome.model_fingerprint
    assert [report.row.epoch for report in reports_of(assigned)] == [1, 2]
    (description,) = (tmp_path / "trials" / "trial").glob("model-epoch-*/model.json")
    assert json.loads(description.read_text())["spec"]["backbone"] == outcome.model


@pytest.mark.filterwarnings("ignore:.*rows; the official")
def test_a_model_that_was_changed_or_swapped_is_not_trained_on(spec, place, tmp_path):
    outcome = pretrained(spec, place)[-1].outcome
    config = tmp_path / "trials" / "key" / "model-epoch-3" / "config.json"
    config.write_text(config.read_text().replace('"hidden_act"', '"Hidden_act"'))
    assigned = trial_from(outcome.model, outcome.model_fingerprint, tmp_path)
    trial = RunningTrial(assigned, device="cpu", gpus=0)
    news = trial.next_news()
    trial.release()
    assert news.report is None and not list((tmp_path / "trials" / "trial").glob("state.pt"))
    (fault,) = contradictions(news.refused, assigned.expected)
    assert fault == f"backbone {news.refused.backbone_fingerprint}, not {outcome.model_fingerprint}"


def test_a_model_that_is_away_is_the_machines_fault(spec, place, tmp_path):
    assigned = trial_from(f"{place}/model-epoch-9", "sha256:0123", tmp_path)
    trial = RunningTrial(assigned, device="cpu", gpus=0)
    failure = trial.next_news().failure
    trial.release()
    assert failure.cause == "machine" and "model-epoch-9" in failure.error
