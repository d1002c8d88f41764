"""The command that pretrains a backbone: pytest tests/study/test_pretrain.py"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from filelock import FileLock
from helpers.corpora import pretrained_folder, random_documents, renamed, without_pooler, write_corpus
from helpers.messages import says
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.started_processes import descendants, is_alive, kill, kill_all
from msgspec.structs import replace

from search_spaces import objectives as recipes
from study import pretrain
from study.drivers import pretraining
from study.plans.pretrained_backbone import is_tiny, read_finished_pretraining, read_pretraining, write_pretraining
from trainables.encoders.backbone_files import backbone_fingerprint
from trainables.encoders.mini_backbones import word_tokenizer
from trainables.pretraining.corpus import corpus_fingerprint

WARMED = ("--set", "warmup_steps=1", "--set", "batch_size=8")
SHORT = (*WARMED, "--set", "steps=6", "--set", "steps_per_epoch=2")
SHAPE = ("--set", "max_length=32", "--tracking-uri", "none")
MINI = ("--backbone", "mini-albert", *SHAPE)
SMALL = (*SHORT, *MINI)
ENDLESS = (*WARMED, "--set", "steps=4000", "--set", "steps_per_epoch=2", *MINI)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    return write_corpus(tmp_path / "text", random_documents())


def refused(capsys, *arguments: str) -> str:
    """The one line with which the command was refused."""
    assert pretrain.main([*arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed.err
    return printed.err.strip()


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


def command(*arguments: str, module: str = "study.pretrain") -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def run(*arguments: str, module: str = "study.pretrain") -> subprocess.CompletedProcess[str]:
    words = command(*arguments, module=module)
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_SECONDS)


def content(folder: Path) -> dict[str, bytes]:
    """All that is a function of the pretraining, and of no clock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".safetensors", ".txt")} | {
        name: (folder / name).read_bytes() for name in ("config.json", "tokenizer.json")
    }


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


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_bits(tmp_path, corpus):
    longer = (*WARMED, "--set", "steps=60", "--set", "steps_per_epoch=5", "--set", "hidden_dropout=0.1", *MINI)
    arguments = ("albert-mlm", "--corpus", corpus, *longer, "--to")
    whole, killed, kills = tmp_path / "whole", tmp_path / "killed", 0
    assert run(*arguments, str(whole)).returncode == 0
    draw = random.Random(1)
    for wanted in (0, 1, 1, 2, 4, 7, 11):
        process = subprocess.Popen(command(*arguments, str(killed)), stdout=subprocess.DEVNULL, cwd=ROOT)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and epochs_in(killed) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(draw.random() * 0.1)
        if process.poll() is None:
            kills += 1
            process.kill()
        process.wait()
    assert kills > 3 and not (read_pretraining(killed) or pytest.fail()).finished
    with pytest.raises(ValueError, match="is not finished: "):
        read_finished_pretraining(str(killed))
    assert run(*arguments, str(killed)).returncode == 0
    assert content(killed) == content(whole)
    file = read_pretraining(killed)
    assert file and [epoch.row.steps for epoch in file.epochs] == list(range(5, 61, 5))


def epochs_in(folder: Path) -> int:
    file = read_pretraining(folder)
    return len(file.epochs) if file else 0


@pytest.mark.slow
def test_second_process_on_a_folder_is_refused(tmp_path, corpus, capsys):
    with FileLock(tmp_path / "pretrain.lock"):
        line = refused(capsys, "mlm", "--corpus", "mini", "--to", str(tmp_path / "."), *SMALL)
    assert "contains text, but no pretraining" in line  # the corpus is not ours
    folder = tmp_path / "to"
    folder.mkdir()
    with FileLock(folder / "pretrain.lock"):
        line = refused(capsys, "mlm", "--corpus", corpus, "--to", str(folder), *SMALL)
    assert " is in use by another pretraining; " in line and not (folder / "pretraining.json").exists()


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=two_cores)])
def test_full_disk_is_one_line_and_the_same_command_continues(tmp_path, corpus, processes):
    """A limit on the size of files stands in for the disk: the first state does not fit.

    Of two processes, only the first writes the state; the second one fails because it loses the first.
    """
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL, "--processes", processes]
    code = (
        "import resource, signal; from study import pretrain; from study.drivers import pretraining;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY));"
        f"raise SystemExit(pretrain.main({arguments}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    last = done.stderr.splitlines()[-1]
    assert says(last, " cannot be written: ", "run the same command")
    assert not list(folder.glob(".*"))
    assert pretrain.main(arguments) == 0


@pytest.mark.slow
def test_loss_that_is_not_finite_is_one_line(tmp_path, corpus, capsys):
    wild = ("--set", "learning_rate=1e30", "--set", "gradient_clip=0")
    assert pretrain.main(["mlm", "--corpus", corpus, "--to", str(tmp_path / "to"), *SMALL, *wild]) == 1
    said = capsys.readouterr().err
    assert said.startswith("study.pretrain: loss is ") and said.count("\n") == 1


def pretrain_until_write(number: int, arguments: list[str]) -> None:
    """The process is killed when it would replace `pretraining.json` for the time of this number, counted from 1."""
    code = f"""
import os, pathlib, signal
from study import pretrain

left = iter(range({number - 1}))
def replace(source, target, move=os.replace):
    if pathlib.Path(target).name == "pretraining.json" and next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    move(source, target)

os.replace = replace
pretrain.main({arguments})
"""
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.mark.slow
def test_pretraining_killed_in_its_first_write_continues(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL]
    pretrain_until_write(1, arguments)
    assert [path.name.rstrip("0123456789") for path in sorted(folder.iterdir())] == [
        ".pretraining.json.",
        "pretrain.lock",
    ]
    assert pretrain.main(arguments) == 0
    assert not list(folder.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("is_changed", [True, False])
def test_resumed_pretraining_keeps_the_code_of_earlier_epochs(is_changed, tmp_path, corpus, capsys):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL]
    pretrain_until_write(3, arguments)  # after two epochs, of which the file has one
    now = read_pretraining(folder)
    assert now is not None and len(now.epochs) == 1
    before = {"git_commit": "0123abcd", "code_digest": "c0de", "versions": {**now.versions, "torch": "1.0"}}
    earlier = replace(now, **before) if is_changed else now
    write_pretraining(folder, earlier)
    assert pretrain.main(arguments) == 0
    file, said = read_pretraining(folder), capsys.readouterr().err
    assert file is not None and file.finished
    if not is_changed:
        assert said == "" and file.code_digest == now.code_digest
        return
    assert (file.git_commit, file.code_digest) == (f"0123abcd, {now.git_commit}", f"c0de, {now.code_digest}")
    assert file.versions == {**now.versions, "torch": f"1.0, {now.versions['torch']}"}
    assert said.count("\n") == 1 and says(said, f"code {now.code_digest}, not c0de", "torch ", ", not 1.0")


@pytest.mark.slow
def test_state_without_its_pretraining_is_refused(tmp_path, corpus, capsys):
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "state.pt").write_bytes(b"no state")
    line = refused(capsys, "mlm", "--corpus", corpus, "--to", str(folder), *SMALL)
    assert "contains state.pt, but no pretraining" in line


@pytest.mark.slow
def test_lost_or_damaged_state_starts_again(tmp_path, corpus, capsys):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", corpus, "--to", str(folder), *SMALL]
    pretrain_until_write(3, arguments)  # after two epochs
    (folder / "state.pt").write_bytes(b"no state")
    assert pretrain.main(arguments) == 2
    assert says(capsys.readouterr().err, "state.pt is damaged: ", f"delete {folder}/state.pt to start again\n")
    (folder / "state.pt").unlink()
    assert pretrain.main(arguments) == 0
    said = capsys.readouterr().out
    assert "continues after" not in said and "6 steps of 8 examples" in said


@pytest.mark.long
@pytest.mark.slow
@two_cores
def test_two_processes_end_as_one_and_go_on_where_one_was(tmp_path, corpus):
    arguments = (
        "mlm",
        "--corpus",
        corpus,
        *SMALL,
        "--set",
        "hidden_dropout=0",
        "--set",
        "classifier_dropout=0",
        "--to",
    )
    one, two = tmp_path / "one", tmp_path / "two"
    assert pretrain.main([*arguments, str(one)]) == 0
    done = run(*arguments, str(two), "--processes", "2")
    assert done.returncode == 0, done.stderr
    ours, theirs = read_finished_pretraining(str(one)), read_finished_pretraining(str(two))
    assert ours and theirs and ours.tokens == theirs.tokens
    assert theirs.scores == pytest.approx(ours.scores, abs=1e-2)
    file = read_pretraining(two)
    assert file and file.processes == 2


@pytest.mark.slow
@two_cores
def test_torchrun_ends_at_once_on_finished_backbone(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ("mlm", "--corpus", corpus, *SMALL, "--to", str(folder))
    assert pretrain.main([*arguments]) == 0
    before = content(folder)
    words = ["--standalone", "--nproc-per-node", "2", "-m", "study.pretrain", *arguments]
    torchrun = subprocess.Popen(
        command(*words, module="torch.distributed.run"), stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        printed, _ = torchrun.communicate(timeout=PATIENCE_SECONDS)
    finally:
        kill_all(torchrun)
    assert torchrun.returncode == 0
    assert printed.count(f"{folder}: all 6 steps are done already\n") == 1
    assert content(folder) == before


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "steps"), [("1e-9", 2), ("1e9", 6)])
@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=[two_cores, pytest.mark.long])])
def test_max_minutes_finishes_the_backbone_after_an_epoch(minutes, steps, processes, tmp_path, corpus, capfd):
    folder = tmp_path / "to"
    arguments = ["mlm", "--corpus", "mini", "--corpus", corpus, *SMALL, "--to", str(folder), "--max-minutes", minutes]
    assert pretrain.main([*arguments, "--processes", processes]) == 0
    assert f"\nfinished: {steps} steps, " in capfd.readouterr().out
    made, file = read_finished_pretraining(str(folder)), read_pretraining(folder)
    assert made and made.steps == steps and file and file.processes == int(processes)
    limits = [departure.here for departure in made.departures if departure.what == "steps"]
    assert limits == (["2, because of --max-minutes 1e-09"] if steps == 2 else [])
    assert not (folder / "state.pt").exists()
    assert pretrain.main(arguments) == 0
    said = "2 of 6 steps (--max-minutes) " if steps == 2 else "all 6 steps are done"
    assert said in capfd.readouterr().out


@pytest.mark.long
@pytest.mark.slow
def test_the_time_of_earlier_commands_counts_for_max_minutes(tmp_path, corpus):
    folder, arguments = tmp_path / "to", ["mlm", "--corpus", corpus, *ENDLESS]
    with subprocess.Popen(command(*arguments, "--to", str(folder)), stdout=subprocess.DEVNULL) as process:
        while not (folder / "state.pt").exists() and process.poll() is None:
            time.sleep(0.05)
        process.kill()
    before = read_pretraining(folder)
    assert before is not None
    done = run(*arguments, "--to", str(folder), "--max-minutes", str(before.made.wall_seconds / 60))
    assert done.returncode == 0, done.stderr
    after = read_pretraining(folder)
    assert after and after.finished and len(after.epochs) - len(before.epochs) <= 1  # one may be saved and not written


@pytest.mark.long
@pytest.mark.slow
@two_cores
def test_lost_process_of_several_is_one_line_and_all_end(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ("mlm", "--corpus", corpus, *ENDLESS, "--to", str(folder), "--processes", "2")
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while epochs_in(folder) < 1:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        members = members_of(process)
        assert len(members) == 2
        kill(members[1:])
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        kill_all(process)
    assert process.returncode == 1
    assert says(errors, "process 1 was killed", "run the same command")
    assert not any(map(is_alive, members))


@pytest.mark.long
@pytest.mark.slow
@two_cores
def test_processes_end_with_a_command_that_is_killed(tmp_path, corpus):
    folder = tmp_path / "to"
    arguments = ("mlm", "--corpus", corpus, *ENDLESS, "--to", str(folder), "--processes", "2")
    process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, cwd=ROOT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while epochs_in(folder) < 1:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    members = members_of(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(map(is_alive, members)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def members_of(process: subprocess.Popen) -> list[psutil.Process]:
    """The processes that pretrain; multiprocessing has one of its own beside them."""
    return [child for child in descendants(process.pid, "python") if "spawn_main" in str(child.cmdline())]


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
