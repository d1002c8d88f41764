"""Which published numbers stand under which row: pytest tests/analysis/test_published.py"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest
from helpers.made_studies import arm, config_of, evidence_of, record, write_study

from analysis.layouts.checklist import data_table
from analysis.layouts.evidence import PAPER_TASKS
from analysis.layouts.paper_tables import ABLATION, ELECTRA, PABEE, PaperLayout
from analysis.layouts.published_numbers import read_published_rows
from analysis.layouts.rendering import Table
from analysis.studies.load import load_study
from analysis.tables import make_tables
from study.facts.events import FILE, ModelOnTest, ScoredOnTest

BARE = {"lambda_layer_arch": "linear", "num_lambda_layers": 0, "lambda_learning_rate": None}


def table(study: Path, name: str = "dev") -> Table:
    return {table.name: table for table in make_tables([load_study(study)])}[name]


def in_layout(study: Path, layout: PaperLayout) -> Table:
    """The blocks of a paper's layout in the table `published`."""
    made = table(study, "published")
    headings = {each.heading for each in (PABEE, ABLATION, ELECTRA)}
    start = next(number for number, block in enumerate(made.parts) if block.title == layout.heading)
    own, *others = made.parts[start:]
    return replace(made, lines=own.lines, blocks=[*takewhile(lambda block: block.title not in headings, others)])


def beneath(made: Table, label: str) -> list[str]:
    """The published lines beneath our line of this label."""
    labels = [line.label for line in made.lines]
    start = labels.index(label) + 1
    end = next((i for i in range(start, len(labels)) if not made.lines[i].published), len(labels))
    return labels[start:end]


def apart(made: Table, label: str) -> list[str]:
    """The headings under which a published line stands apart."""
    return [block.title for block in made.blocks for line in block.lines if line.label == f"published {label}"]


def test_unlike_depths_stand_in_one_table(tmp_path):
    nine = config_of("albert") | {"num_hidden_layers": 9}
    records = arm("albert", "rte", [0.76] * 5) + arm("albert:9-layers", "rte", [0.74] * 5, num_layers=9, config=nine)
    made = table(write_study(tmp_path, records))
    assert beneath(made, "albert") == ["published ALBERT"]
    assert beneath(made, "albert:9-layers") == ["published ALBERT-9L"]


def test_a_depth_that_was_set_is_not_the_twelve_layer_row(tmp_path):
    settings = {"num_hidden_layers": 9}
    made = table(write_study(tmp_path, arm("albert", "rte", [0.74] * 5, num_layers=9), settings=settings))
    assert beneath(made, "albert") == ["published ALBERT-9L"]
    assert "with 12 layers; here 9" in apart(made, "ALBERT")[0]


def test_every_row_of_the_ablation_finds_its_own_line(tmp_path):
    settings = {
        "albert": {},
        "pondernet": {},
        "palbert:expectation": BARE | {"exit": "expectation_legacy", "q": None},
        "palbert:a": BARE,
        "palbert:b": BARE | {"lambda_learning_rate": 1e-5},
        "palbert:c": {"lambda_layer_arch": "linear"},
        "palbert:d": {"num_lambda_layers": 0},
        "palbert": {},
    }
    records = [
        row
        for method, fields in settings.items()
        for row in arm(method, "rte", [0.7, 0.72, 0.74, 0.7, 0.71], config=config_of(method.split(":")[0]) | fields)
    ]
    made = in_layout(write_study(tmp_path, records), ABLATION)
    assert {method: beneath(made, method) for method in settings} == {
        "albert": ["published ALBERT"],
        "pondernet": ["published PonderNet (sampled exit)"],
        "palbert:expectation": ["published PonderNet (closed-form expectation)"],
        "palbert:a": ["published PonderNet + Q-exit"],
        "palbert:b": ["published + Q-exit + lambda LR"],
        "palbert:c": ["published + Q-exit + lambda LR + 3 layers"],
        "palbert:d": ["published + Q-exit + lambda LR + concat"],
        "palbert": ["published PALBERT: + Q-exit + lambda LR + 3 layers + concat"],
    }


def test_mean_of_five_draws_differs_from_single_draw(tmp_path):
    config = config_of("pondernet") | {"sample_draws": 5}
    made = table(write_study(tmp_path, arm("pondernet", "rte", [0.7] * 5, config=config)))
    assert beneath(made, "pondernet") == []
    assert "with sample_draws 1; here 5" in apart(made, "PonderNet")[0]


def test_a_backbone_is_the_published_one_by_its_whole_name(tmp_path):
    made = table(write_study(tmp_path, arm("albert", "rte", [0.78] * 5), backbone="distilbert/distilroberta-base"))
    assert beneath(made, "albert") == []
    assert "on another backbone than distilbert/distilroberta-base" in apart(made, "ALBERT")[0]


@pytest.mark.parametrize("backbone", ["albert-base-v2", "albert/albert-base-v2@" + "a" * 40])
def test_unowned_or_pinned_backbone_names_are_published(tmp_path, backbone):
    made = table(write_study(tmp_path, arm("albert", "rte", [0.78] * 5), backbone=backbone))
    assert beneath(made, "albert") == ["published ALBERT"]


def test_partial_name_is_not_in_electra_table(tmp_path):
    records = arm("electra-small", "sst2", [0.9] * 5, config=config_of("electra-small") | {"head": "pooled"})
    made = in_layout(write_study(tmp_path, records, backbone="shoarora/electra-small-owt"), ELECTRA)
    assert beneath(made, "electra-small") == ["published ELECTRA-Small-OWT (ours, 17M)"]


def test_lmtuners_electra_stands_beside_a_pooled_head_alone(tmp_path):
    heads = {"electra-small": "first_token", "electra-small:lmtuners": "pooled"}
    configs = {method: config_of("electra-small") | {"head": head} for method, head in heads.items()}
    records = [row for method, config in configs.items() for row in arm(method, "sst2", [0.9] * 5, config=config)]
    made = in_layout(write_study(tmp_path / "both", records, backbone="shoarora/electra-small-owt"), ELECTRA)
    assert beneath(made, "electra-small") == []
    assert beneath(made, "electra-small:lmtuners") == ["published ELECTRA-Small-OWT (ours, 17M)"]
    made = in_layout(write_study(tmp_path / "one", records[:5], backbone="shoarora/electra-small-owt"), ELECTRA)
    assert "with head pooled; here first_token" in apart(made, "ELECTRA-Small-OWT (ours, 17M)")[0]


def test_a_cell_with_another_start_stands_apart_and_the_others_beside(tmp_path, snapshot):
    backbone = "shoarora/electra-small-owt"
    config = config_of("electra-small") | {"head": "pooled"}
    records = [row for task in ("sst2", "rte") for row in arm("electra-small", task, [0.8] * 5, config=config)]
    made = in_layout(write_study(tmp_path, records, backbone=backbone), ELECTRA)
    line = next(line for line in made.lines if line.label == "published ELECTRA-Small-OWT (ours, 17M)")
    assert set(line.entries) == {"parameters_millions", "sst2"}
    assert apart(made, line.label[10:]) == snapshot


def test_another_metric_is_named_and_stands_apart(tmp_path):
    records = arm("electra-small", "mnli", [0.8] * 5)
    made = in_layout(write_study(tmp_path, records, backbone="google/electra-small-discriminator"), ELECTRA)
    assert beneath(made, "electra-small") == []
    assert "matched only" in apart(made, "ELECTRA-Small (=Small++)")[0]


def test_real_glue_is_a_matter_of_content(tmp_path, snapshot):
    cut = ("train has 2,480 rows, the official 2,490",)
    made = table(write_study(tmp_path, arm("albert", "rte", [0.76] * 5, data_differences=cut)))
    assert beneath(made, "albert") == []
    assert (*apart(made, "ALBERT"), *(note for note in made.notes if cut[0] in note)) == snapshot


def test_a_row_is_one_row_however_the_tasks_data_differ(tmp_path):
    cut = {task: (f"train has {rows} rows, the official 9",) for rows, task in enumerate(("rte", "sst2", "cola"), 1)}
    records = [row for task in cut for row in arm("albert", task, [0.7] * 5, data_differences=cut[task])]
    made = table(write_study(tmp_path, records))
    (line,) = [line for block in made.blocks[:1] for line in block.lines if line.label == "published ALBERT"]
    assert {*cut, "macro"} <= {*line.entries} and len(apart(made, "ALBERT")) == 1
    assert sum("the official 9" in note for note in made.notes) == 3


def test_reasons_of_a_row_are_grouped_by_task(tmp_path, snapshot):
    cut = ("train has 2 rows, the official 9",)
    records = arm("electra-small", "rte", [0.7] * 5, data_differences=cut) + arm("electra-small", "mnli", [0.8] * 5)
    made = in_layout(write_study(tmp_path, records, backbone="google/electra-small-discriminator"), ELECTRA)
    assert apart(made, "ELECTRA-Small (=Small++)") == snapshot


def scored_on_test(study: Path, task: str) -> Path:
    """The study after its models were scored on the task's test labels."""
    keys = [row.key for row in load_study(study).records if row.phase == "confirm"]
    models = [ModelOnTest(key=key, score=0.7, metrics={}, mean_layers=12.0) for key in keys]
    time = "2027-01-01T00:00:00.000000+00:00"
    event = ScoredOnTest(time=time, task=task, rows=9, labels_digest="0", models=models)
    with (study / FILE).open("ab") as journal:
        journal.write(msgspec.json.encode(event) + b"\n")
    return study


def test_swapped_columns_of_test_scores_have_a_note(tmp_path):
    study = scored_on_test(write_study(tmp_path, arm("albert", "mnli", [0.7] * 5)), "mnli")
    made = table(study, "scores_on_test")
    assert apart(made, "PALBERT")
    assert any("almost certainly swapped" in note for note in made.notes)
    assert "read after the last trial of their study. " in made.caption


def test_test_split_is_not_called_unread_after_a_score_on_it(tmp_path):
    study = write_study(tmp_path, arm("albert", "rte", [0.7] * 5))
    assert "The test split is not read." in data_table(evidence_of(study)).caption
    assert "not read" not in data_table(evidence_of(scored_on_test(study, "rte"))).caption


def test_paper_test_scores_include_models_off_the_hub(tmp_path):
    records = arm("alectra-small", "rte", [0.6] * 5)
    made = table(
        scored_on_test(write_study(tmp_path, records, backbone="shoarora/alectra-small-owt"), "rte"), "scores_on_test"
    )
    assert apart(made, "GPT") and apart(made, "BERT-Base") and not apart(made, "PALBERT")


def test_lmtuners_test_rows_are_whole_and_name_the_copied_row():
    rows = {row.label: row for row in read_published_rows("lmtuners", split="test")}
    scores = {
        "BERT-Base": 66.4,
        "GPT": 56.0,
        "ELECTRA-Small++": 66.7,
        "ELECTRA-Small-OWT (ours, 17M)": 68.1,
        "ALECTRA-Small-OWT (ours, 4M)": 67.5,
    }
    assert {label: row.numbers["rte"].value for label, row in rows.items()} == scores
    (copied,) = rows["ELECTRA-Small++"].numbers["rte"].notes
    assert "those of the dev table" in copied


def test_a_cell_without_numbers_is_no_reason(tmp_path):
    made = table(write_study(tmp_path, [record("albert", "rte", 0.7)], methods=["albert"], tasks=["rte", "sst2"]))
    assert beneath(made, "albert") == ["published ALBERT"]


def test_a_figure_over_all_tasks_is_in_its_heading(tmp_path, snapshot):
    made = in_layout(write_study(tmp_path / "real", arm("albert", "rte", [0.7] * 5)), PABEE)
    assert apart(made, "ShareBERT-Small") == snapshot


def test_dev_table_has_no_published_test_scores(tmp_path):
    (dev,) = apart(table(write_study(tmp_path, arm("albert", "sst2", [0.92] * 5))), "PABEE")
    assert "not run here" in dev and ", dev, " in dev


def test_a_published_table_without_the_tasks_studied_is_left_out(tmp_path):
    made = table(write_study(tmp_path, arm("albert", "rte", [0.76] * 5)))
    numbers = [entries.keys() for entries in (line.entries for block in made.blocks for line in block.lines)]
    assert numbers and all("rte" in columns for columns in numbers)


def test_rows_with_a_size_and_no_number_are_left_out(tmp_path):
    study = write_study(tmp_path, arm("albert", "rte", [0.76] * 5))
    assert not any("ALBERT README" in block.title for block in in_layout(study, PABEE).blocks)  # SST-2 and MNLI alone


def test_an_origin_has_no_statistic_that_nobody_knows(snapshot):
    assert read_published_rows("COSEE Tab.3", split="test")[0].origin == snapshot


BERT = "google-bert/bert-base-uncased"


def test_costs_are_printed_as_speed_up_from_shares_of_layers_alone():
    (pabee, *_), deebert = (
        read_published_rows("F-PABEE Tab.1", split="not stated")[5:],
        read_published_rows("DeeBERT Tab.1", split="test")[1],
    )
    assert (pabee.method, pabee.speed_up) == ("pabee", 2.0)
    assert (deebert.method, deebert.speed_up) == ("deebert", None)
    assert "21 % of run time" in deebert.numbers["sst2"].notes[-1]
    assert read_published_rows("COSEE Tab.2", split="test")[1].speed_up == 2.0


def test_rows_of_an_unstated_split_stand_apart_with_their_trap(tmp_path, snapshot):
    made = in_layout(write_study(tmp_path, arm("pabee", "rte", [0.7] * 5), backbone=BERT), PABEE)
    assert apart(made, "PABEE (F-PABEE's run)") == snapshot
    assert any("runs two layers and counts one" in note for note in made.notes)
    assert any("50 % of layers saved" in note for note in made.notes)


def test_an_early_exit_paper_stands_in_tables_of_its_backbone_alone(tmp_path):
    papers = ("F-PABEE", "ElasticBERT")
    for backbone, expected in {BERT: papers[:1], "albert/albert-base-v2": papers[1:]}.items():
        records = arm("pabee", "sst2", [0.9] * 5) + arm("albert", "qqp", [0.9] * 5)
        made = in_layout(write_study(tmp_path / backbone, records, backbone=backbone), PABEE)
        texts = [*(block.title for block in made.blocks), *made.notes]
        assert [paper for paper in papers if any(paper in text for text in texts)] == list(expected)


def test_a_row_at_second_hand_says_so(tmp_path):
    made = in_layout(write_study(tmp_path, arm("albert", "sst2", [0.9] * 5)), PABEE)
    label = "published ALBERT-base (ElasticBERT's run)"
    assert label in beneath(made, "albert")
    assert any("ElasticBERT" in note and note.endswith("quoted at second hand") for note in made.notes)


def test_macro_is_explained_if_all_of_its_tasks_are_planned(tmp_path):
    some = [row for task in ("rte", "sst2") for row in arm("albert", task, [0.9] * 5)]
    every = [row for task in PAPER_TASKS for row in arm("albert", task, [0.9] * 5)]
    assert "Macro" not in table(write_study(tmp_path / "some", some)).caption
    assert "Macro is the mean over the eight tasks" in table(write_study(tmp_path / "every", every)).caption
