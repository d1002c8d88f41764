"""Texts that leave first, last, and early with a wrong answer: pytest tests/analysis/test_exit_texts.py"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
from helpers import made_studies
from helpers.glue_folders import write_glue
from helpers.made_studies import evidence_of, predicted_study
from huggingface_hub import constants
from scipy.special import softmax

import analysis
from analysis import report, verify
from analysis.layouts import exit_texts
from analysis.layouts.exit_texts import LONGEST_TEXT, read_exit_texts
from analysis.studies.load import load_study
from analysis.studies.stored_predictions import read_predictions
from analysis.studies.texts import read_texts
from trainables.data.glue import fingerprint, load_split
from trainables.data.tasks import TASKS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pdf")]

made_predictions = made_studies.predictions


def study_on(folder: Path, data: str, task: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of ALBERT and PALBERT whose predictions are about the dev rows of these data."""
    splits = {name: load_split(TASKS[task], name, data) for name in TASKS[task].dev_splits}
    ids, labels = (np.concatenate([getattr(one, name) for one in splits.values()]) for name in ("ids", "labels"))
    split = np.repeat([*splits], [len(one.ids) for one in splits.values()])

    def predictions(*arguments, **named):
        arrays = made_predictions(*arguments, **named)
        if TASKS[task].is_regression:
            logits = arrays["logits"] + (labels - arrays["labels"])[:, None]
        else:
            right = arrays["logits"].argmax(axis=-1) == arrays["labels"]
            logits = np.eye(TASKS[task].num_labels)[np.where(right, labels, 1 - labels)]
        changed = {"labels": labels, "ids": ids, "split": split, "logits": logits.astype(np.float32)}
        return arrays | changed | {"layer_logits": np.repeat(logits[:1], 12, axis=0).astype(np.float32)}

    content = fingerprint(TASKS[task], data)
    monkeypatch.setattr(made_studies, "predictions", predictions)
    monkeypatch.setitem(made_studies.CONTENT, "data_fingerprint", content)
    methods = {"albert": 0.9, "palbert": 0.5}
    return predicted_study(
        folder,
        methods,
        [task],
        num_examples=len(ids),
        data=data,
        data_fingerprint=content,
        seeds=2,
    )


@pytest.fixture
def glue(tmp_path) -> Path:
    """RTE in a folder, with a text that HTML would read as a tag, and a long one."""
    folder = write_glue(tmp_path / "glue", rows=60)
    dev = folder / "RTE" / "dev.tsv"
    header, first, second, *others = dev.read_text().splitlines()
    first = "\t".join(["0", "<b>bold</b> & more", *first.split("\t")[2:]])
    second = "\t".join(["1", "long " * LONGEST_TEXT, *second.split("\t")[2:]])
    dev.write_text("\n".join([header, first, second, *others]) + "\n")
    return folder


@pytest.fixture
def study(tmp_path, glue, monkeypatch) -> Path:
    return study_on(tmp_path / "study", str(glue), "rte", monkeypatch)


def test_lists_are_those_of_the_predictions(study, glue):
    evidence = evidence_of(study)
    texts = read_exit_texts(evidence)
    assert texts is not None and not texts.faults
    (table,) = texts.tables  # ALBERT has no exits
    assert table.title == "palbert on RTE"
    frame = analysis.load(study, data=str(glue)).predictions.query("counts and method == 'palbert'")
    of_text = frame.groupby(["id", "text"])
    means = of_text[["layer", "label"]].mean().reset_index()
    means["right"] = of_text["answer"].agg(lambda answers: answers.mode().min()).array == means.label  # 0 if tied
    first, last, wrong = table.parts
    assert (len(first.lines), len(last.lines)) == (10, 10) and 0 < len(wrong.lines) <= 10
    sorted_layers = np.sort(means.layer)
    assert [float(line.label) for line in first.lines] == sorted_layers[:10].tolist()
    assert [float(line.label) for line in last.lines] == sorted_layers[::-1][:10].tolist()
    is_early_and_wrong = (means.layer < means.layer.mean()) & ~means.right
    assert len(wrong.lines) == min(10, is_early_and_wrong.sum())
    known = {
        text[:LONGEST_TEXT]: (layer, right)
        for text, layer, right in means[["text", "layer", "right"]].itertuples(index=False)
    }
    for line in wrong.lines:
        layer, right = known[line.entries["text"].text.removesuffix(" ...")[:LONGEST_TEXT]]
        assert f"{layer:.2f}" == line.label and not right
        assert line.entries["label"].text != line.entries["answer"].text


def test_scores_have_no_wrong_texts(tmp_path, monkeypatch):
    texts = read_exit_texts(evidence_of(study_on(tmp_path / "study", "mini", "stsb", monkeypatch)))
    assert texts is not None and [len(table.parts) for table in texts.tables] == [2]
    assert texts.tables[0].caption.endswith(" The answer is the mean over the seeds.")


def test_usual_answer_of_three_classes_is_wrong_in_the_list_of_wrong_texts():
    """The first text has one right answer and four of another class; the second has two right answers, and 2 + 1."""
    answers = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0], [0, 2, 0]])
    layers = np.array([[1, 1, 6]])
    named = {"ids": np.arange(3), "split": np.repeat("dev_matched", 3), "labels": np.array([0, 0, 0])}
    models = [
        SimpleNamespace(**named, answers=own[None], exit_layers=layers, layer_answers=np.zeros((6, 3)))
        for own in answers
    ]
    wrong = exit_texts._make_table("palbert", TASKS["mnli"], models, ["first", "second", "third"]).parts[2]
    lines = [{name: entry.text for name, entry in line.entries.items()} for line in wrong.lines]
    assert lines == [{"label": "entailment", "answer": "neutral", "text": "first"}]


def test_report_quotes_texts_escaped_and_cut(study, glue):
    page = report.write_report(study).read_text()
    section = page.partition('<section id="texts">')[2].partition("</section>")[0]
    assert "palbert on RTE" in section and "Leave first" in section and "albert on RTE" in section
    assert "<b>bold" not in page and max(map(len, section.split("\n"))) < 3 * LONGEST_TEXT
    shown = read_exit_texts(evidence_of(study))
    quoted = {line.entries["text"].text for part in shown.tables[0].parts for line in part.lines}
    assert ("&lt;b&gt;bold&lt;/b&gt; &amp; more" in section) == any(text.startswith("<b>") for text in quoted)


def test_report_without_data_says_so_in_one_sentence(study, glue, tmp_path):
    glue.rename(tmp_path / "elsewhere")
    without = report.write_report(study).read_text()
    sentence = (
        f"The texts cannot be read here. RTE: there is no folder {glue}; data is {glue} in the plan of the study; "
    )
    assert without.count(sentence) == 1 and "Leave first" not in without


@pytest.mark.long
def test_texts_are_compared_where_the_data_are(study, glue, tmp_path):
    with_texts = report.write_report(study).read_bytes()
    assert verify.main([str(study)]) == 0
    glue.rename(tmp_path / "elsewhere")
    assert verify.main([str(study)]) == 0  # it cannot read the texts, which are no numbers of the study
    without = report.write_report(study).read_text()
    (tmp_path / "elsewhere").rename(glue)
    assert verify.main([str(study)]) == 0
    (study / report.PAGE).write_bytes(with_texts.replace(b"Leave first", b"Leave soon"))
    assert verify.main([str(study)]) == 1  # with the data, they are compared
    (study / report.PAGE).write_bytes(without.replace("palbert", "pabee").encode())
    assert verify.main([str(study)]) == 1


def test_other_rows_are_not_quoted(study, glue):
    with (glue / "RTE" / "train.tsv").open("a") as file:
        file.write("99\ta dog sleeps\tan animal sleeps\tentailment\n")
    (fault,) = read_exit_texts(evidence_of(study)).faults
    assert fault.startswith(f"RTE: {glue} has other rows of rte than those of the study; first run study.launch")
    with pytest.raises(ValueError, match=r"^data .* has other rows of rte than those of the study$"):
        _ = analysis.load(study, data=str(glue)).predictions


def test_rows_with_other_labels_are_not_quoted(tmp_path, monkeypatch):
    study = study_on(tmp_path / "study", "mini", "rte", monkeypatch)
    loaded = load_study(study)
    texts = read_texts(loaded, "rte")
    stored = next(own for own in (read_predictions(loaded, record) for record in loaded.records) if own)
    assert texts.select(stored)[0] == " | ".join(load_split(TASKS["rte"], "dev", "mini").texts[0])
    stored.labels[3] = 1 - stored.labels[3]
    with pytest.raises(ValueError, match=r"^the data have other rows of rte than those of the study$"):
        texts.select(stored)


def test_hub_data_are_read_only_from_the_cache(tmp_path, monkeypatch):
    seen = []

    def load(*_: object) -> None:
        seen.append((constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE, datasets.config.HF_DATASETS_OFFLINE))
        raise ValueError("not in the cache")

    monkeypatch.setattr("analysis.studies.texts.load_split", load)
    before = constants.HF_HUB_OFFLINE
    study = predicted_study(tmp_path / "study", {"palbert": 0.8}, ["rte"], seeds=2)
    (fault,) = read_exit_texts(evidence_of(study)).faults
    assert fault == "RTE: not in the cache" and seen == [(True, True, True)]
    assert before == constants.HF_HUB_OFFLINE


def test_frame_has_probabilities_and_texts(study, glue):
    frames = analysis.load(study, data=str(glue))
    record = next(one for one in frames.study.records if one.phase == "confirm" and one.method == "palbert")
    stored, own = read_predictions(frames.study, record), frames.predictions.query(f"key == '{record.key}'")
    expected = softmax(stored.logits[0].astype(float), axis=-1)
    np.testing.assert_allclose(own[["probabilities.0", "probabilities.1"]], expected)
    np.testing.assert_allclose(own.probability, expected.max(axis=-1))
    assert own.text.tolist() == [" | ".join(texts) for texts in load_split(TASKS["rte"], "dev", str(glue)).texts]
    assert set(analysis.load(study).predictions.text) == {""}
