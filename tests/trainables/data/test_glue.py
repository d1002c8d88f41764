"""python -m pytest tests/trainables/data/test_glue.py"""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.places import GLUE, ROOT

from trainables.data.glue import check_data, count_repeated_texts, fingerprint, load_split
from trainables.data.tasks import TASKS

real_files = pytest.mark.skipif(not GLUE.is_dir(), reason=f"no GLUE files in {GLUE}")

# One train line per task in the original layout: header, line, texts, label.
MNLI_HEADER = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2\tlabel1\tgold_label"
)
STSB_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
LAYOUTS = {
    "cola": (None, "gj04\t1\t\tIt rained .", ("It rained .",), 1),
    "sst2": ("sentence\tlabel", "a dull film \t0", ("a dull film ",), 0),
    "mrpc": (
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        '1\t7\t8\tHe said " no .\tNo .',
        ('He said " no .', "No ."),
        1,
    ),
    "stsb": (STSB_HEADER, "0\tnews\tfile\t2012\t4\tnone\tnone\tA dog .\tA cat .\t3.250", ("A dog .", "A cat ."), 3.25),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "5\t6\t7\tWhy ?\tHow ?\t0", ("Why ?", "How ?"), 0),
    "mnli": (MNLI_HEADER, "0\t1\t1n\tfiction\tb\tb\tp\tp\tIt is.\tIs it?\tx\tneutral", ("It is.", "Is it?"), 1),
    "qnli": ("index\tquestion\tsentence\tlabel", "0\tWho ?\tHe .\tnot_entailment", ("Who ?", "He ."), 1),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\tOne .\tTwo .\tentailment", ("One .", "Two ."), 0),
    "wnli": ("index\tsentence1\tsentence2\tlabel", "0\tOne .\tTwo .\t1", ("One .", "Two ."), 1),
}
RTE, RTE_HEADER = TASKS["rte"], "index\tsentence1\tsentence2\tlabel"


def write(folder: Path, name: str, *lines: str | None) -> str:
    """The GLUE folder, with this file in it."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(f"{line}\n" for line in lines if line is not None).encode())
    return str(folder)


@pytest.mark.parametrize("name", LAYOUTS)
def test_original_layout_is_read(name: str, tmp_path: Path) -> None:
    header, line, texts, label = LAYOUTS[name]
    split = load_split(TASKS[name], "train", write(tmp_path, f"{TASKS[name].folder}/train.tsv", header, line))
    assert (split.ids, split.texts, split.labels.tolist()) == ([0], [texts], [label])
    assert split.labels.dtype == (np.float32 if name == "stsb" else np.int64)


@pytest.mark.parametrize("split", ["dev_matched", "dev_mismatched"])
def test_mnli_has_two_dev_files(split: str, tmp_path: Path) -> None:
    header = MNLI_HEADER.replace("label1", "label1\tlabel2\tlabel3\tlabel4\tlabel5")
    line = "0\t1\t1n\tfiction\tb\tb\tp\tp\tIt is.\tIs it?\tx\tx\tx\tx\tx\tneutral"
    data = write(tmp_path, f"MNLI/{split}.tsv", header, line)
    assert load_split(TASKS["mnli"], split, data).texts == [("It is.", "Is it?")]


def test_test_file_has_texts_and_no_labels(tmp_path: Path) -> None:
    split = load_split(TASKS["cola"], "test", write(tmp_path, "CoLA/test.tsv", "index\tsentence", "0\tIt rained ."))
    assert (split.texts, split.labels) == ([("It rained .",)], None)


def test_ax_is_the_diagnostic_file(tmp_path: Path) -> None:
    data = write(tmp_path, "diagnostic/diagnostic.tsv", "index\tsentence1\tsentence2", "0\tIt is.\tIs it?")
    assert load_split(TASKS["ax"], "test", data).texts == [("It is.", "Is it?")]


def test_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", "\ufeff" + RTE_HEADER, "0\tOne .\tTwo .\tentailment")
    assert load_split(RTE, "train", data).texts == [("One .", "Two .")]


def test_unicode_line_separator_does_not_end_a_row(tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", RTE_HEADER, "0\tOne \u2028 .\tTwo \x85 .\tentailment")
    assert load_split(RTE, "train", data).texts == [("One \u2028 .", "Two \x85 .")]


def test_carriage_returns_at_line_ends_are_dropped(tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", RTE_HEADER + "\r", "0\tOne .\tTwo .\tentailment\r")
    assert load_split(RTE, "train", data).labels.tolist() == [0]


def test_rows_of_qqp_that_are_cut_in_two_are_left_out(tmp_path: Path) -> None:
    header, line, texts, _ = LAYOUTS["qqp"]
    split = load_split(
        TASKS["qqp"], "train", write(tmp_path, "QQP/train.tsv", header, "1\t2\t3\tWhy", "not ?\tHow ?\t0", line)
    )
    assert (split.ids, split.texts) == ([2], [texts])


@pytest.mark.parametrize("split", ["train", "dev"])
def test_file_whose_rows_are_all_cut_is_refused(split: str, tmp_path: Path) -> None:
    header, line, *_ = LAYOUTS["qqp"]
    other = line[:-1] + str(1 - int(line[-1]))  # with the other label
    for name in ("train", "dev"):
        data = write(tmp_path, f"QQP/{name}.tsv", header, *(["1\t2\t3\tWhy"] if name == split else [line, other]))
    fault = rf"{split}.tsv has no rows: .* fewer columns .*\(id, qid1, "
    with pytest.raises(ValueError, match=fault):
        count_repeated_texts(TASKS["qqp"], data)
    with pytest.raises(ValueError, match=fault):
        load_split(TASKS["qqp"], split, data)


@pytest.mark.parametrize(
    "line, message",
    [
        ("0\tOne .\tTwo .", r"line 2: .* 3 instead of 4: '0 \| One \. \| Two \.'"),
        ("0\tOne .\tTwo .\tentailment\textra", "line 2: .* 5 instead of 4"),
        (
            "0\tOne .\tTwo .\tneutral",
            "line 2: unknown label 'neutral'; .* RTE are entailment, not_entailment",
        ),
        ("0\tOne .\tTwo .\t", "line 2: unknown label ''"),
    ],
)
def test_bad_row_is_named_with_file_line_and_value(line: str, message: str, tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", RTE_HEADER, line)
    with pytest.raises(ValueError, match=f"RTE/train.tsv, {message}"):
        load_split(RTE, "train", data)


def test_line_numbers_start_at_first_row_without_header(tmp_path: Path) -> None:
    data = write(tmp_path, "CoLA/train.tsv", "gj04\t1\t\tIt rained .", "gj04\t2\t\tIt rained .")
    with pytest.raises(ValueError, match=r"CoLA/train.tsv, line 2: .*'2'; .* 0, 1"):
        load_split(TASKS["cola"], "train", data)


@pytest.mark.parametrize(
    "score, message",
    [
        ("5.2", "score 5.2 is outside 0..5"),
        ("-1", "score -1 is"),
        ("nan", "score nan is"),
        ("x", "'x' is not a number"),
    ],
)
def test_score_outside_nought_to_five_is_named(score: str, message: str, tmp_path: Path) -> None:
    data = write(tmp_path, "STS-B/train.tsv", STSB_HEADER, f"0\tnews\tfile\t2012\t4\tnone\tnone\tA .\tB .\t{score}")
    with pytest.raises(ValueError, match=f"STS-B/train.tsv, line 2: .*{message}"):
        load_split(TASKS["stsb"], "train", data)


def test_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", "index\tsentence1\tlabel", "0\tOne .\tentailment")
    with pytest.raises(ValueError, match=r"line 1: .*'sentence2'; .* index, sentence1, label"):
        load_split(RTE, "train", data)


@pytest.mark.parametrize("column", ["notes", "", "Label", "gold_label"])
def test_unexpected_column_is_named_with_allowed_ones(column: str, tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", f"{RTE_HEADER}\t{column}", "0\tOne .\tTwo .\tentailment\t")
    with pytest.raises(
        ValueError, match=f"RTE/train.tsv, line 1: .*'{column}'; .* index, sentence1, sentence2, label$"
    ):
        load_split(RTE, "train", data)


def test_headless_test_file_has_no_other_column(tmp_path: Path) -> None:
    data = write(tmp_path, "CoLA/test.tsv", "index\tsentence\tmark", "0\tIt rained .\t*")
    with pytest.raises(ValueError, match=r"CoLA/test.tsv, line 1: .*'mark'; .* index, sentence$"):
        load_split(TASKS["cola"], "test", data)


@pytest.mark.parametrize("header", [None, RTE_HEADER])
def test_split_without_rows_is_an_error(header: str | None, tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", header)
    with pytest.raises(ValueError, match=r"RTE/train.tsv has no rows; .* 2,490"):
        load_split(RTE, "train", data)


def test_non_utf8_file_names_line_and_byte(tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", RTE_HEADER)
    with (tmp_path / "RTE" / "train.tsv").open("ab") as file:
        file.write(b"0\tcaf\xe9\tTwo .\tentailment\n")
    with pytest.raises(ValueError, match=r"RTE/train.tsv, line 2: byte 0xe9 "):
        load_split(RTE, "train", data)


def test_unknown_split_is_answered_with_the_menu() -> None:
    with pytest.raises(ValueError, match=r"MNLI .*'dev'; available: train, dev_matched, dev_mismatched"):
        load_split(TASKS["mnli"], "dev", "mini")


def test_missing_file_is_named(tmp_path: Path) -> None:
    data = write(tmp_path, "RTE/train.tsv", RTE_HEADER)
    with pytest.raises(ValueError, match=f"no file {tmp_path}/RTE/dev.tsv; .*mini, hub or"):
        check_data(RTE, data)


def test_parent_folder_is_offered_for_task_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "RTE/train.tsv", RTE_HEADER)
    monkeypatch.chdir(tmp_path)
    for given in (str(tmp_path / "RTE"), "RTE", "RTE/"):
        with pytest.raises(ValueError, match=rf"no file .*RTE/RTE/train.tsv; .*; did you mean {tmp_path}\?$"):
            check_data(RTE, given)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"no folder {tmp_path}/gone; .*mini, hub or"):
        check_data(RTE, str(tmp_path / "gone"))


@pytest.mark.parametrize("data", ["mini", "hub"])
def test_data_without_files_are_not_looked_for(data: str) -> None:
    check_data(RTE, data)


def test_fingerprint_follows_the_bytes_and_not_the_place(tmp_path: Path) -> None:
    def fingerprint_of(folder: str, text: str) -> str:
        return fingerprint(RTE, write(tmp_path / folder, "RTE/train.tsv", text), "train")

    assert fingerprint_of("a", "one") == fingerprint_of("b", "one")
    assert fingerprint_of("a", "one") != fingerprint_of("a", "two, longer")


def test_fingerprint_of_a_task_covers_train_and_dev_but_not_test(tmp_path: Path) -> None:
    for split in RTE.splits:
        data = write(tmp_path, f"RTE/{split}.tsv", split)
    before = fingerprint(RTE, data)
    write(tmp_path, "RTE/test.tsv", "changed text")
    assert fingerprint(RTE, data) == before
    write(tmp_path, "RTE/dev.tsv", "changed text")
    assert fingerprint(RTE, data) != before


# The hub. `datasets` takes a folder called nyu-mll/glue in the working directory for the dataset of that name.


@pytest.fixture
def hub_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return tmp_path / "nyu-mll" / "glue"


def write_hub(folder: Path, task: str, names: list[str] | None, splits: dict[str, dict[str, list]]) -> None:
    from datasets import ClassLabel, Dataset, Value

    for split, columns in splits.items():
        file = folder / task / f"{split}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = Dataset.from_dict(columns)
        rows.cast_column("label", ClassLabel(names=names) if names else Value("float32")).to_parquet(str(file))
    data_files = "".join(f"\n  - split: {split}\n    path: {task}/{split}-*" for split in splits)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: {task}\n  data_files:{data_files}\n---\n")


PAIRS = {"sentence1": ["One .", "Two ."], "sentence2": ["1", "2"], "idx": [0, 1]}


def test_labels_of_the_hub_are_matched_by_name(hub_folder: Path) -> None:
    swapped = ["not_entailment", "entailment"]  # other than ours: entailment is class 0
    write_hub(hub_folder, "rte", swapped, {"train": PAIRS | {"label": [1, 0]}})
    split = load_split(RTE, "train", "hub")
    assert split.labels.tolist() == [0, 1]
    assert (split.ids, split.texts) == ([0, 1], [("One .", "1"), ("Two .", "2")])


def test_dev_is_validation_on_the_hub_and_test_has_no_labels(hub_folder: Path) -> None:
    splits = {"validation": PAIRS | {"label": [2.5, 5.0]}, "test": PAIRS | {"label": [-1.0, -1.0]}}
    write_hub(hub_folder, "stsb", None, splits)
    assert load_split(TASKS["stsb"], "dev", "hub").labels.tolist() == [2.5, 5.0]
    assert load_split(TASKS["stsb"], "test", "hub").labels is None


def test_fingerprint_of_the_hub_is_that_of_the_revision(hub_folder: Path) -> None:
    from datasets import load_dataset_builder

    write_hub(hub_folder, "rte", list(RTE.labels), {"train": PAIRS | {"label": [0, 1]}})
    revision = load_dataset_builder("nyu-mll/glue", "rte").hash
    expected = hashlib.sha256(f"rte train nyu-mll/glue {revision}\n".encode()).hexdigest()[:16]
    assert fingerprint(RTE, "hub", "train") == expected


@pytest.mark.slow
def test_hub_out_of_reach_is_one_line_with_ways_out(tmp_path: Path) -> None:
    imports = "from trainables.data.glue import load_split; from trainables.data.tasks import TASKS"
    code = f"{imports}; load_split(TASKS['rte'], 'dev', 'hub')"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    (message,) = [
        line for line in run.stderr.splitlines() if line.startswith("trainables.files.sources.HubUnreachable")
    ]
    assert "nyu-mll/glue " in message and " local cache" in message
    assert (
        "--data hub: " in message
        and "allowed: --data FOLDER with GLUE's files, such as FOLDER/RTE/train.tsv" in message
    )
    assert f"to work offline, copy {tmp_path / 'datasets'} from a machine that has loaded nyu-mll/glue" in message


@pytest.mark.slow
def test_a_hub_that_does_not_answer_is_said_within_seconds(tmp_path: Path) -> None:
    code = "from trainables.data.glue import fingerprint; from trainables.data.tasks import TASKS; "
    code += "fingerprint(TASKS['rte'], 'hub')"
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "HubUnreachable: --data hub: nyu-mll/glue " in run.stderr
    assert "Retrying" not in run.stderr


def test_folders_and_mini_need_neither_torch_nor_datasets() -> None:
    code = (
        "import sys; from trainables.data.glue import load_split; from trainables.data.tasks import TASKS; "
        "load_split(TASKS['rte'], 'dev', 'mini'); "
        "print(sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


# The real files.


REAL_SPLITS = [(name, split) for name in ("cola", "sst2", "mrpc", "rte") for split in TASKS[name].splits]


@real_files
@pytest.mark.parametrize("name, split", [*REAL_SPLITS, ("qnli", "dev"), ("qnli", "test")])
def test_real_files_have_the_official_number_of_rows(name: str, split: str) -> None:
    assert len(load_split(TASKS[name], split, str(GLUE)).ids) == TASKS[name].sizes[split]


@real_files
@pytest.mark.parametrize(
    "name, beginning, label",
    [
        ("cola", "The sailors rode the breeze", 1),
        ("sst2", "it 's a charming and often", 1),
        ("rte", "Dana Reeve, the widow of", 1),
        ("qnli", "What came into force after", 0),
        ("mrpc", "He said the foodservice pie", 1),
    ],
)
def test_first_row_of_real_dev_files(name: str, beginning: str, label: int) -> None:
    split = load_split(TASKS[name], "dev", str(GLUE))
    assert split.texts[0][0].startswith(beginning)
    assert split.labels is not None and split.labels[0] == label


@real_files
def test_missing_train_file_of_qnli_is_named() -> None:
    with pytest.raises(ValueError, match=r"no file .*shared/glue/QNLI/train.tsv"):
        check_data(TASKS["qnli"], str(GLUE))


def test_non_utf8_byte_is_found_behind_byte_order_mark(tmp_path):
    (tmp_path / "RTE").mkdir()
    rows = b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\t\xff\tb\tentailment\n"
    (tmp_path / "RTE" / "train.tsv").write_bytes(b"\xef\xbb\xbf" + rows)
    with pytest.raises(ValueError, match=r"train.tsv, line 3: byte 0xff "):
        load_split(TASKS["rte"], "train", str(tmp_path))


def test_a_column_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv").write_text(
        "index\tsentence1\tsentence1\tsentence2\tlabel\n0\ta\ta\tb\tentailment\n"
    )
    with pytest.raises(ValueError, match=r"line 1: .*several columns 'sentence1'"):
        load_split(TASKS["rte"], "train", str(tmp_path))
