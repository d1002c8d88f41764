"""Studies of every released format: pytest tests/study/test_formats.py (make a kept one: see helpers.kept_studies)"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from helpers.edited_studies import read_event_lines
from helpers.kept_studies import FORMATS, launch, schema
from msgspec.structs import replace
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)

import search_spaces
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_predictions
from analysis.tables import make_tables
from study import status
from study.decisions.proposals import make_distribution
from study.facts import events
from study.facts.events import LaunchBegan, Migration, read_events
from study.facts.plan_file import read_plan, require_plan
from study.facts.study_facts import read_facts
from study.launch import main
from study.plans.resolved_plan import digest
from trainables.configuration.ranges import Choices, Interval
from trainables.configuration.schema import from_plain

NUMBERS = range(events.FIRST_FORMAT, events.FORMAT + 1)
RULE = (
    "the format has changed: {}. A new optional field of files that no release has written: run `python -m "
    "helpers.kept_studies`. Anything else is a new format: see study/facts/events.py"
)


@pytest.fixture(params=NUMBERS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the study of a format."""
    return Path(shutil.copytree(FORMATS / str(request.param), tmp_path / "study"))


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FORMATS / str(events.FORMAT), tmp_path / "study"))


def test_schema_of_files_is_that_of_the_format(newest: Path) -> None:
    (predictions, *_) = (newest / "predictions").glob("*.npz")
    now, kept = schema(predictions), (newest / "schema.txt").read_text().splitlines()
    changed = sorted({*now} ^ {*kept})
    assert not changed, RULE.format("; ".join(changed))


def test_kept_study_opens(kept: Path) -> None:
    """Its plan, its facts and its numbers, by all that reads them."""
    study = load_study(kept)
    (confirmed,) = (record for record in study.records if record.phase == "confirm")
    assert len(study.facts.under_way) == 1
    predictions = read_predictions(study, confirmed)
    assert predictions is not None and predictions.score == pytest.approx(confirmed.score)
    assert {table.name for table in make_tables([study])} >= {"dev", "exits", "winners"}
    assert status.main([str(kept)]) == 1


def test_ranges_of_format_2_become_choices_and_intervals() -> None:
    folder = FORMATS / "2"
    began = next(event for event in read_events(folder) if isinstance(event, LaunchBegan))
    (arm,) = began.plan.arms
    assert arm.space["learning_rate"] == Interval(low=0.001, high=0.002, log=True)
    assert all(isinstance(allowed, Interval | tuple) for allowed in arm.space.values())
    assert require_plan(folder).plan.arms == began.plan.arms


@pytest.mark.parametrize(
    "distribution",
    [
        FloatDistribution(1e-5, 1e-3, log=True),
        FloatDistribution(0.0, 1.0, step=0.25),
        IntDistribution(1, 4),
        IntDistribution(1, 64, log=True),
        IntDistribution(10, 100, step=10),
        CategoricalDistribution([16, 32.0, None, "rnn", True]),
    ],
)
def test_every_distribution_survives_format_3(distribution: BaseDistribution) -> None:
    """The range of a search space, that of format 2 in today's words, and what Optuna gets are the same."""
    plain = {"arms": [{"space": {"field": json.loads(distribution_to_json(distribution))}}]}
    (arm,) = events.STEPS[2].plan(plain)["arms"]
    allowed = from_plain(Choices | Interval, arm["space"]["field"], where="")  # type: ignore[arg-type]  # a union
    read = search_spaces.read_space(SimpleNamespace(SPACE={"field": distribution}), "SPACE")  # type: ignore[arg-type]
    assert (read, make_distribution(allowed)) == ({"field": allowed}, distribution)


def test_kept_study_continues_with_its_own_selection(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was made when the profile still chose epochs on dev."""
    asked = require_plan(kept).plan.request
    assert (asked.profile, asked.selection) == ("mini", "dev")
    assert main(["--continue", str(kept), "--dry-run"]) == 0
    command = ["--method", "palbert", "--task", "rte", "--profile", "mini", "--samples", "2", "--seeds", "2"]
    again = [*command, "--epochs", "2", "--out", str(kept.parent), "--name", kept.name, "--dry-run"]
    capsys.readouterr()
    assert main(again) == 2
    assert 'protocol selection "dev" -> "holdout"' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_kept_study_is_continued_to_the_table_of_an_undisturbed_one(kept: Path, tmp_path: Path) -> None:
    before, undisturbed = read_facts(kept).records, tmp_path / "undisturbed"
    launch(kept)
    launch(undisturbed)
    after, alone = read_facts(kept).records, {record.key: record for record in read_facts(undisturbed).records}
    assert after[: len(before)] == before
    assert {record.key for record in after} == alone.keys()
    for record in after:  # those that were kept may be of another processor
        same = alone[record.key]
        assert (record.status, record.config, record.seed) == (same.status, same.config, same.seed)
        assert record.score == (same.score if record not in before else pytest.approx(same.score, abs=0.02))
    tables = [(folder / "tables" / "dev.csv").read_text().splitlines() for folder in (kept, undisturbed)]
    assert [line.split(",")[0] for line in tables[0]] == [line.split(",")[0] for line in tables[1]]
    written = kept / "predictions" / f"{after[-1].key}.npz"
    assert schema(written) == (FORMATS / str(events.FORMAT) / "schema.txt").read_text().splitlines()


def test_newer_format_is_refused_in_one_line(newest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = events.FORMAT + 1
    _edit(newest / "events.jsonl", f'"format":{events.FORMAT},', f'"format":{number},"more":true,')
    with pytest.raises(
        ValueError, match=rf"events.jsonl:1: format {number} was written by a newer version of glue-exit-study"
    ):
        read_facts(newest)
    _write_plan(newest, format=number, more=True)
    assert status.main([str(newest)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    reads = "this version reads format 2" if events.FORMAT == 2 else f"this version reads formats 2 to {events.FORMAT}"
    assert (
        f"plan.json: format {number} was written by a newer version of glue-exit-study; {reads}; use the version"
        in line
    )


@pytest.mark.parametrize("number", [events.FIRST_FORMAT - 1, events.FORMAT + 1])
def test_format_is_checked_before_the_digest(newest: Path, number: int) -> None:
    path = newest / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": number, "digest": "of another rule"}))
    with pytest.raises(ValueError, match=rf"plan.json: format {number} .*; this version reads format"):
        read_plan(newest)


def test_format_before_the_first_release_is_refused(newest: Path) -> None:
    _edit(newest / "events.jsonl", f'"format":{events.FORMAT},', "")
    with pytest.raises(ValueError, match=r"events.jsonl:1: format 1 was never released"):
        read_facts(newest)


def test_plan_without_a_format_is_of_the_first(tmp_path: Path) -> None:
    first = Path(shutil.copytree(FORMATS / str(events.FIRST_FORMAT), tmp_path / "study"))
    _write_plan(first, format=None)
    file = read_plan(first)
    assert file is not None and file.format == events.FIRST_FORMAT


def test_older_lines_are_migrated_and_newer_ones_are_not(newest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made next format, which renames a field of the plan and one of an event."""
    facts, plan = read_facts(newest), read_plan(newest)
    old, now = events.FORMAT, events.FORMAT + 1
    _write_plan(newest, rename=("metric", "measure"))
    _edit(newest / "events.jsonl", '"metric":', '"measure":')
    _edit(newest / "events.jsonl", '"seed":', '"number":')
    step = Migration(
        plan=lambda plan: {**plan, "protocol": _renamed(plan["protocol"], "measure", "metric")},
        event=lambda event: _renamed(event, "number", "seed"),
    )
    monkeypatch.setattr(events, "FORMAT", now)
    monkeypatch.setattr(events, "STEPS", {old: step})
    assert read_facts(newest).records == facts.records
    found = read_plan(newest)
    assert found is not None and plan is not None and (found.plan, found.format) == (plan.plan, old)
    (began,) = (event for event in read_events(newest) if isinstance(event, LaunchBegan))
    assert began.format == old
    with (newest / "events.jsonl").open("ab") as file:  # a launch of the next format, and a line of it
        file.write(_line(replace(began, format=now, launch=2)))
        file.write(
            b'{"event":"launch_ended","time":"2026-11-25T10:00:00.000000+00:00","launch":2,"status":"drained"}\n'
        )
    assert read_facts(newest).launches[2].ended is not None


def _edit(path: Path, before: str, after: str) -> None:
    text = b"\n".join([*read_event_lines(path.parent), b""]).decode()
    assert before in text
    path.write_text(text.replace(before, after))


def _write_plan(folder: Path, *, rename: tuple[str, str] | None = None, **fields: object) -> None:
    """The plan with other fields (None: without), sealed again."""
    path = folder / "plan.json"
    content = json.loads(path.read_text()) | fields
    del content["digest"]
    content = {name: value for name, value in content.items() if name not in fields or value is not None}
    if rename:
        content["plan"]["protocol"] = _renamed(content["plan"]["protocol"], *rename)
    path.write_text(json.dumps(content | {"digest": digest(content)}))


def _renamed(plain: dict[str, object], before: str, after: str) -> dict[str, object]:
    return {after if name == before else name: value for name, value in plain.items()}


def _line(event: LaunchBegan) -> bytes:
    return msgspec.json.encode(event) + b"\n"
