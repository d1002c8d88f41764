"""The real results: stages, dry run and page, in small: pytest tests/house/test_real_results.py"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.plan_files import plan_from
from helpers.started_processes import is_alive
from helpers.swept_studies import swept_study
from msgspec.structs import replace

from analysis.layouts.evidence import Evidence, gather
from analysis.layouts.exit_tables import RULES, exits_table
from analysis.layouts.rendering import markdown_grid, render
from analysis.pictures.picture import render_image
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_cell_predictions
from analysis.tables import tabulate
from analysis.verify import verify
from benchmarks import real_results, real_results_page, second_run
from benchmarks.exit_claims import TITLES, Claim, format_claims, make_claims
from benchmarks.real_results import Places
from benchmarks.real_results_stages import SCALES, Launch, Measurement, launches_of, stages_of
from study.decisions.scheduler import specify_trial
from study.facts.study_folder import predictions_file
from study.plans.resolved_plan import digest
from trainables.configuration.schema import to_plain

pytestmark = pytest.mark.slow

METHODS = ("albert", "palbert", "pondernet", "pabee")
FIVE_SEEDS = ("cpu-mean-mrpc", "cpu-mean-cola", "cpu-mean-sst2-dropout")  # studies; the others have ten
METHODS_OF = {"cpu-cola-exits": ("palbert", "pondernet")} | dict.fromkeys(
    ("cpu-mean-sst2", "cpu-mean-sst2-7000", "cpu-mean-sst2-16000", *FIVE_SEEDS, "gpu"), (*METHODS, "berxit")
)
NOTHING = Measurement("nothing", "counts", (), minutes=10.0)  # a module that does nothing when it is run


def places(folder: Path, **more: Path) -> Places:
    return Places(
        **{"glue": folder / "glue", "backbone": folder / "tiny", "out": folder / "out", "driver": None} | more
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """What a scale leaves, with scores of a formula."""
    folder = tmp_path_factory.mktemp("out")
    launched_study(folder / "cpu-cola", mini_plan(methods=METHODS, tasks=("rte",), seeds=3, baseline="palbert"))
    return folder


@pytest.fixture(scope="module")
def evidence(tmp_path_factory) -> Evidence:
    """A study of two methods with exits."""
    folder = tmp_path_factory.mktemp("swept") / "made"
    return gather([load_study(swept_study(folder, ["pondernet", "palbert"], ["rte"]))])


@pytest.mark.parametrize("stage", [stage for scale in SCALES for stage in launches_of(scale)], ids=lambda s: s.name)
def test_every_study_is_one_that_can_be_launched(stage: Launch):
    words = real_results.command_of(stage, Places(Path("GLUE"), Path("MINILM"), Path("OUT"), None))[3:]
    plan = plan_from(*words)
    assert plan.methods == METHODS_OF.get(stage.name, METHODS)
    assert (plan.selection, plan.seeds) == ("holdout", 5 if stage.name in FIVE_SEEDS else 10)
    assert len(plan.methods) * len(plan.tasks) * (plan.samples + plan.seeds) == stage.trials
    assert plan.data == (f"OUT/glue-{stage.rows}" if stage.rows else "GLUE")


def test_a_registered_plan_stays_as_it_was():
    """Other settings would be another study: register it under a new name."""
    known = {
        "cpu-cola": "44e849e6dd91565a",
        "cpu-cola-exits": "22fdf16b54629faf",
        "cpu-sst2": "ed19a5019c385085",
        "cpu-mean-sst2": "0a327a7ab885974d",
        "cpu-mean-sst2-7000": "6b50e9b74ac6d470",
        "cpu-mean-mrpc": "16cd059cf57b4255",
        "cpu-mean-cola": "c23346714acb219c",
        "cpu-mean-sst2-dropout": "8eeab69611e1e3ef",
        "cpu-mean-sst2-16000": "e0a62096cc63b796",
    }
    plans = {stage.name: digest(to_plain(replace(stage.plan, data="", backbone=""))) for stage in launches_of("cpu")}
    assert plans == known


def test_fewer_rows_are_spread_over_train_and_dev_is_whole(tmp_path, glue):
    stage, there = Launch("cpu-sst2", rows=4), places(tmp_path, glue=glue)
    real_results.shorten(stage, there)
    lines = {
        (name, split): (folder / "SST-2" / f"{split}.tsv").read_text().splitlines()
        for name, folder in (("whole", glue), ("short", real_results.data_of(stage, there)))
        for split in ("train", "dev")
    }
    header, *rows = lines["whole", "train"]
    assert lines["short", "train"] == [header, *rows[::4]] and len(rows) == 16
    assert lines["short", "dev"] == lines["whole", "dev"]
    assert not (real_results.data_of(stage, there) / "CoLA").exists()


@pytest.mark.parametrize("stage", [s for s in stages_of("gpu") if isinstance(s, Measurement)], ids=lambda s: s.name)
def test_every_measurement_has_the_options_that_it_is_given(stage: Measurement):
    module = __import__(f"benchmarks.{stage.module}", fromlist=["build_parser"])
    words = real_results.command_of(stage, places(Path("/")))[3:]
    assert module.build_parser().parse_args(words)


def test_the_driver_is_passed_on():
    command = real_results.command_of(launches_of("gpu")[0], Places(Path("g"), Path("b"), Path("o"), "local"))
    assert command[-2:] == ["--driver", "local"]


def dry_run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.real_results", "--dry-run", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=PATIENCE_SECONDS)


def test_a_dry_run_says_identity_and_time_and_makes_nothing(tmp_path, glue, backbone):
    where = ("--glue", str(glue), "--backbone", str(backbone), "--out", str(tmp_path / "out"))
    done = dry_run("--scale", "cpu", "--minutes", "5", *where)
    assert done.returncode == 0, done.stderr
    assert "not begun; stated, not measured: 100 examples a second" in done.stdout
    fits = "fits into 5 minutes: the beginning of the first; rerun the command to continue"
    assert done.stdout.endswith(f"{fits}\nnothing was run\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--glue", "/nowhere"], "--glue is /nowhere; allowed: a folder with GLUE's TSV files, RTE/train.tsv ..."),
        (["--backbone", "/nowhere"], "--backbone is /nowhere; allowed: a folder with a model's config.json"),
        (
            ["--stages", "cpu-cola", "gpu"],
            "--stages is gpu; allowed: cpu-cola, cpu-cola-exits, cpu-sst2, cpu-mean-sst2, cpu-mean-sst2-7000, "
            "cpu-mean-mrpc, cpu-mean-cola, cpu-mean-sst2-dropout, cpu-mean-sst2-16000",
        ),
    ],
)
def test_what_a_user_can_cause_is_one_line(words, message, glue, backbone, capsys):
    where = ["--scale", "cpu", "--glue", str(glue), "--backbone", str(backbone)]
    assert real_results.main([*where, *words]) == 2
    assert capsys.readouterr().err == f"benchmarks.real_results: {message}\n"


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan"])
def test_minutes_are_above_zero(given):
    with pytest.raises(ValueError, match=f"argument --minutes: {given!r} is not a number of minutes above 0"):
        real_results.build_parser().parse_args(["--scale", "cpu", "--minutes", given])


def test_finished_stage_is_skipped_and_first_always_runs(tmp_path, capsys):
    there = places(tmp_path)
    other = Measurement("another", "counts", (), minutes=10.0)
    assert real_results.run([NOTHING, other], there, 0.5) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "nothing: exit status 0",
        "another: needs 10 of the 0.5 minutes that are left",
        "left: another; the same command goes on",
    ]
    assert real_results.run([NOTHING, other], there, 0.5) == 0
    said = capsys.readouterr().out
    assert "nothing" not in said and "another: exit status 0" in said
    assert (there.out / "rates" / "another.txt").exists()


def test_a_study_goes_on_from_what_the_repository_keeps(tmp_path, out, monkeypatch):
    monkeypatch.setattr(real_results, "KEPT", tmp_path / "kept")
    real_results_page.keep("cpu", out, kept=tmp_path / "kept")
    stage, there = launches_of("cpu")[0], places(tmp_path)
    real_results.take_up(stage, there)
    found = there.out / stage.name / "events.jsonl"
    assert found.read_bytes() == (out / stage.name / "events.jsonl").read_bytes()
    found.write_text("a launch of this machine")
    real_results.take_up(stage, there)
    assert found.read_text() == "a launch of this machine"


def test_rates_of_another_scale_are_not_kept(tmp_path, out):
    shutil.copytree(out, tmp_path / "out")
    (tmp_path / "out" / "rates").mkdir()
    (tmp_path / "out" / "rates" / "training_speed-float32.txt").write_text("on a GPU")
    real_results_page.keep("cpu", tmp_path / "out", kept=tmp_path / "kept")
    assert (tmp_path / "kept" / "cpu" / "cpu-cola").exists() and not list((tmp_path / "kept").rglob("rates"))


def test_sigterm_ends_the_launch_and_begins_no_other_stage(tmp_path, monkeypatch):
    begun = []
    kills_its_parent = ["sh", "-c", "while sleep 0.1; do kill -TERM $PPID; done"]
    monkeypatch.setattr(real_results, "command_of", lambda stage, there: begun.append(stage.name) or kills_its_parent)
    stages, there = launches_of("cpu")[:2], places(tmp_path)
    monkeypatch.setattr(real_results, "KEPT", tmp_path / "kept")
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # the first may come before the launch has its own handler
    try:
        with pytest.raises(KeyboardInterrupt):
            real_results.run(stages, there, float("inf"))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert {*begun} == {"cpu-cola"} and not real_results.read_done(there.out)


def test_a_measurement_is_ended_with_all_that_it_has_started():
    process = subprocess.Popen(
        ["sh", "-c", "trap '' INT; sleep 100000 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    child = psutil.Process(int(process.stdout.readline()))
    real_results.stop(process, grace_seconds=0.1)
    assert process.returncode is not None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.stdout.close()


def test_page_is_made_of_verified_records(tmp_path, out, monkeypatch):
    real_results_page.keep("cpu", out, kept=tmp_path)
    study = tmp_path / "cpu" / "cpu-cola"
    assert verify(study) == []
    assert not list(study.rglob("*.safetensors")) and list(study.glob("trials/*/model-epoch-*/model.json"))
    page = real_results_page.page("cpu", tmp_path / "cpu")
    assert page == real_results_page.page("cpu", tmp_path / "cpu")
    assert real_results_page.POOLER_QUESTION in page and "| palbert on RTE, cpu-cola " in page
    dev = next(table for table in tabulate(gather([load_study(study)])) if table.name == "dev")
    assert "12 confirm completed" in page and "[All tables](../benchmarks/results/real/cpu/tables.md)" in page
    assert f"##{render(dev, 'md')}".strip() in real_results_page.tables_page("cpu", tmp_path / "cpu")
    assert "Plan " in page and "not registered before the first trial" in page
    lines = (study / "events.jsonl").read_text().splitlines(keepends=True)
    (study / "events.jsonl").write_text("".join(lines[:-1]))  # its launch has not ended
    page = real_results_page.page("cpu", tmp_path / "cpu")
    assert real_results_page.POOLER_QUESTION not in page and "12 confirm completed" in page
    studies = real_results_page.kept_studies("cpu", tmp_path / "cpu")
    stage = SimpleNamespace(name="cpu-cola", trials=len(studies["cpu-cola"].records))
    monkeypatch.setattr(real_results_page, "launches_of", lambda scale: [stage])
    said = real_results_page.not_run("cpu", studies, tmp_path / "cpu")
    assert said.startswith("- cpu-cola: its last launch has not ended, so its claims are not tested\n")


def test_page_groups_studies_that_one_table_can_hold(tmp_path):
    """Other seeds or settings make other rows; other epochs do not."""
    plan = {"methods": ("palbert",), "tasks": ("rte",), "selection": "holdout"}
    studies = {}
    for name, more in {
        "first": {},
        "other task": {"tasks": ("cola",)},
        "epochs": {"tasks": ("sst2",), "settings": {"epochs": 2}},
        "seeds": {"seeds": 3},
        "settings": {"settings": {"gradient_clip": 0.5}},
    }.items():
        studies[name] = load_study(launched_study(tmp_path / name, mini_plan(**plan | more)))
    groups = real_results_page.gather_alike(studies)
    assert [[study.name for study in evidence.studies] for evidence in groups] == [
        ["first", "other task", "epochs"],
        ["seeds"],
        ["settings"],
    ]


def test_page_counts_the_lines_of_a_journal_that_its_digest_covers():
    page = real_results_page.page_path("cpu").read_text()
    for path in (real_results_page.KEPT / "cpu").glob("*/events.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        number = len(lines) - (b'"event":"launch_ended"' in lines[-1])
        assert f"first {number} lines: {hashlib.sha256(b''.join(lines[:number])).hexdigest()}" in page


def test_page_shows_claims_as_their_command_prints_them(evidence):
    claims = make_claims(evidence.studies)
    text = "\n\n".join(real_results_page.answer("cpu", evidence))
    measured = [one for one in claims if not real_results_page.find_common_verdict(claims, one.family)]
    assert measured and format_claims(measured) in text
    assert not any(TITLES[one.family] in text for one in claims if one not in measured)
    lines = {line.split("**")[1]: line for line in real_results_page.summarise(claims)}
    assert list(lines) == [
        real_results_page.QUESTIONS[family] for family in dict.fromkeys(one.family for one in claims)
    ]
    assert all(f"- {line}" in text for line in lines.values())
    for claim in claims:
        line = lines[real_results_page.QUESTIONS[claim.family]]
        verdict = f"*{claim.verdict.split(' (')[0]}*"
        if claim.difference is None:
            assert f"{verdict} for any of these claims" in line or f"{verdict}: " in line
            continue
        subjects = line.split(f"{verdict}: ")[1].split("; *")[0]
        assert real_results_page.describe_subject(claim) in subjects


def test_page_quotes_what_a_plan_says_was_known():
    quoted, _ = real_results_page.read_known("cpu-mean-sst2")
    assert quoted.startswith("> Known beforehand: this dev set has been looked at.")
    assert quoted in real_results_page.page_path("cpu").read_text()
    (quoted,) = real_results_page.read_known("cpu-mean-mrpc")  # its tests are about new texts
    assert quoted.startswith("> Known beforehand: no claim was formed on this dev set.")
    assert list(real_results_page.read_known("gpu")) == []


def test_claim_about_unlearned_method_has_no_number():
    claim = Claim("pair", ("palbert", "pondernet"), "rte", difference=0.02, verdict="not learned")
    assert real_results_page.describe_subject(claim) == "palbert - pondernet on RTE"
    claim = dataclasses.replace(claim, verdict="not shown (about 2.0 points)")
    (line,) = real_results_page.summarise([claim])
    assert line.endswith("*not shown*: palbert - pondernet on RTE (+2.0).")
    none = Claim("time", ("palbert",), "rte", "own exits", verdict="no setting")
    (line,) = real_results_page.summarise([none, none])
    assert line.endswith("** *no setting* for any of these claims.")
    assert real_results_page.find_common_verdict([none, claim], "pair") is None


def test_scores_of_single_layers_are_those_of_their_answers():
    """A plain writing for SST-2, whose metric is accuracy: up to layer 3, PALBERT's models give one answer."""
    evidence = gather([load_study(real_results_page.KEPT / "cpu" / "cpu-sst2")])
    stored = read_cell_predictions(evidence.cells_by_place["palbert", "sst2"])
    answers, labels = np.stack([one.layer_answers for one in stored]), stored[0].labels
    scores, last = real_results_page.cut_scores(evidence, ("palbert", "sst2"))
    assert scores == pytest.approx((answers == labels).mean(axis=(0, 2)))
    assert last == 3 and scores[2] < 0.51 < 0.86 < scores[3]


def test_page_has_long_paragraphs_once():
    long = [f"{name} {' '.join(['word'] * 30)}" for name in "ab"]
    text = "\n\n".join(["short", long[0], "short", long[1], long[0], "end\n"])
    assert real_results_page.without_copies(text).split("\n\n") == ["short", long[0], "short", long[1], "end\n"]


def test_page_warns_of_the_pooler():
    text = real_results_page.page_path("cpu").read_text()
    assert "All models of palbert on CoLA (cpu-cola), palbert on SST-2 (cpu-sst2), pabee on CoLA (cpu-cola), " in text
    assert len(text.split()) < 8_500  # the tables are beside the records


@pytest.mark.long
def test_folders_of_a_machine_stand_on_no_page(tmp_path, glue):
    launched_study(tmp_path / "cpu-cola", mini_plan(methods=METHODS, tasks=("rte",), data=str(glue)))
    real_results_page.keep("cpu", tmp_path, kept=tmp_path / "kept")
    page = real_results_page.page("cpu", tmp_path / "kept" / "cpu")
    tables = real_results_page.tables_page("cpu", tmp_path / "kept" / "cpu")
    assert str(glue) not in page + tables and "data GLUE" in tables


def test_kit_limit_and_folder_stand_on_no_page():
    command = "python -m study.launch --task rte --out /some/where --name cpu --max-minutes 8.50"
    assert real_results_page.command_in_words(command) == "python -m study.launch --task rte --out OUT --name cpu"


@pytest.mark.long
def test_second_run_of_a_trial_gives_the_same_bits(tmp_path, out):
    shutil.copytree(out / "cpu-cola", tmp_path / "again")
    study = load_study(tmp_path / "again")
    (record,) = second_run.choose(study, 1)
    spec = to_plain(specify_trial(study.plan, study.facts, study.facts.trials[record.key]))
    stored = predictions_file(study.folder, record.key)
    stored.unlink()
    device, loss = second_run.train(spec, stored)
    (again,) = second_run.repeat(study, [record], data=spec["data"], backbone=spec["backbone"])
    assert again["largest_difference_of_logits"] == again["share_of_other_answers"] == 0
    assert (again["devices"][1], again["losses"][1]) == (device, loss)
    assert "equal bit by bit" in second_run.describe(again | {"losses": [loss, loss]})
    assert "the last loss is" in second_run.describe(again)


def test_second_run_on_other_rows_or_backbone_is_refused(glue, backbone, out):
    study = load_study(out / "cpu-cola")
    records = second_run.choose(study, 1)
    with pytest.raises(ValueError, match=r"^--glue is .*, with other rows of RTE than cpu-cola had in mini$"):
        second_run.repeat(study, records, data=glue, backbone=Path("mini-albert"))
    with pytest.raises(ValueError, match=r"^--backbone is .*, which is not that of cpu-cola, mini-albert$"):
        second_run.repeat(study, records, data=Path("mini"), backbone=backbone)


@pytest.mark.parametrize("number", [0, 5])
def test_second_run_of_too_many_trials_is_refused(out, number):
    with pytest.raises(ValueError, match=f"--trials is {number}; allowed: 1 to 4"):
        second_run.choose(load_study(out / "cpu-cola"), number)


def test_a_study_that_is_too_large_is_not_kept(tmp_path, out, monkeypatch):
    monkeypatch.setattr(real_results_page, "MOST_BYTES", 1_000)
    with pytest.raises(ValueError, match=r"^the records of .*cpu-cola have [\d,]+ bytes; allowed: at most 1,000$"):
        real_results_page.keep("cpu", out, kept=tmp_path)
    assert not (tmp_path / "cpu" / "cpu-cola").exists()


def test_a_folder_without_a_study_of_the_scale_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"allowed: a folder with one of the studies gpu$"):
        real_results_page.keep("gpu", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("scale", SCALES)
def test_the_page_in_the_repository_is_what_its_records_give(scale):
    kept = real_results_page.KEPT / scale
    if not kept.is_dir():
        pytest.skip(f"no records of scale {scale} are kept")
    assert real_results_page.page_path(scale).read_text() == real_results_page.page(scale, kept)
    tables = (kept / real_results_page.TABLES_PAGE).read_text()
    assert tables == real_results_page.tables_page(scale, kept)
    whole = real_results_page.without_pooler(real_results_page.complete(real_results_page.kept_studies(scale, kept)))
    for evidence in real_results_page.gather_alike(whole):
        for path, drawn in real_results_page.drawn_pictures(scale, evidence).items():
            text, numbers = split_numbers(path.read_bytes())
            text_now, numbers_now = split_numbers(render_image(drawn.figure, "svg"))
            assert text == text_now and numbers == pytest.approx(numbers_now, abs=1e-4)  # processors round differently
    for stage in launches_of(scale):
        if (kept / stage.name).is_dir():
            assert verify(kept / stage.name) == []


def test_the_numbers_of_the_readme_are_those_of_the_page_and_its_tables():
    top, page = (ROOT / "README.md").read_text().split("## Try it")[0], real_results_page.page_path("cpu").read_text()
    tables = (real_results_page.KEPT / "cpu" / real_results_page.TABLES_PAGE).read_text()
    (table,) = re.findall(r"```\n(.*?)```", top, re.DOTALL)
    assert table in page
    decimal = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")
    assert {*decimal.findall(top)} <= {*decimal.findall(page + tables)}


def split_numbers(svg: bytes) -> tuple[str, list[float]]:
    """Split a picture into its text and its decimal numbers."""
    decimal = re.compile(r"\d+\.\d+")
    text = svg.decode()
    return decimal.sub("#", text), [float(number) for number in decimal.findall(text)]


@pytest.mark.long
def test_exit_rules_in_results_are_of_kept_study():
    evidence = gather([load_study(real_results_page.KEPT / "cpu" / "cpu-cola")])
    table = exits_table(evidence)
    rules = next(block for block in table.blocks if block.title == RULES)
    columns = {name: table.columns[name] for name in ("mean_layers", "gain")}
    shown = dataclasses.replace(table, lines=rules.lines, columns=columns)
    assert markdown_grid(shown, shown.parts[0]) in (ROOT / "docs/results.md").read_text()
