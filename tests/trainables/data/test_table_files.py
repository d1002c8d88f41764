"""Files as other programs write them: pytest tests/trainables/data/test_table_files.py"""

from __future__ import annotations

import codecs
import gzip
import shutil
from pathlib import Path

import pytest
from helpers.messages import one_line, says
from syrupy.assertion import SnapshotAssertion

from trainables.data.glue import check_data, find_data_faults, load_split, read_texts
from trainables.data.own_tasks import read_tasks
from trainables.data.tasks import TASKS, Task

TASK = 'texts = ["text"]\nlabels = ["0", "1"]\nmetrics = ["accuracy"]\n'


def make_task(folder: Path, content: str | bytes, *, ending: str = ".csv", toml: str = TASK) -> Task:
    """A task with the same file as train and dev."""
    place = folder / "tasks" / "mine"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "task.toml").write_text(toml)
    for split in ("train", "dev"):
        (place / f"{split}{ending}").write_bytes(content.encode() if isinstance(content, str) else content)
    (task,) = read_tasks(place.parent)
    return task


def find_fault(task: Task) -> str:
    """The fault of the train file, which is also that of the dev file; without its folder."""
    fault, other = find_data_faults(task, "mini")
    assert other == fault.replace("train", "dev")
    return fault.removeprefix(f"{task.place}/")


def labels_of(task: Task) -> list[int]:
    assert [*find_data_faults(task, "mini")] == []
    labels = load_split(task, "dev", "mini").labels
    assert labels is not None
    return labels.tolist()


ROWS = {
    ".tsv": "text\tlabel\ngood\t1\nbad\t0\n",
    ".csv": "text,label\ngood,1\nbad,0\n",
    ".jsonl": '{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n',
}


def test_texts_that_pandas_quoted_in_a_tsv_are_a_fault(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = 'text\tlabel\nplain\t1\n"""Go!"" he said"\t0\n"a ""b"""\t1\n'
    assert find_fault(make_task(tmp_path, rows, ending=".tsv")) == snapshot
    assert labels_of(make_task(tmp_path, rows.replace("\t", ","))) == [1, 0, 1]


@pytest.mark.parametrize("texts", [('"Go!"', '""'), ('"Go!" he said', '"a ""b"""'), ('""Go""', '"a ""b" c"')])
def test_quotes_of_a_text_itself_are_no_fault(tmp_path: Path, texts: tuple[str, str]) -> None:
    rows = "text\tlabel\n{}\t1\n{}\t0\n".format(*texts)
    assert labels_of(make_task(tmp_path, rows, ending=".tsv")) == [1, 0]


def test_qqp_s_own_quotes_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "QQP").mkdir()
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    for split in ("train", "dev"):
        rows = [f'{number}\t1\t2\t"What is ""it""?"\tWhat?\t{number}' for number in range(2)]
        (tmp_path / "QQP" / f"{split}.tsv").write_text("\n".join([header, *rows]))
    assert [*find_data_faults(TASKS["qqp"], str(tmp_path))] == []


def test_a_glue_file_that_pandas_wrote_is_named_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    row = '{}\t"""Go!"" he said"\ta\t{}'
    lines = ["index\tsentence1\tsentence2\tlabel", row.format(0, "entailment"), row.format(1, "not_entailment")]
    for split in ("train", "dev"):
        (tmp_path / "RTE" / f"{split}.tsv").write_text("\n".join(lines))
    train, dev = find_data_faults(TASKS["rte"], str(tmp_path))
    assert says(train, "RTE/train.tsv, line 2: ", "2 rows are quoted ", "allowed: ", ".csv") and "dev.tsv" in dev


@pytest.mark.parametrize("end", ["\n", "\n\n\n", "  \n", "\r\n\r\n"])
@pytest.mark.parametrize("ending", ROWS)
def test_blank_lines_at_the_end_are_skipped(tmp_path: Path, ending: str, end: str) -> None:
    assert labels_of(make_task(tmp_path, ROWS[ending] + end, ending=ending)) == [1, 0]


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_blank_lines_between_rows_shift_no_label(tmp_path: Path, ending: str) -> None:
    assert labels_of(make_task(tmp_path, ROWS[ending].replace("\n", "\n\n"), ending=ending)) == [1, 0]


def test_blank_line_between_rows_of_tsv_is_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    task = make_task(tmp_path, ROWS[".tsv"].replace("\n", "\n\n"), ending=".tsv")
    first, *_ = find_data_faults(task, "mini")
    assert one_line(first, tmp_path) == snapshot


def test_quoted_empty_text_at_the_end_of_csv_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "input.csv").write_text('sentence\nfine\n""\n')
    with pytest.raises(ValueError, match=r"line 3: .*no text in sentence"):
        read_texts(TASKS["sst2"], tmp_path / "input.csv")


def test_cola_and_inputs_of_predict_may_end_with_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text("gj04\t1\t\tIt rained .\ngj04\t0\t*\tIt rain .\n\n")
    assert load_split(TASKS["cola"], "train", str(tmp_path)).labels.tolist() == [1, 0]
    assert len(read_texts(TASKS["cola"], tmp_path / "CoLA" / "train.tsv").ids) == 2
    for name, text in (("a.tsv", "sentence\nfine\n\n"), ("a.jsonl", '{"sentence": "fine"}\n\n')):
        (tmp_path / name).write_text(text)
        assert read_texts(TASKS["sst2"], tmp_path / name).texts == [("fine",)]


def test_old_mac_and_windows_line_ends_end_rows(tmp_path: Path) -> None:
    for ending, text in ROWS.items():
        for end in ("\r", "\r\n"):
            assert labels_of(make_task(tmp_path, text.replace("\n", end), ending=ending)) == [1, 0]


def test_byte_order_mark_belongs_to_no_column(tmp_path: Path) -> None:
    for ending, text in ROWS.items():
        assert labels_of(make_task(tmp_path, codecs.BOM_UTF8 + text.encode(), ending=ending)) == [1, 0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str, snapshot: SnapshotAssertion) -> None:
    text = ROWS[".csv"].replace("bad", "caf\xe9" if encoding == "latin-1" else "bad")
    assert find_fault(make_task(tmp_path, text.encode(encoding))) == snapshot


def test_half_a_surrogate_pair_is_named_as_what_it_is(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    task = make_task(tmp_path, ROWS[".jsonl"] + '{"text": "great \\ud83d", "label": 1}\n', ending=".jsonl")
    assert find_fault(task) == snapshot
    whole = make_task(tmp_path, ROWS[".jsonl"] + '{"text": "great \\ud83d\\ude00", "label": 1}\n', ending=".jsonl")
    assert load_split(whole, "dev", "mini").texts[2] == ("great \U0001f600",)


def test_field_given_twice_in_an_object_is_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    task = make_task(tmp_path, ROWS[".jsonl"] + '{"text": "great", "label": 1, "label": 0}\n', ending=".jsonl")
    assert find_fault(task) == snapshot


def test_cell_of_csv_may_be_long(tmp_path: Path) -> None:
    task = make_task(tmp_path, ROWS[".csv"] + f"{'word ' * 30_000},1\n")
    assert labels_of(task) == [1, 0, 1]
    assert len(load_split(task, "dev", "mini").texts[2][0]) == 150_000


@pytest.mark.parametrize(
    ("labels", "spellings"),
    [
        ('["0", "1"]', {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "True": 1, "TRUE": 1}),
        ("[1, 0]", {"1": 0, "0.0": 1, "true": 0, "False": 1}),
        ('["True", "False"]', {"True": 0, "true": 0, "FALSE": 1, "false": 1}),
        ("[true, false]", {"True": 0, "true": 0, "FALSE": 1}),
        ("[1, 2, 3]", {"1.0": 0, "2": 1, "3.0": 2}),
        ('["-1.0", "0.0"]', {"-1": 0, "0": 1, "0.0": 1}),
    ],
)
def test_other_spellings_of_labels_are_accepted(tmp_path: Path, labels: str, spellings: dict[str, int]) -> None:
    content = "text,label\n" + "".join(f"row {number},{text}\n" for number, text in enumerate(spellings))
    task = make_task(tmp_path, content, toml=TASK.replace('["0", "1"]', labels))
    assert labels_of(task) == [*spellings.values()]


@pytest.mark.parametrize(
    ("labels", "spelling"),
    [
        ('["0", "1", "2"]', "true"),
        ('["true", "false"]', "1"),
        ('["1", "1.0"]', "1.00"),
        ('["true", "True"]', "TRUE"),
        ('["0", "1"]', "01"),
        ('["yes", "no"]', "YES"),
    ],
)
def test_ambiguous_spellings_of_labels_are_refused(
    tmp_path: Path, labels: str, spelling: str, snapshot: SnapshotAssertion
) -> None:
    task = make_task(tmp_path, f"text,label\ngood,{spelling}\n", toml=TASK.replace('["0", "1"]', labels))
    assert find_fault(task) == snapshot


def test_booleans_and_floats_of_json_are_labels(tmp_path: Path) -> None:
    rows = "".join(f'{{"text": "{text}", "label": {text}}}\n' for text in ("true", "false", "1.0", "0"))
    assert labels_of(make_task(tmp_path, rows, ending=".jsonl")) == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("ending", "header"),
    [(".csv", "text;label"), (".csv", "text\tlabel"), (".tsv", "text,label"), (".csv", "text, label")],
)
def test_other_separators_and_blanks_in_a_header_are_named(
    tmp_path: Path, ending: str, header: str, snapshot: SnapshotAssertion
) -> None:
    task = make_task(tmp_path, ROWS[ending].replace(ROWS[ending].splitlines()[0], header), ending=ending)
    assert find_fault(task) == snapshot


def test_other_separator_in_a_file_of_glue_is_named(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv").write_text("index;sentence1;sentence2;label\n0;One .;Two .;entailment\n")
    with pytest.raises(ValueError, match=r"line 1: .*separated by semicolons"):
        load_split(TASKS["rte"], "train", str(tmp_path))


def test_packed_files_are_named(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    task = make_task(tmp_path, ROWS[".csv"])
    packed = Path(task.place) / "dev.csv.gz"
    packed.write_bytes(gzip.compress(ROWS[".csv"].encode()))
    (Path(task.place) / "dev.csv").unlink()
    with pytest.raises(ValueError) as raised:
        check_data(task, "mini")
    assert one_line(raised.value, tmp_path) == snapshot


@pytest.mark.parametrize("content", ["text,label\ngood,1\n", "text,label\ngood,1\nbad,1\n"])
def test_data_with_a_single_label_are_refused(tmp_path: Path, content: str, snapshot: SnapshotAssertion) -> None:
    assert find_fault(make_task(tmp_path, content)) == snapshot


def test_constant_scores_are_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    toml = TASK.replace('labels = ["0", "1"]', "regression = true").replace("accuracy", "pearsonr")
    task = make_task(tmp_path, "text,label\ngood,2.5\nbad,2.5\n", toml=toml)
    assert find_fault(task) == snapshot
