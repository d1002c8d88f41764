"""The command that pretrains a backbone: pytest tests/study/test_pretrain.py"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.corpora import pretrained_folder, renamed, without_pooler, write_corpus
from helpers.messages import says
from helpers.pretrainings import MINI, SHAPE, SHORT, SMALL, refused, run

from search_spaces import objectives as recipes
from study import pretrain
from study.drivers import pretraining
from study.plans.pretrained_backbone import is_tiny, read_finished_pretraining, read_pretraining
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.encoders.mini_backbones import word_tokenizer
from trainables.pretraining.corpus import corpus_fingerprint


@pytest.mark.parametrize(
    "arguments",
    [
        "xlnet",
        "mlm:bert",
        "mlm --corpus /nowhere",
        "mlm --corpus mini --corpus mini",
        "mlm --corpus 'a + b'",
        "mlm --max-minutes 0",
        "mlm --corpus hub:",
        "mlm --corpus hub:owner/name",
        "mlm --corpus wikipedia",
        "mlm --set depth=3",
        "alectra-rtd --set generator_type=bert",
        "mlm --set depth",
        "mlm --set steps=1 --set steps=2",
        "mlm --set steps=50",
        "mlm --set steps=50 --set warmup_steps=60",
        "mlm --set steps=0",
        "mlm --set steps=1.5",
        "mlm --set steps=many",
        "mlm --set steps=1e",
        "mlm --set steps=1e999",
        "mlm --set mask_probability=1e0",
        "mlm --set mask_probability=nan",
        "mlm --set masking=word",
        "mlm --set gradient_accumulation=5",
        "albert-mlm --set packing=full",
        "mlm --set attention=linear",
        "mlm --attention nystrom",
        "mlm --set attention=nystrom --backbone mini-sharebert",
        "electra-rtd --backbone mini-albert",
        "mlm --backbone mini-albrt",
        "mlm --backbone owner/name",
        "mlm --backbone albert-base",
        "mlm --processes 0",
        "mlm --processes 3",
        "mlm --seed -1",
        "mlm --tracking-uri folder",
    ],
)
def test_bad_usage_is_one_line_and_makes_nothing(arguments, capsys, tmp_path, monkeypatch, snapshot):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    corpus = [] if "--corpus" in arguments else ["--corpus", "mini"]
    line = refused(capsys, *shlex.split(arguments), *corpus, "--to", "to")
    assert line.replace(str(tmp_path), "HERE") == snapshot
    assert not (tmp_path / "to").exists()


def test_more_processes_than_processors_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "count_cores", lambda: 4)
    monkeypatch.setattr(pretrain, "count_local_gpus", lambda: 0)
    assert "--processes is 32; allowed: at most 4" in refused(
        capsys, "mlm", "--corpus", "mini", "--processes", "32", "--to", str(tmp_path / "to")
    )


@pytest.mark.parametrize("documents", [[["one"], ["two"]], [["one", "two"]]], ids=["one_sentence", "one_document"])
def test_bad_corpus_is_one_line(capsys, tmp_path, documents, snapshot):
    corpus = write_corpus(tmp_path / "text", documents)
    line = refused(capsys, "albert-mlm", "--corpus", corpus, "--to", str(tmp_path / "to"), *SMALL)
    assert line.replace(corpus, "TEXT") == snapshot


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"one\ntwo\n\ncaf\xe9\n",
        None,
    ],
)
def test_corpus_that_cannot_be_read_is_one_line(text, capsys, tmp_path, snapshot):
    (tmp_path / "text").mkdir()
    if text is not None:
        (tmp_path / "text" / "text.txt").write_bytes(text)
    line = refused(capsys, "mlm", "--corpus", str(tmp_path / "text"), "--to", str(tmp_path / "to"), *SMALL)
    assert line.replace(str(tmp_path), "HERE") == snapshot


def test_hub_names_stay_at_the_commit_that_the_folder_began_with(tmp_path, monkeypatch):
    def prepared(commit: str, earlier=None):
        info = SimpleNamespace(sha=commit * 40)
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: info)
        asked = ["mlm", "--corpus", "hub:owner/name:part", "--to", str(tmp_path), "--backbone", "mini-albert"]
        return pretrain.prepare(pretrain.resolve(pretrain.main.parser().options(asked)), earlier)

    spec, file = prepared("a")
    assert spec.corpus == f"hub:owner/name@{'a' * 40}:part"
    assert prepared("b", file) == (spec, file)


def test_each_of_two_corpora_stays_at_its_commit_and_is_checked(tmp_path, corpus, monkeypatch):
    def prepared(commit: str, earlier=None):
        info = SimpleNamespace(sha=commit * 40)
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: info)
        asked = ["mlm", "--corpus", "hub:owner/name", "--corpus", corpus, "--to", str(tmp_path / "to"), *MINI]
        return pretrain.prepare(pretrain.resolve(pretrain.main.parser().options(asked)), earlier)

    spec, file = prepared("a")
    pinned = f"hub:owner/name@{'a' * 40}"
    assert spec.corpus == f"{pinned} + {corpus}" and file.made.corpus == f"hub:owner/name + {corpus}"
    assert file.made.corpus_fingerprint == f"{pinned} + {corpus_fingerprint(corpus)}"
    assert prepared("b", file) == (spec, file)
    write_corpus(Path(corpus), [["another"], ["text"]])
    with pytest.raises(ValueError, match="corpus fingerprint is hub:owner"):
        prepared("b", file)


def test_two_corpora_stand_in_the_dry_run(tmp_path, corpus, capsys):
    asked = ["mlm", "--corpus", "mini", "--corpus", corpus, "--to", str(tmp_path / "to"), *SMALL]
    assert pretrain.main([*asked, "--max-minutes", "90", "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(f"mlm on corpus mini + {corpus}: 6 steps of 8 examples")
    assert f" corpus mini + {corpus} --corpus " in text and " limit 90 minutes --max-minutes" in text


def test_folder_of_something_else_is_refused(capsys, tmp_path, snapshot):
    (tmp_path / "thesis.tex").write_text("")
    line = refused(capsys, "mlm", "--corpus", "mini", "--to", str(tmp_path))
    assert line.replace(str(tmp_path), "TO") == snapshot


def test_dry_run_names_the_origin_of_every_value(capsys, corpus, tmp_path):
    arguments = ["mlm", "--corpus", corpus, "--to", str(tmp_path / "to"), *SMALL, "--set", "attention=nystrom"]
    assert pretrain.main([*arguments, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"mlm on corpus {corpus}: 6 steps of 8 examples"
    origins = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert origins["steps"] == ["6", "--set"] and origins["num_landmarks"] == ["32", "--set"]
    assert origins["optimizer"] == ['"adamw"', "search_spaces/objectives/mlm.py", "MINI_FIXED"]
    assert origins["backbone"] == ["mini-albert", "--backbone"]
    first, second = (line for line in lines if "unpublished" in line or "set by hand" in line)
    assert "unpublished" in first and second.startswith("  set by hand") and lines[-1] == "nothing was run"
    assert not (tmp_path / "to").exists()


def test_real_text_has_the_papers_recipe(tmp_path, corpus):
    options = pretrain.main.parser().options(["albert-mlm", "--corpus", corpus, "--to", "to"])
    request = pretrain.resolve(options)
    assert (request.backbone.value, request.tokenizer.value) == ("albert-base", "albert/albert-base-v2")
    assert (request.config.steps, request.config.batch_size, request.config.optimizer) == (125_000, 4096, "lamb")


@pytest.mark.slow
def test_folder_is_a_backbone_that_tells_how_it_was_made(tmp_path, corpus, capsys, snapshot):
    folder = tmp_path / "to"
    arguments = ("electra-rtd", "--corpus", corpus, "--to", str(folder), *SHORT, *SHAPE, "--backbone", "mini-electra")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "2 of 6 steps: loss " in done.stdout and "left\n" in done.stdout and "\nfinished: 6 steps, " in done.stdout
    file = read_pretraining(folder)
    assert file and file.finished and file.model_fingerprint == backbone_fingerprint(str(folder))
    made = read_finished_pretraining(str(folder))
    assert made and (made.objective, made.corpus, made.steps, made.batch_size) == ("electra-rtd", corpus, 6, 8)
    assert made.wall_seconds > 0 and made.gpu_seconds == 0 and made.tokens > 0 and made.device
    assert set(made.scores) == {"mlm_loss", "mlm_accuracy", "rtd_auc", "rtd_accuracy"}
    assert [epoch.row.steps for epoch in file.epochs] == [2, 4, 6] and is_tiny(str(folder))
    assert made.settings["steps"] == 6 and file.versions["torch"] and file.code_digest and made.departures
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "pretraining.json",
        "pretrain.lock",
    }
    before = backbone_fingerprint(str(folder))
    assert pretrain.main([*arguments]) == 0
    assert capsys.readouterr().out.replace(str(folder), "TO") == snapshot
    (folder / "pretraining.json").write_text(json.dumps(json.loads((folder / "pretraining.json").read_text())))
    assert backbone_fingerprint(str(folder)) == before  # times are no part of it
    from transformers import AutoModel, AutoTokenizer

    assert AutoModel.from_pretrained(folder) and AutoTokenizer.from_pretrained(folder)
    capsys.readouterr()  # transformers tells of the heads that it leaves out
    assert refused(capsys, *arguments, "--seed", "7").replace(str(folder), "TO") == snapshot


@pytest.mark.parametrize(
    ("options", "unchecked", "families"),
    [
        (("mlm",), "google-bert/bert-base-uncased", "albert, bert, electra, roberta or sharebert"),
        (("albert-mlm", "--backbone", "someone/albert"), "someone/albert", "albert"),
        (("albert-mlm", "--corpus", "hub:someone/texts"), "hub:someone/texts, albert/albert-base-v2", "albert"),
    ],
)
def test_unasked_hub_is_named_in_dry_run(options, unchecked, families, tmp_path, corpus, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    where = ("--to", str(tmp_path / "to"), *(() if "--corpus" in options else ("--corpus", corpus)))
    assert pretrain.main([options[0], *where, *options[1:], "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert says(lines[-2], "not checked, ", f": {unchecked}; ", f"of family {families}")
    assert lines[-1] == "nothing was run"
    assert pretrain.main([options[0], *where, *options[1:]]) == 2
    assert "the hub cannot be reached" in capsys.readouterr().err


def test_a_missing_pooler_is_named_in_a_dry_run(tmp_path, corpus, capsys):
    backbone = without_pooler(pretrained_folder(tmp_path / "ours"))
    arguments = ["albert-mlm", "--corpus", corpus, "--backbone", str(backbone), "--to", str(tmp_path / "to")]
    assert pretrain.main([*arguments, "--set", "max_length=64", "--dry-run"]) == 0
    assert f"backbone {backbone} has no pooler, " in capsys.readouterr().out


def test_second_pretraining_names_heads_that_are_new_and_keeps_the_first(tmp_path, corpus, capsys):
    backbone = pretrained_folder(tmp_path / "ours")
    word_tokenizer(["ships wait ."]).save_pretrained(backbone)
    arguments = ("--corpus", corpus, "--backbone", str(backbone), "--to", str(tmp_path / "to"))
    assert pretrain.main(["albert-mlm", *arguments, *SHORT, *SHAPE]) == 0
    assert f"{backbone} has none that fit: predictions, sop_classifier\n" in capsys.readouterr().out
    first, second = (read_pretraining(folder) for folder in (backbone, tmp_path / "to"))
    assert first and second and second.made.stages == (first.made, second.made)


def test_a_backbone_with_other_names_is_refused_in_a_dry_run(tmp_path, corpus, capsys):
    backbone = renamed(pretrained_folder(tmp_path / "ours"), lambda name: f"module.{name}")
    arguments = ["albert-mlm", "--corpus", corpus, "--backbone", str(backbone), "--to", str(tmp_path / "to")]
    assert says(refused(capsys, *arguments, "--dry-run"), "none of them: ", "`module.`")


def test_a_departure_that_set_makes_untrue_is_left_out(tmp_path, corpus, capsys):
    asked = ("albert-mlm", "--corpus", corpus, "--to", str(tmp_path / "to"), "--backbone", "albert-base", "--tokenizer")
    (tmp_path / "words").mkdir()
    word_tokenizer(["ships wait ."]).backend_tokenizer.save(str(tmp_path / "words" / "tokenizer.json"))
    for options in ([], ["--set", "schedule=constant", "--set", "precision=float32"]):
        assert pretrain.main([*asked, str(tmp_path / "words"), *options, "--dry-run"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        found = [
            words in said for words in ("(paper: falls from 97.5", "precision: bfloat16", "masking: within a segment")
        ]
        assert found == [not options, not options, True]


FINE_TUNED_BY = {
    "albert-mlm": "palbert",
    "alectra-rtd": "alectra-small",
    "alectra-rtd:bert-generator": "alectra-small",
    "alectra-rtd:tied-encoders": "alectra-small",
    "electra-rtd": "electra-small",
    "electra-rtd:lmtuners": "electra-small:lmtuners",
    "mlm": "sharebert",
    "mlm:bert-small": "pabee",
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipes.list_recipes())
def test_recipe_makes_a_backbone_that_a_method_fine_tunes(recipe, tmp_path, corpus):
    folder, method = tmp_path / "to", FINE_TUNED_BY[recipe]
    backbone = "mini-sharebert" if recipe == "mlm" else recipes.load_recipe(recipe).backbone["mini"]
    done = run(
        recipe, "--corpus", corpus, "--to", str(folder), *SHORT, "--backbone", backbone, "--tracking-uri", "none"
    )
    assert done.returncode == 0, done.stderr
    made = read_finished_pretraining(str(folder))
    assert made and made.objective == recipe and made.steps == 6
    few = ("--profile", "mini", "--limit", "64", "--set", "epochs=1")
    tried = run(method, "--task", "rte", *few, "--backbone", str(folder), module="study.try")
    assert tried.returncode == 0, tried.stderr
    assert f"{method}/rte" in tried.stdout and "score" in tried.stdout, tried.stdout


@pytest.mark.slow
def test_diverged_training_is_one_line(tmp_path, corpus, capsys):
    wild = ("--set", "learning_rate=1e30", "--set", "gradient_clip=0")
    assert pretrain.main(["mlm", "--corpus", corpus, "--to", str(tmp_path / "to"), *SMALL, *wild]) == 1
    said = capsys.readouterr().err
    assert said.startswith("study.pretrain: held-out scores are not finite ") and said.count("\n") == 1
    assert not (tmp_path / "to" / "model.safetensors").exists()


@pytest.mark.long
@pytest.mark.slow
def test_run_is_in_mlflow_once_however_often_the_command_is_given(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ("mlm", "--corpus", corpus, *SMALL[:-2], "--to", str(folder))
    for _ in range(2):
        assert pretrain.main([*arguments]) == 0
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("to")
    assert experiment is not None
    (mirrored,) = client.search_runs([experiment.experiment_id])
    assert mirrored.info.status == "FINISHED" and mirrored.data.params["steps"] == "6"
    assert [point.step for point in client.get_metric_history(mirrored.info.run_id, "mlm_accuracy")] == [2, 4, 6]


@pytest.mark.slow
def test_mlflow_that_is_away_costs_a_warning(tmp_path, corpus, capsys):
    where = ("--tracking-uri", "http://127.0.0.1:9")
    assert pretrain.main(["mlm", "--corpus", corpus, *SMALL[:-2], *where, "--to", str(tmp_path / "to")]) == 0
    assert "warning: MLflow at http://127.0.0.1:9 is unreachable: " in capsys.readouterr().err


def test_time_left_ends_with_max_minutes(capsys):
    made = SimpleNamespace(steps=0, batch_size=8, objective="mlm", corpus="mini", backbone="b", scores={})
    epochs = [SimpleNamespace(row=SimpleNamespace(train_loss=1.0))]
    file = SimpleNamespace(made=made, wanted_steps=1_000_000_000, epochs=epochs)
    screen = pretraining._Screen(file, 10.0)
    screen._began -= 60
    made.steps, made.wall_seconds = 10, 60.0
    screen.show_epoch(file)
    assert "; about 9:00 left" in capsys.readouterr().out
