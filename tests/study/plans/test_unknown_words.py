"""Texts that a tokenizer does not know are told of: pytest tests/study/plans/test_unknown_words.py"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.corpora import pretrained_folder

from study import launch, launch_options
from study.plans.pretrained_backbone import warn_of_unknown_words
from study.plans.resolution import resolve
from trainables.encoders.backbones import unknown_share
from trainables.encoders.word_vocabulary import word_model

FOREIGN = [["ein sturm schloss den hafen .", "schiffe warten ."], ["der hafen ist offen .", "schiffe fahren ."]]


def told(*arguments: str) -> list[str]:
    asked = ["--profile", "mini", "--task", "rte", *arguments]
    return warn_of_unknown_words(resolve(launch_options.plan_from(launch.main.parser().options(asked))[0]))


def foreign_data(folder: Path) -> str:
    """RTE of which every word is none of mini-GLUE's."""
    (folder / "RTE").mkdir(parents=True)
    for split in ("train", "dev"):
        rows = [f"{number}\t{first}\t{second}\tentailment" for number, (first, second) in enumerate(FOREIGN)]
        (folder / "RTE" / f"{split}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    return str(folder)


def test_data_of_other_words_than_the_tokenizer_knows_are_named_with_their_share(tmp_path):
    ours = pretrained_folder(tmp_path / "ours", is_tiny=False)
    (line,) = told("--backbone", str(ours))
    assert line.startswith(f"warning: many words are unknown to the tokenizer of {ours}: about ")
    assert "% of RTE (share of tokens; the limit is 20%)" in line
    foreign = pretrained_folder(tmp_path / "foreign", texts=[text for pair in FOREIGN for text in pair])
    assert told("--backbone", str(foreign), "--data", foreign_data(tmp_path / "glue")) == []


def test_what_is_generated_throughout_is_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("study.plans.pretrained_backbone.local_tokenizer", lambda *_, **__: pytest.fail("looked at"))
    assert told("--backbone", str(pretrained_folder(tmp_path / "ours"))) == told() == []


def test_the_share_is_of_the_first_texts_alone(monkeypatch):
    monkeypatch.setattr("trainables.encoders.backbones.MOST_TEXTS", 2)
    texts = iter(["Ships wait .", "boats wait .", *["boats"] * 100])
    assert unknown_share(word_model(["ships wait ."]), texts) == 1 / 6
    assert len(list(texts)) == 100


def test_it_is_told_once_by_a_dry_run_and_by_a_launch(tmp_path, capsys, monkeypatch):
    ours = str(pretrained_folder(tmp_path / "ours", is_tiny=False))
    asked = ["--profile", "mini", "--task", "rte", "--backbone", ours, "--out", str(tmp_path / "o")]
    assert launch.main([*asked, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("words are unknown") == printed.err.count("\n") == 1 and "are unknown" not in printed.out
    monkeypatch.setattr("study.launch._launch", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert launch.main(asked) == 1
    assert capsys.readouterr().err.count("words are unknown") == 1
