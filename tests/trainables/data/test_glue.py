"""python -m pytest tests/trainables/data/test_glue.py"""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.messages import one_line
from helpers.places import GLUE, ROOT
from syrupy.assertion import SnapshotAssertion

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


def write(folder: Path, name: str, *lines: str | bytes | None) -> str:
    """The GLUE folder, with this file in it."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    encoded = (line.encode() if isinstance(line, str) else line for line in lines if line is not None)
    file.write_bytes(b"".join(line + b"\n" for line in encoded))
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
def test_file_whose_rows_are_all_cut_is_refused(split: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    header, line, *_ = LAYOUTS["qqp"]
    other = line[:-1] + str(1 - int(line[-1]))  # with the other label
    for name in ("train", "dev"):
        data = write(tmp_path, f"QQP/{name}.tsv", header, *(["1\t2\t3\tWhy"] if name == split else [line, other]))
    with pytest.raises(ValueError) as counting:
        count_repeated_texts(TASKS["qqp"], data)
    with pytest.raises(ValueError) as loading:
        load_split(TASKS["qqp"], split, data)
    assert one_line(counting.value, tmp_path) == one_line(loading.value, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("name", "split", "lines"),
    [
        ("rte", "train", [RTE_HEADER, "0\tOne .\tTwo ."]),
        ("rte", "train", [RTE_HEADER, "0\tOne .\tTwo .\tentailment\textra"]),
        ("rte", "train", [RTE_HEADER, "0\tOne .\tTwo .\tneutral"]),
        ("rte", "train", [RTE_HEADER, "0\tOne .\tTwo .\t"]),
        ("rte", "train", [RTE_HEADER, b"0\tcaf\xe9\tTwo .\tentailment"]),
        ("rte", "train", [b"\xef\xbb\xbf" + RTE_HEADER.encode(), "0\ta\tb\tentailment", b"1\t\xff\tb\tentailment"]),
        ("rte", "train", ["index\tsentence1\tlabel", "0\tOne .\tentailment"]),
        ("rte", "train", ["index\tsentence1\tsentence1\tsentence2\tlabel", "0\ta\ta\tb\tentailment"]),
        ("rte", "train", [f"{RTE_HEADER}\tnotes", "0\tOne .\tTwo .\tentailment\t"]),
        ("rte", "train", [f"{RTE_HEADER}\t", "0\tOne .\tTwo .\tentailment\t"]),
        ("rte", "train", [f"{RTE_HEADER}\tLabel", "0\tOne .\tTwo .\tentailment\t"]),
        ("rte", "train", [f"{RTE_HEADER}\tgold_label", "0\tOne .\tTwo .\tentailment\t"]),
        ("rte", "train", []),
        ("rte", "train", [RTE_HEADER]),
        ("cola", "train", ["gj04\t1\t\tIt rained .", "gj04\t2\t\tIt rained ."]),
        ("cola", "test", ["index\tsentence\tmark", "0\tIt rained .\t*"]),
        *(
            ("stsb", "train", [STSB_HEADER, f"0\tnews\tfile\t2012\t4\tnone\tnone\tA .\tB .\t{score}"])
            for score in ("5.2", "-1", "nan", "x")
        ),
    ],
    ids=str,
)
def test_bad_file_is_named_with_line_and_value(
    name: str, split: str, lines: list[str | bytes], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    data = write(tmp_path, f"{TASKS[name].folder}/{split}.tsv", *lines)
    with pytest.raises(ValueError) as raised:
        load_split(TASKS[name], split, data)
    assert one_line(raised.value, tmp_path) == snapshot


def test_unknown_split_is_answered_with_the_menu(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ValueError) as raised:
        load_split(TASKS["mnli"], "dev", "mini")
    assert one_line(raised.value) == snapshot


@pytest.mark.parametrize("given", ["HERE", "HERE/gone", "HERE/RTE", "RTE", "RTE/"])
def test_missing_file_or_folder_is_named(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """If the folder of a task is given, its parent is offered."""
    write(tmp_path, "RTE/train.tsv", RTE_HEADER)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as raised:
        check_data(RTE, given.replace("HERE", str(tmp_path)))
    assert one_line(raised.value, tmp_path) == snapshot


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
def test_hub_out_of_reach_is_one_line_with_ways_out(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    imports = "from trainables.data.glue import load_split; from trainables.data.tasks import TASKS"
    code = f"{imports}; load_split(TASKS['rte'], 'dev', 'hub')"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    (message,) = [
        line for line in run.stderr.splitlines() if line.startswith("trainables.files.sources.HubUnreachable")
    ]
    assert message.replace(str(tmp_path), "HERE") == snapshot


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
