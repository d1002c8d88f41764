"""The registered claims about early exits, on made studies with each verdict: pytest tests/house/test_exit_claims.py"""

from __future__ import annotations

import shutil
from pathlib import Path

import helpers.swept_studies
import numpy as np
import pytest
from helpers.swept_studies import swept_study
from helpers.timed_studies import timed_study

from analysis.layouts.evidence import Evidence, gather
from analysis.statistics.uncertainty import PairedTest, holm
from analysis.studies.load import load_study
from benchmarks import exit_claims
from benchmarks.exit_claims import Claim, format_claims, main, make_claims
from study.facts.study_folder import predictions_file
from trainables.models.exit_rules import LayerOutputs

pytestmark = pytest.mark.slow

METHODS = ["albert", "palbert", "pondernet", "pabee"]
EXAMPLES = 400
WITHIN_3 = {"select_by": "at:3"}


def evidence_of(folder: Path) -> Evidence:
    return gather([load_study(folder)])


def claims_of(folder: Path) -> list[Claim]:
    return make_claims([load_study(folder)])


def find(claims: list[Claim], family: str, *rows: str, way: str = "") -> Claim:
    (claim,) = [one for one in claims if (one.family, one.rows, one.way) == (family, rows, way)]
    return claim


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A study whose models are surer of right answers, while their own exits are blind."""
    return swept_study(tmp_path_factory.mktemp("runs") / "s", METHODS, ["rte"], examples=EXAMPLES, protocol=WITHIN_3)


@pytest.fixture(scope="module")
def claims(folder) -> list[Claim]:
    return claims_of(folder)


def test_blind_exits_have_no_gain_and_greatest_probability_is_better(claims):
    assert find(claims, "gain", "pondernet").verdict == find(claims, "gain", "pabee").verdict == "below 0"
    assert find(claims, "gain", "palbert").verdict == "not shown (about 2.0 points)"
    for row in METHODS[1:]:
        claim = find(claims, "rule", row)
        assert claim.verdict == "above 0" and claim.layers[0] <= claim.layers[1] + 0.05
        assert claim.setting.startswith("max probability 0.")


def test_two_seeds_do_not_say_what_would_have_been_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(helpers.swept_studies, "SEEDS", helpers.swept_studies.SEEDS[:2])
    claims = claims_of(swept_study(tmp_path / "s", METHODS[1:], ["rte"], examples=60))
    assert "not shown" in {claim.verdict for claim in claims}
    assert not any(claim.verdict.startswith("not shown (") for claim in claims)


def test_pairs_are_compared_as_selected_and_within_layers(folder, claims):
    scores = {row: cell.scores for row, cell in evidence_of(folder).cells}
    pair = find(claims, "pair", "palbert", "pondernet")
    assert pair.difference == pytest.approx(np.mean(scores["palbert"]) - np.mean(scores["pondernet"]))
    assert pair.verdict == "above 0"
    budget = find(claims, "budget", "pabee", "palbert")
    assert max(budget.layers) <= 3.1 and budget.setting.startswith("patience 1 / threshold 0.")
    assert budget.verdict == "below 0"


@pytest.mark.parametrize("family", ["gain", "rule"])
def test_p_values_are_corrected_within_a_family(claims, family):
    own = [claim for claim in claims if claim.family == family]
    assert [claim.adjusted_p_value for claim in own] == pytest.approx(holm([claim.test.p_value for claim in own]))


def test_each_study_is_tested_by_itself(folder, claims):
    study = load_study(folder)
    assert make_claims([study, study]) == [*claims, *claims]


def test_no_setting_within_too_few_layers(tmp_path):
    few = swept_study(tmp_path / "s", METHODS[1:], ["rte"], protocol={"select_by": "at:1"})
    assert find(claims_of(few), "budget", "pabee", "palbert").verdict == "no setting"


def test_settings_are_compared_within_layers_only_if_the_plan_selects_so(tmp_path):
    by_score = swept_study(tmp_path / "s", METHODS[1:], ["rte"])
    assert {claim.family for claim in claims_of(by_score)} == {"gain", "rule", "pair", "time"}


def answer_always_the_same(method: str, labels: np.ndarray, outputs: LayerOutputs) -> LayerOutputs:
    """PALBERT has not learned."""
    if method == "palbert":
        outputs.logits[:, :, 0] = outputs.logits.sum() + outputs.logits[:, :, 0]
    return outputs


def know_right_answers(method: str, labels: np.ndarray, outputs: LayerOutputs) -> LayerOutputs:
    """PALBERT exits where its answer is right, and is equally sure of all answers; PonderNet exits at layer 5."""
    if method == "palbert":
        right = outputs.logits.argmax(2).numpy() == labels
        outputs.lambdas[:] = outputs.lambdas.new_tensor(np.where(right, 0.9, 0.01))
        outputs.logits[:] = 2.0 * (outputs.logits > 0)
    if method == "pondernet":
        outputs.lambdas[:4], outputs.lambdas[4:] = 0.0, 1.0
    return outputs


def test_exits_that_know_right_answers_have_a_gain(tmp_path):
    study = swept_study(tmp_path / "s", METHODS[:3], ["rte"], examples=EXAMPLES, change=know_right_answers)
    claims = claims_of(study)
    assert find(claims, "gain", "palbert").verdict == "above 0"
    assert find(claims, "rule", "palbert").verdict == "below 0"
    assert find(claims, "gain", "pondernet").verdict == "all leave at layer 5"


def test_claim_about_unlearned_method_is_not_made(tmp_path):
    study = swept_study(tmp_path / "s", METHODS[:3], ["rte"], examples=EXAMPLES, change=answer_always_the_same)
    claims = claims_of(study)
    assert {claim.verdict for claim in claims if "palbert" in claim.rows} == {"not learned"}
    assert find(claims, "gain", "pondernet").verdict == "below 0"


def answer_albert_always_the_same(method: str, labels: np.ndarray, outputs: LayerOutputs) -> LayerOutputs:
    """The method whose score the others should keep has not learned."""
    return answer_always_the_same("palbert", labels, outputs) if method == "albert" else outputs


def test_unlearned_albert_is_no_standard_for_times(tmp_path):
    study = swept_study(tmp_path / "s", METHODS[:2], ["rte"], examples=EXAMPLES, change=answer_albert_always_the_same)
    timed_study(study, lambda record, size: 10.0)
    claims = claims_of(study)
    assert {claim.verdict for claim in claims if claim.family == "time"} == {"not learned"}
    assert find(claims, "gain", "palbert").verdict != "not learned"


def test_claims_without_predictions_are_listed_as_not_tested(folder, claims, tmp_path):
    study = load_study(shutil.copytree(folder, tmp_path / "s"))
    record = next(one for one in study.records if one.method == "palbert" and one.phase == "confirm")
    predictions_file(study.folder, record.key).unlink()
    found = claims_of(study.folder)
    assert [(one.family, one.subject) for one in found] == [(one.family, one.subject) for one in claims]
    assert {one.verdict for one in found if "palbert" in one.rows} == {"not tested"}
    assert find(found, "rule", "pabee").verdict == "above 0"


def improve(method: str, labels: np.ndarray, outputs: LayerOutputs) -> LayerOutputs:
    """All methods with exits answer every third example right at every layer, and are sure of it."""
    if method != "albert":
        outputs.logits[:, ::3] = outputs.logits.new_tensor(6 * np.eye(2)[labels[::3]])
    return outputs


def test_time_is_relative_to_albert_where_the_score_is_kept(tmp_path):
    study = swept_study(tmp_path / "s", ["albert", "pabee"], ["rte"], examples=EXAMPLES, change=improve)

    def find_times() -> list[Claim]:
        claims = claims_of(study)
        return [find(claims, "time", "pabee", way=way) for way in ("own exits", "greatest probability")]

    own, sure = find_times()
    assert own.verdict == sure.verdict == "not timed" and own.difference > -0.01
    assert 1 < sure.layers[0] < own.layers[0] < 12
    timed_study(study, lambda record, size: 10.0, others=0.5)
    assert find_times()[0].verdict == "not timed: other programs used 50 % of the processors"
    timed_study(study, lambda record, size: 10.0)
    own, sure = find_times()
    assert own.verdict == sure.verdict == "faster, score kept on average"
    assert own.time.value == pytest.approx(own.layers[0] / 12, rel=0.03)  # a layer takes a twelfth of albert's time
    assert sure.time.value == pytest.approx(0.9 * sure.layers[0] / 12, rel=0.03)
    timed_study(study, lambda record, size: 10.0 if record.method == "albert" else 40.0)
    assert find_times()[0].verdict == "slower"
    assert "| pabee, own exits, RTE " in format_claims(claims_of(study))


@pytest.mark.parametrize(
    ("difference", "low", "log", "verdict"),
    [
        (-0.004, -0.009, -0.5, "faster, score kept"),
        (-0.004, -0.02, -0.5, "faster, score kept on average"),
        (-0.012, -0.02, -0.5, "faster, score not kept"),
        (0.01, 0.0, 0.5, "slower"),
    ],
)
def test_verdict_on_a_time_depends_on_the_score(difference, low, log, verdict):
    def test(value: float, low: float) -> PairedTest:
        return PairedTest(value, low, 2 * value - low, 0.0, 0.01, 9)

    claim = Claim(
        "time", ("pabee",), "rte", difference=difference, test=test(difference, low), time_test=test(log, log)
    )
    assert exit_claims._decide_time(claim) == verdict


def test_one_seed_gives_differences_without_tests(tmp_path, monkeypatch):
    monkeypatch.setattr(helpers.swept_studies, "SEEDS", [42])
    study = swept_study(tmp_path / "s", METHODS, ["rte"], examples=EXAMPLES)
    claims = claims_of(study)
    assert {claim.verdict for claim in claims if claim.family in ("gain", "rule", "pair", "budget")} == {"not tested"}
    assert find(claims, "rule", "pabee").difference > 0
    assert "| palbert - pondernet, RTE " in format_claims(claims)


def test_command_prints_claims_of_ended_studies_only(folder, tmp_path, capsys):
    assert main([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert (
        printed.startswith(f"# {folder.name}\n\n**Own exits minus the best coin toss")
        and printed.count(" RTE ") == 3 + 3 + 1 + 1 + 6
    )
    other = swept_study(tmp_path / "s", ["albert", "pabee"], ["rte"], examples=10)
    lines = (other / "events.jsonl").read_text().splitlines(keepends=True)
    (other / "events.jsonl").write_text("".join(lines[:-1]))
    assert main([str(other)]) == 2
    fault = f"benchmarks.exit_claims: {other} has not ended; claims are tested once, on all trials of the plan\n"
    assert capsys.readouterr().err == fault
