"""python -m pytest tests/analysis/test_tables.py"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.made_studies import HASH, SEEDS, arm, plan_of, read_table, record, write_plan_of, write_study
from helpers.messages import says
from helpers.places import ROOT
from msgspec.structs import replace

from analysis import load
from analysis.layouts.paper_tables import ELECTRA, OF_ELECTRA
from analysis.layouts.published_numbers import read_published_rows
from analysis.studies.load import load_study
from analysis.tables import main, write_tables
from analysis.verify import verify
from study.facts.record import Record
from study.plans.plan import EarlyStopping
from study.terminal.text import python

EIGHT = ["sst2", "rte", "qnli", "cola", "mrpc", "mnli", "qqp", "stsb"]
SCORES = [0.70, 0.74, 0.71, 0.73, 0.725]  # median 0.725


def dev_csv(folder: Path) -> dict[str, dict[str, str]]:
    """Our lines by their label."""
    return {row["method"]: row for row in read_table(folder / "dev.csv") if row["source"] == "ours"}


def tables_command(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "analysis.tables", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def write_dev(tmp_path: Path, records: list[Record], **plan) -> dict[str, dict[str, str]]:
    write_tables([write_study(tmp_path / "study", records, **plan)], tmp_path / "tables")
    return dev_csv(tmp_path / "tables")


def test_csv_has_the_contract_columns_and_one_row_per_method(tmp_path):
    records = [row for method in ("palbert", "albert") for row in arm(method, "rte", SCORES)]
    rows = write_dev(tmp_path, records)
    assert list(rows) == ["palbert", "albert"]
    assert [name for name in rows["palbert"] if not name.endswith("_n")] == [
        *("method", "source", "block", "unit"),
        *EIGHT,
        "macro",
    ]


def test_cell_is_median_of_confirm_scores_in_points(tmp_path):
    assert write_dev(tmp_path, arm("palbert", "rte", SCORES))["palbert"]["rte"] == "72.5"


def test_search_scores_never_enter_a_cell(tmp_path):
    search, *confirm = arm("palbert", "rte", SCORES)
    records = [replace(search, score=0.99, selection_score=0.99, metrics={"accuracy": 0.99}), *confirm]
    assert write_dev(tmp_path, records)["palbert"]["rte"] == "72.5"


def test_confirm_scores_without_a_search_that_chose_them_are_no_cell(tmp_path):
    _, *confirm = arm("palbert", "rte", SCORES)
    assert write_dev(tmp_path, confirm)["palbert"]["rte"] == ""


def test_median_of_ties_is_the_tied_score(tmp_path):
    assert write_dev(tmp_path, arm("palbert", "rte", [0.7, 0.7, 0.7, 0.9, 0.1]))["palbert"]["rte"] == "70.0"


def test_median_of_even_seed_count_is_mean_of_middle(tmp_path):
    rows = write_dev(tmp_path, arm("palbert", "rte", [0.70, 0.72]), seeds=2)
    assert rows["palbert"]["rte"] == "71.0"


def test_macro_is_the_mean_of_the_eight_medians(tmp_path):
    records = [row for i, task in enumerate(EIGHT) for row in arm("palbert", task, [0.5 + i / 100] * 5)]
    assert write_dev(tmp_path, records)["palbert"]["macro"] == "53.5"


def test_macro_is_empty_while_a_cell_is_missing(tmp_path):
    records = [row for task in EIGHT[1:] for row in arm("palbert", task, SCORES)]
    assert write_dev(tmp_path, records, tasks=EIGHT)["palbert"]["macro"] == ""


def test_planned_cell_without_records_is_a_named_gap(tmp_path, snapshot):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES), tasks=["rte", "cola"])], tmp_path)
    assert re.sub(r"journal \w{16}", "journal DIGEST", (tmp_path / "dev.md").read_text()) == snapshot
    assert dev_csv(tmp_path)["palbert"]["cola"] == ""


def test_cell_with_few_seeds_is_marked_with_n(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", [0.7, 0.72, 0.71, None, 0.73]))], tmp_path)
    assert (dev_csv(tmp_path)["palbert"]["rte"], dev_csv(tmp_path)["palbert"]["rte_n"]) == ("71.5", "4")
    text = (tmp_path / "dev.md").read_text()
    assert "71.5 (n=4)" in text and "at most 5 seeds (42, 43, 44, 45, 46)" in text
    assert says(text, "palbert/rte: fewer seeds: ", "42, 43, 44, 46; ", "failed seeds: 45")


def test_cell_with_more_seeds_than_the_protocol_is_marked(tmp_path):
    rows = write_dev(tmp_path, arm("palbert", "rte", [*SCORES, 0.8]))
    assert (rows["palbert"]["rte"], rows["palbert"]["rte_n"]) == ("72.8", "6")
    assert "72.8 (n=6)" in (tmp_path / "tables" / "dev.md").read_text()


def test_cell_with_other_seeds_than_the_protocols_is_marked(tmp_path):
    search, *_ = arm("palbert", "rte", SCORES)
    confirm = [record("palbert", "rte", score, seed=1 + i, trial=i) for i, score in enumerate(SCORES)]
    write_tables([write_study(tmp_path, [search, *confirm])], tmp_path)
    assert "72.5 (n=5)" in (tmp_path / "dev.md").read_text()
    named = ["palbert/rte: other seeds: ", "1, 2, 3, 4, 5; ", "42, 43, 44, 45, 46"]
    assert says((tmp_path / "dev.md").read_text(), *named)


def test_strict_makes_an_incomplete_cell_an_error_and_writes_nothing(tmp_path, snapshot):
    study = write_study(tmp_path / "study", arm("palbert", "rte", SCORES[:3]))
    with pytest.raises(ValueError, match=r"^--strict: palbert/rte: fewer seeds") as refused:
        write_tables([study], tmp_path / "out", strict=True)
    assert str(refused.value) == snapshot
    assert not (tmp_path / "out").exists()


def test_strict_command_names_the_cells_with_status_1(tmp_path, capsys):
    study = write_study(tmp_path / "study", arm("palbert", "rte", SCORES[:3]))
    assert main([str(study), "--strict"]) == 1
    assert capsys.readouterr().err.startswith("analysis.tables: --strict: palbert/rte: fewer seeds")


def test_confirm_records_of_a_former_winner_leave_the_cell(tmp_path):
    old, new = {"learning_rate": 1e-5}, {"learning_rate": 2e-5}
    records = arm("palbert", "rte", [0.6] * 5, config=old) + arm("palbert", "rte", [0.7] * 5, config=new)
    assert write_dev(tmp_path, records)["palbert"]["rte"] == "70.0"


def test_frame_tells_counted_records_from_others(tmp_path):
    old = arm("palbert", "rte", [0.6] * 5, config={"learning_rate": 1e-5})
    new = arm("palbert", "rte", [0.7, 0.71, None], config={"learning_rate": 2e-5})
    records = load(write_study(tmp_path, [*old, *new])).records
    assert records.query("counts")["key"].tolist() == [row.key for row in new[1:3]]
    assert records.query("not counts")["key"].tolist() == [row.key for row in [*old, new[0], new[3]]]


def test_failed_search_trial_can_be_followed_by_its_retry(tmp_path):
    records = [record("palbert", "rte", None, phase="search"), record("palbert", "rte", 0.5, phase="search")]
    assert len(load_study(write_study(tmp_path, records)).records) == 1


def test_several_studies_of_one_protocol_share_a_table(tmp_path):
    one = write_study(tmp_path / "one", arm("palbert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("albert", "rte", [0.7] * 5))
    write_tables([one, two], tmp_path / "out")
    assert {name: row["rte"] for name, row in dev_csv(tmp_path / "out").items()} == {
        "palbert": "72.5",
        "albert": "70.0",
    }


def test_two_protocols_never_share_a_table(tmp_path, snapshot):
    one = write_study(tmp_path / "one", arm("palbert", "rte", SCORES))
    two = write_study(tmp_path / "two", arm("albert", "rte", SCORES), protocol={"selection": "holdout"})
    mine, theirs = load_study(one).protocol_hash, load_study(two).protocol_hash
    assert mine != theirs
    three = write_study(tmp_path / "my three", arm("pabee", "rte", SCORES))
    with pytest.raises(ValueError, match="two protocols") as raised:
        write_tables([one, two, three], tmp_path / "out")
    first, *lines = str(raised.value).splitlines()
    assert first == snapshot
    command = f"{python()} -m analysis.tables"
    assert lines == [
        f"  {mine}: {command} {one} '{three}' --out tables-1",
        f'  {theirs} (selection "dev" -> "holdout"): {command} {two}',
    ]


GIVEN = "method,task,score,source\nCascade,rte,71.25,their table 2\nCascade,CoLA,40,their table 2\nOurs,rte,-3,a run\n"


def two_tasks(folder: Path) -> Path:
    return write_study(folder, [*arm("palbert", "rte", SCORES), *arm("palbert", "cola", SCORES)])


def test_scores_from_elsewhere_stand_apart_and_are_marked(tmp_path, capsys, snapshot):
    study, file, out = two_tasks(tmp_path / "study"), tmp_path / "given.csv", tmp_path / "out"
    file.write_text(GIVEN)
    assert main([str(study), "--beside", str(file), "--out", str(out), "--format", "md,csv,tex,html"]) == 0
    rows = [row for row in read_table(out / "dev.csv") if row["source"] == "given"]
    assert [(row["method"], row["rte"], row["cola"]) for row in rows] == [
        ("Cascade (their table 2)", "71.2", "40.0"),
        ("Ours (a run)", "-3.0", ""),
    ]
    assert {row["block"] for row in rows} == {"Given by hand, not tested"}
    for ending in ("md", "tex", "html"):
        assert "Given by hand, not tested" in (out / f"dev.{ending}").read_text()
    assert [line for line in (out / "dev.md").read_text().splitlines() if "given.csv" in line] == snapshot
    assert {path.name for path in out.iterdir() if "Cascade" in path.read_text()} == {
        *(f"dev.{ending}" for ending in ("md", "csv", "tex", "html", "json"))
    }


def test_scores_from_elsewhere_are_only_printed_without_out(tmp_path, capsys):
    study, file = two_tasks(tmp_path / "study"), tmp_path / "given.csv"
    file.write_text(GIVEN.replace("Cascade,CoLA,40,their table 2\n", ""))
    assert main([str(study), "--beside", str(file), "--tasks", "rte"]) == 0
    printed = capsys.readouterr().out
    assert "Cascade (their table 2)" in printed and "**Given by hand, not tested**" in printed and "CoLA" not in printed
    assert main([str(study), "--beside", str(file)]) == 0
    assert "Cascade (their table 2)" in capsys.readouterr().out and not (study / "tables").exists()


@pytest.mark.parametrize(
    "content",
    [
        None,
        "method,task,score\na,rte,70\n",
        "method,task,score,source\n",
        GIVEN.replace("71.25", "0.71").replace("40", "0.4").replace("-3", "0"),
        GIVEN.replace("71.25", "high"),
        GIVEN.replace("71.25", "710"),
        GIVEN.replace(",CoLA,", ",RTE,"),
        GIVEN.replace(",CoLA,", ",rtee,"),
        GIVEN.replace("a run", ""),
    ],
)
def test_file_of_scores_that_cannot_be_used_is_refused(tmp_path, capsys, content, snapshot):
    study, file = two_tasks(tmp_path / "study"), tmp_path / "given.csv"
    if content is not None:
        file.write_text(content)
    assert main([str(study), "--beside", str(file), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.replace(str(tmp_path), "HERE") == snapshot
    assert not (tmp_path / "out").exists()


def test_journal_of_another_protocol_than_the_plan_is_refused(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", SCORES))
    other = plan_of(["palbert"], ["rte"], protocol={"selection": "holdout"})
    write_plan_of(study, other)
    with pytest.raises(ValueError, match=f"protocol_hash is {HASH}, but the plan has {other.protocol_hash}"):
        load_study(study)


def test_comparable_published_line_stands_beneath_ours(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES))], tmp_path)
    lines = (tmp_path / "dev.md").read_text().splitlines()
    ours = next(i for i, line in enumerate(lines) if line.startswith("| palbert "))
    assert lines[ours + 1].split("|")[1:3] == [" *published PALBERT* ", " 78.3 "]


def test_source_of_the_published_line_and_another_selection_are_noted(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", SCORES), protocol={"selection": "holdout"})
    write_tables([study], tmp_path)
    text = (tmp_path / "dev.md").read_text()
    source = ["PALBERT Tab.2, arXiv 2204.03276; ", "albert/albert-base-v2, dev, median of 5"]
    assert says(text, "- published lines: ", *source)
    assert says(text, "- published scores were selected ", "dev set; our scores were not")


def test_another_backbone_puts_published_numbers_apart(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES), backbone="some-bert")], tmp_path)
    text = (tmp_path / "dev.md").read_text()
    assert says(text, "**Published, ", "another backbone than some-bert (PALBERT Tab.2")


def test_backbone_in_a_folder_is_named_by_its_last_parts(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES), backbone="/home/someone/models/mini")], tmp_path)
    text = (tmp_path / "dev.md").read_text()
    assert "on another backbone than models/mini (PALBERT" in text and "/home/someone" not in text


def test_roberta_backbone_gets_table_3(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES), backbone="FacebookAI/roberta-base")], tmp_path)
    assert "*published PRoBERTa* | 79.1" in (tmp_path / "dev.md").read_text()


def test_sidecar_has_every_cells_records_seeds_and_configuration(tmp_path):
    records = arm("palbert", "rte", SCORES)
    write_tables([write_study(tmp_path, records)], tmp_path)
    (cell,) = json.loads((tmp_path / "dev.json").read_text())["cells"]
    assert cell["records"] == [row.key for row in records[1:]]
    assert cell["seeds"] == SEEDS
    assert cell["config"] == records[0].config
    assert cell["scores"] == SCORES


def test_regenerating_gives_the_same_bytes(tmp_path):
    study = write_study(tmp_path / "study", arm("palbert", "rte", SCORES))
    write_tables([study], tmp_path / "one")
    write_tables([study], tmp_path / "two")
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / out).iterdir()} for out in ("one", "two"))
    assert first == second
    assert {"dev.md", "dev.csv", "dev.json"} <= first.keys()


def test_latex_and_html_are_written_on_request(tmp_path):
    study = write_study(tmp_path / "study", arm("palbert", "rte", SCORES))
    endings = {".md", ".csv", ".json"}
    for formats, more in (("tex,html", {".tex", ".html"}), ("md,tex", {".tex"}), ("csv", set())):
        assert main([str(study), "--format", formats]) == 0
        assert {path.suffix for path in (study / "tables").iterdir()} == endings | more, formats
        assert verify(study) == []


@pytest.mark.parametrize(
    "options", [["--format", "tex,pdf"], ["--format", "tex,"], ["--format", "md,tex", "--tasks", "rte"]]
)
def test_formats_that_are_not_allowed_are_refused(tmp_path, capsys, options, snapshot):
    study = write_study(tmp_path / "study", arm("palbert", "rte", SCORES))
    assert main([str(study), *options]) == 2
    assert capsys.readouterr().err == snapshot
    assert not (study / "tables").exists()


@pytest.mark.slow
def test_command_writes_beside_the_records_and_prints_scores_and_answer(tmp_path):
    study = write_study(tmp_path / "study", arm("palbert", "rte", SCORES))
    result = tables_command(study)
    assert result.returncode == 0
    assert result.stdout.startswith((study / "tables" / "answer.md").read_text())
    assert "published" not in result.stdout.partition("\nThe protocol, notes and ")[0]
    assert tables_command(study, "--format", "md").stdout == (study / "tables" / "dev.md").read_text()


def test_generated_data_stand_beside_no_published_number(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES), data="mini")], tmp_path)
    assert "published" not in (tmp_path / "dev.md").read_text()
    assert not [name for name in ("verdicts", "published") if (tmp_path / f"{name}.md").exists()]


def test_files_of_withdrawn_tables_are_deleted_and_others_stay(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("compute_of_arms.md", "compute_of_arms.json", "mine.md"):
        (out / name).touch()
    write_tables([write_study(tmp_path / "study", arm("palbert", "rte", SCORES))], out)
    assert not list(out.glob("compute_of_arms.*")) and (out / "mine.md").exists()


def test_files_that_may_be_no_tables_are_neither_deleted_nor_replaced(tmp_path, capsys):
    study = write_study(tmp_path / "study", arm("palbert", "rte", SCORES))
    out = tmp_path / "out"
    out.mkdir()
    (out / "ablation.tex").write_text("my ablation")
    assert main([str(study), "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"analysis.tables: --out {out} has ablation.tex, but no written_by.json, so these files may be no tables; "
        "allowed: a folder without them\n"
    )
    assert [path.name for path in out.iterdir()] == ["ablation.tex"]


@pytest.mark.slow
def test_empty_folder_is_one_line_and_status_2(tmp_path):
    result = tables_command(tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert says(result.stderr, f"analysis.tables: {tmp_path} has no plan.json; ", "folder of a study\n")
    assert result.stderr.count("\n") == 1


def test_broken_line_is_named_with_file_and_number(tmp_path):
    study = write_study(tmp_path, arm("palbert", "rte", SCORES))
    lines = (study / "events.jsonl").read_text().splitlines()
    lines[2] = lines[2][:40]
    (study / "events.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"events.jsonl:3: .*not a JSON object"):
        load_study(study)


def test_ablation_is_mean_and_deviation_beside_table_1(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES))], tmp_path)
    text = (tmp_path / "published.md").read_text()
    assert "72.1 ± 1.6" in text  # numpy: mean 0.721, std (n - 1) 0.01597
    assert "77.8 ± 1.2" in text


def test_means_without_predictions_count_dropped_runs(tmp_path):
    searched, first, *others = arm("palbert", "rte", SCORES)
    study = write_study(tmp_path, [searched, replace(first, status="dropped"), *others])
    write_tables([study], tmp_path)
    assert "72.1 ± 1.6" in (tmp_path / "published.md").read_text()
    assert "| palbert/rte |  72.1 |" in (tmp_path / "answer.md").read_text()


def test_studies_of_one_method_with_other_settings_join_on_request_only(tmp_path):
    plain = write_study(tmp_path / "plain", arm("palbert", "rte", SCORES))
    bare = write_study(tmp_path / "bare", arm("palbert", "rte", [0.6] * 5), settings={"num_lambda_layers": 0})
    with pytest.raises(ValueError, match=rf"palbert/rte .* {plain} and {bare}: .*num_lambda_layers 3"):
        write_tables([plain, bare], tmp_path / "out")
    write_tables([plain, bare], tmp_path / "out", separate=True)
    text = (tmp_path / "out" / "dev.md").read_text()
    assert "| palbert (plain) " in text and "| palbert (bare) " in text
    assert "settings of study bare: num_lambda_layers 0" in text


def test_electra_layout_uses_its_own_metrics(tmp_path):
    metrics = {"accuracy": 0.88, "f1": 0.92}
    records = arm("electra-small", "mrpc", [0.9] * 5, metrics=metrics)
    metrics = {"pearson": 0.88, "spearman": 0.86}
    records += arm("electra-small", "stsb", [0.87] * 5, metrics=metrics)
    write_tables([write_study(tmp_path, records, backbone="google/electra-small-discriminator")], tmp_path)
    lines = read_table(tmp_path / "published.csv")
    row = next(line for line in lines if line["block"] == ELECTRA.heading)
    assert (row["mrpc"], row["stsb"], row["parameters_millions"], row["speed_up"]) == ("88.0", "86.0", "12", "")
    text = (tmp_path / "published.md").read_text()
    assert "lmtuners" in text and OF_ELECTRA in text


def test_electra_layout_is_left_out_without_electra(tmp_path):
    write_tables([write_study(tmp_path, arm("palbert", "rte", SCORES))], tmp_path)
    text = (tmp_path / "published.md").read_text()
    assert ELECTRA.heading not in text and OF_ELECTRA not in text


def test_published_numbers_have_source_and_confidence_and_name_the_swapped_cells():
    facts = read_table(ROOT / "analysis" / "published.csv")
    assert all(fact["source"] and fact["confidence"] for fact in facts)
    swapped = {(fact["label"], fact["task"]) for fact in facts if "swapped" in fact["note"]}
    assert swapped == {(label, task) for label in ("ALBERT", "PABEE", "PALBERT") for task in ("mnli", "qqp")}


@pytest.mark.parametrize("stopping", [None, EarlyStopping()])
def test_computing_environment_of_trials_is_told(tmp_path, stopping):
    search, *confirm = arm("albert", "rte", SCORES)
    records = [replace(search, device="A CPU (AVX2), 1 thread"), *confirm]
    write_tables([write_study(tmp_path / "study", records, protocol={"early_stopping": stopping})], tmp_path)
    (note,) = [
        line for line in (tmp_path / "dev.md").read_text().splitlines() if line.startswith("- trials were trained on ")
    ]
    devices, _, others = note.removeprefix("- trials were trained on ").partition("; ")
    assert devices == "A CPU (AVX2), 1 thread, torch 2.13.0 or cuda:0, torch 2.13.0"
    assert "torch version can change scores" in others
    assert others.endswith(" report to ASHA") is (stopping is not None)


def test_a_published_figure_over_tasks_stands_apart_with_its_parameters(tmp_path):
    write_tables([write_study(tmp_path, arm("albert", "rte", SCORES))], tmp_path)
    (row,) = [row for row in read_table(tmp_path / "published.csv") if row["method"] == "published ShareBERT-Small"]
    assert row["parameters_millions"] == "5" and not any(row[task] for task in EIGHT)
    assert says(row["block"], "Published, as 95.5 % of ", "BERT-base", "ShareBERT, AAAI 2024, article 29781")


def test_both_versions_of_albert_base_are_there_with_their_parameters():
    rows = {row.label: row for row in read_published_rows("ALBERT README")}
    scores = {label: [row.numbers[task].value for task in ("mnli", "sst2")] for label, row in rows.items()}
    assert scores == {"ALBERT-base v2": [84.6, 92.9], "ALBERT-base v1": [81.6, 90.3]}
    assert {row.backbone.removeprefix("albert/albert-base-") for row in rows.values()} == {"v1", "v2"}
    assert {row.parameters for row in rows.values()} == {"12M"}


def test_published_macros_are_the_means_of_their_cells():
    for paper in ("PALBERT Tab.2", "PALBERT Tab.3"):
        for row in read_published_rows(paper) + read_published_rows(paper, split="test"):
            mean = sum(row.numbers[task].value for task in EIGHT) / 8
            assert row.numbers["macro"].value == pytest.approx(mean, abs=0.0501), row.label
