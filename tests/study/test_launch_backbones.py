"""Backbones on the command line, pretrained here too, without Ray: pytest tests/study/test_launch_backbones.py"""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from helpers.corpora import pretrained_folder, renamed, without_pooler
from helpers.messages import says
from helpers.plan_files import plan_from, write_plan_of_launch
from helpers.simulation import NO_PROVENANCE
from msgspec.structs import replace
from safetensors.numpy import load_file, save

from study import launch
from study.decisions.scheduler import Scheduler
from study.facts.journal import Journal
from study.facts.plan_file import compare_plans
from study.plans.pretrained_backbone import read_finished_pretraining, read_pretraining, write_pretraining
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.configuration.schema import from_plain, to_plain
from trainables.encoders.backbone_files import backbone_fingerprint


def refused(capsys, tmp_path: Path, *arguments: str) -> str:
    """The one line with which the launch was refused; nothing may have been created."""
    out = tmp_path / "runs"
    assert launch.main([*arguments, "--profile", "mini", "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and not out.exists()
    assert printed.err.count("\n") == 1, printed.err
    return printed.err.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "--set attention=linear",
        "--set attention=nystrom --backbone mini-sharebert",
        "--method sharebert --backbone mini-bert",
        "--set attention=nystrom --backbone mini-roberta",
        "--set attention=nystrom --set max_length=16",
        "--attention nystrom",
        "--start-from sst2=cola --start-from cola=sst2",
        "--start-from sst2=sst2",
        "--start-from colla=sst2",
        "--start-from albert/cola=sst2",
        "--start-from cola=nope",
        "--start-from CoLA=MNLI",
    ],
)
def test_bad_input_is_answered_in_one_line_with_what_is_allowed(capsys, tmp_path, arguments, snapshot):
    assert refused(capsys, tmp_path, *arguments.split()) == snapshot


def test_sizes_whose_slices_do_not_fit_are_refused(capsys, tmp_path):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 288}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "sharebert", **sizes}))
    (tmp_path / "vocab.txt").write_text("")
    told = refused(capsys, tmp_path, "--backbone", str(tmp_path))
    sizes = ["hidden_size 32, ", "intermediate_size 64 ", "vocab_size 288 "]
    assert says(told, "ShareBERT", *sizes, "36 columns", "allowed: 32")


OF_ATTENTION = ("attention", "num_landmarks", "conv_kernel_size")


@pytest.mark.parametrize("scope", ["", "palbert:", "palbert/rte:"])
def test_attention_brings_its_fields_unless_they_are_set(scope):
    (arm,) = resolve(plan_from("--task", "rte", "--set", f"{scope}attention=nystrom")).arms
    assert [arm.fixed[field] for field in OF_ATTENTION] == ["nystrom", 32, 33]
    wide = ["--set", f"{scope}attention=nystrom", "--set", "num_landmarks=8"]
    (arm,) = resolve(plan_from("--task", "rte", *wide)).arms
    assert [arm.fixed[field] for field in OF_ATTENTION] == ["nystrom", 8, 33]
    softmax = plan_from("--task", "rte", "--set", f"{scope}attention=softmax")
    assert resolve(softmax).arms[0].fixed == resolve(plan_from("--task", "rte")).arms[0].fixed


def test_attention_in_a_plan_file_brings_its_fields(tmp_path):
    (tmp_path / "plan.toml").write_text('tasks = ["rte"]\n[set]\nattention = "nystrom"\n')
    (arm,) = resolve(plan_from("--plan", str(tmp_path / "plan.toml"))).arms
    assert [arm.fixed[field] for field in OF_ATTENTION] == ["nystrom", 32, 33]


def test_a_plan_with_all_fields_of_its_attention_is_the_same_study():
    short = plan_from("--task", "rte", "--set", "attention=nystrom")
    written = [
        word
        for setting in ("attention=nystrom", "num_landmarks=32", "conv_kernel_size=33")
        for word in ("--set", setting)
    ]
    assert compare_plans(resolve(plan_from("--task", "rte", *written)), resolve(short)) == []


def test_numbers_may_be_written_as_numbers_are():
    written = ("batch_size=1e1", "max_length=64.0", "hidden_dropout=.1", "weight_decay=0", "learning_rate=1e-3")
    asked = ["--task", "rte", *(word for text in written for word in ("--set", text))]
    (arm,) = resolve(plan_from(*asked)).arms
    fields = ("batch_size", "max_length", "hidden_dropout", "weight_decay", "learning_rate")
    assert repr([arm.fixed[field] for field in fields]) == "[10, 64, 0.1, 0.0, 0.001]"


def test_start_of_arm_is_told_by_dry_run(capsys, tmp_path):
    asked = ["--task", "rte,mnli", "--start-from", "RTE=MNLI", "--dry-run"]
    asked += ["--profile", "mini", "--out", str(tmp_path)]
    assert launch.main(asked) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["palbert/mnli"].endswith("  time unknown") and lines["backbone"] == "backbone mini-albert"
    assert says(lines["palbert/rte"], "time unknown, ", "best model of palbert/mnli")

    def explained(arm: str) -> list[str]:
        assert launch.main([*asked, "--explain", arm]) == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    assert "starts from the best model of palbert/mnli --start-from" in explained("palbert/rte")
    assert not [line for line in explained("palbert/mnli") if line.startswith("starts from")]


def test_a_plan_without_a_pretraining_says_nothing_of_one():
    """So keys, hashes and names of studies stay what they were."""
    plain = to_plain(resolve(plan_from("--task", "rte")))
    assert plain.keys() == {"asked", "arms", "protocol", "departures", "repeated_texts"}
    assert "pretraining" not in plain["arms"][0].keys() | plain["asked"].keys()


def test_arms_keep_pretraining_of_folder_in_plan(tmp_path):
    folder = pretrained_folder(tmp_path / "ours")
    plan = resolve(plan_from("--task", "rte", "--method", "albert,palbert", "--backbone", str(folder)))
    made = read_finished_pretraining(str(folder))
    assert made and {arm.pretraining.steps for arm in plan.arms} == {made.steps} == {40}
    assert plan.arms[0].backbone_fingerprint == backbone_fingerprint(str(folder))
    assert plan.departures["mlm"] == made.departures
    read = from_plain(ResolvedPlan, to_plain(plan), where="plan.json")
    assert read.arms[0].pretraining == made


def test_pretrained_tiny_folder_is_a_tiny_backbone(tmp_path):
    tiny, large = (pretrained_folder(tmp_path / str(is_tiny), is_tiny=is_tiny) for is_tiny in (True, False))
    mini = resolve(plan_from("--task", "rte")).arms[0]
    (ours,) = resolve(plan_from("--task", "rte", "--backbone", str(tiny))).arms
    assert (ours.fixed, ours.space) == (mini.fixed, mini.space)
    (other,) = resolve(plan_from("--task", "rte", "--backbone", str(large), "--set", "max_length=64")).arms
    assert other.fixed["epochs"] > mini.fixed["epochs"]


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        (
            {"finished": False},
            [],
            "40 of 40 steps; finish the pretraining first",
        ),
        ({"positions": 32}, [], "max_length of palbert/sst2 is 128; backbone "),
        ({"conv_kernel_size": 33}, [], "attention is softmax and conv_kernel_size is None, "),
        ({"conv_kernel_size": 5}, ["--set", "attention=nystrom"], "conv_kernel_size is 33, but backbone "),
        ({}, ["--method", "sharebert"], "for backbones of family sharebert; backbone "),
    ],
)
def test_a_pretrained_folder_that_does_not_fit_is_refused(capsys, tmp_path, changes, arguments, message):
    folder = pretrained_folder(tmp_path / "ours", **changes)
    assert message in refused(capsys, tmp_path, "--backbone", str(folder), *arguments)


@pytest.mark.parametrize("change", [without_pooler, lambda folder: (folder / "vocab.txt").write_text("ships")])
def test_folder_that_changed_since_its_pretraining_is_refused(change, tmp_path):
    folder = pretrained_folder(tmp_path / "ours")
    file = read_pretraining(folder)
    write_pretraining(folder, replace(file, model_fingerprint=backbone_fingerprint(str(folder))))
    plan = plan_from("--task", "rte", "--backbone", str(folder))
    assert resolve(plan).arms[0].pretraining == file.made
    change(folder)
    with pytest.raises(ValueError) as raised:
        resolve(plan)
    assert says(str(raised.value), f"backbone '{folder}' has changed since its pretraining", "delete pretraining.json")


def test_a_damaged_description_is_refused(capsys, tmp_path):
    folder = pretrained_folder(tmp_path / "ours")
    (folder / "pretraining.json").write_text("{")
    told = refused(capsys, tmp_path, "--backbone", str(folder))
    assert says(told, f"{folder}/pretraining.json: ", "not a JSON object")


def test_a_dry_run_names_the_pretraining_of_the_backbone(capsys, tmp_path):
    folder = pretrained_folder(tmp_path / "ours")
    asked = ["--task", "rte", "--backbone", str(folder), "--out", str(tmp_path / "runs"), "--dry-run", "--departures"]
    assert launch.main(asked) == 0
    told = capsys.readouterr().out
    assert f"\nbackbone {folder}, pretrained here with mlm\n" in told and "  mlm:\n    of no publication" in told


def test_other_segments_than_in_pretraining_are_named(capsys, tmp_path):
    folder = pretrained_folder(tmp_path / "ours", conv_kernel_size=33)
    sizes = json.loads((folder / "config.json").read_text()) | {"segment_means_seq_len": 512, "num_landmarks": 32}
    (folder / "config.json").write_text(json.dumps(sizes))
    asked = ["--task", "rte", "--backbone", str(folder), "--out", str(tmp_path / "runs"), "--dry-run"]
    asked += ["--set", "attention=nystrom", "--set", "max_length=128"]
    assert launch.main(asked) == 0
    told = capsys.readouterr().out
    parts = (
        "one Nystrom landmark per 16 tokens, ",
        "num_landmarks 32 give one per 4; ",
        "num_landmarks=8 gives one per 16",
    )
    assert says(told, f"backbone {folder} was pretrained ", *parts)
    for landmarks in ("8", "7"):
        assert launch.main([*asked, "--set", f"num_landmarks={landmarks}"]) == 0
        assert ("was pretrained with one" in capsys.readouterr().out) == (landmarks == "7")


def test_a_missing_pooler_stands_in_the_dry_run_and_the_departures(capsys, tmp_path):
    folder = pretrained_folder(tmp_path / "ours")
    asked = ["--task", "rte", "--backbone", str(folder), "--out", str(tmp_path / "runs"), "--dry-run", "--departures"]
    assert launch.main(asked) == 0
    told = capsys.readouterr().out
    assert "no pooler" not in told and "poolers of backbones" not in told
    without_pooler(folder)
    assert launch.main(asked) == 0
    told = capsys.readouterr().out
    assert says(told, f"backbone {folder} has no pooler, ", "a random one; ", "--set pooling=mean ")
    assert says(told, "    poolers of backbones: random, ", "(paper: pretrained)\n")


@pytest.mark.parametrize("asked", [[], ["--dry-run"]])
def test_weights_of_other_names_are_refused_before_any_trial(asked, capsys, tmp_path):
    folder = renamed(pretrained_folder(tmp_path / "ours"), lambda name: f"module.{name}")
    told = refused(capsys, tmp_path, "--task", "rte", "--backbone", str(folder), *asked)
    assert says(told, f"study.launch: backbone {str(folder)!r} ", "needs 23 weights, ", "none of them: ", "`module.`; ")


def test_a_file_is_no_backbone(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").touch()
    told = refused(capsys, tmp_path, "--task", "rte", "--backbone", "README.md", "--dry-run")
    assert says(told, "backbone 'README.md' is a file; ", "allowed: a folder, a hub name, mini-albert")


@pytest.mark.slow
def test_another_content_of_the_folder_is_refused(capsys, tmp_path):
    folder = pretrained_folder(tmp_path / "ours")
    asked = ["--task", "rte", "--backbone", str(folder)]
    resolved = resolve(plan_from(*asked))
    write_plan_of_launch(tmp_path / "mine", resolved)
    with closing(Journal(tmp_path / "mine")) as journal:
        scheduler = Scheduler(resolved, journal, NO_PROVENANCE)
        scheduler.begin_launch(command="", host="", pid=0)
        assert scheduler.next_trial() is not None
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").write_bytes(save({**weights, "head": np.zeros(1)}))
    assert launch.main([*asked, "--out", str(tmp_path), "--name", "mine"]) == 2
    assert "backbone_fingerprint" in capsys.readouterr().err
