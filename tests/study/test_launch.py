"""The command line, without Ray: pytest tests/study/test_launch.py"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.launched_studies import launched_study
from helpers.messages import says, shown
from helpers.places import GLUE, ROOT
from helpers.plan_files import plan_from, with_lines, write_plan_of_launch
from msgspec.structs import replace

import search_spaces.albert
from study import launch
from study.cluster.resources import count_local_gpus
from study.facts.events import read_events
from study.facts.plan_file import find_plan, require_plan
from study.launch import run_study
from study.launching import planned_study
from study.launching.options import LaunchOptions
from study.launching.planned_study import resolve_in
from study.plans.resolution import resolve, resolve_configuration
from study.plans.resolved_plan import ResolvedPlan
from trainables.encoders import backbone_names
from trainables.files.atomic_files import write_json
from trainables.files.sources import HubUnreachable


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "study.launch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def options_in(out: Path, name: str) -> LaunchOptions:
    return launch.main.parser().options(["--out", str(out), "--name", name])


def refused(capsys, tmp_path: Path, *arguments: str) -> str:
    """The one line with which the launch was refused; nothing may have been created."""
    out = tmp_path / "runs"
    try:
        status = launch.main([*arguments, "--out", str(out)])
    except SystemExit as stop:
        status = stop.code
    printed = capsys.readouterr()
    assert status == 2 and printed.out == "" and not out.exists()
    assert printed.err.count("\n") == 1, printed.err
    return printed.err.strip().replace(str(tmp_path), "HERE")


@pytest.mark.parametrize(
    "arguments",
    [
        "--method bert",
        "--task snli",
        "--task ,",
        "--profile huge",
        "--sampler cma",
        "--early-stopping median",
        "--early-stopping asha:",
        "--early-stopping asha:grace=2,grace=3",
        "--early-stopping asha:factor=1",
        "--early-stopping asha:grac=2",
        "--selection test",
        "--samples -1",
        "--seeds -1",
        "--epochs 0",
        "--samples many",
        "--task qqp --data /nowhere",
        "--backbone /nowhere",
        "--backbone nobody/nothing",
        "--backbone albert-bsae --dry-run",
        "--backbone albert-base",
        "--set depth=3",
        "--set depth",
        "--start-from rte",
        "--start-from rte=snli",
        "--task rte --start-from rte=mnli",
        "--method albert:9-layers",
        "--baseline bert",
        "--method albert,palbert --baseline PABEE",
        "--explain palbert/rte",
        "--dry-run --explain rte",
        "--set lambda_layer_arch=conv",
        "--backbone ",
        "--name a/b",
        "--name ..",
        "--name what?x",
        "--name 100%25",
        "--name a\nb",
        "--max-idle-hours 0",
        "--address ray://anna:SECRET@host:1",
        "--gpus-per-trial -1",
        "--gpus-per-trial some",
        "--cpus-per-trial 0",
        "--cpus-per-trial 4096",
        "--max-gpu-hours nan",
        pytest.param(
            "--max-gpu-hours 2", marks=pytest.mark.skipif(count_local_gpus() > 0, reason="this machine has a GPU")
        ),
        "--max-gpu-hours 2 --gpus-per-trial 0 --address auto --dry-run",
        "--tracking-uri foo://x",
        "--storage /proc/nowhere",
        "--address 127.0.0.1:1",
    ],
)
def test_bad_input_is_answered_in_one_line_with_what_is_allowed(capsys, tmp_path, arguments, snapshot):
    assert re.sub(r"(?<=machine has )\d+", "N", refused(capsys, tmp_path, *arguments.split(" "))) == snapshot


def test_another_protocol_under_the_same_name_is_refused_field_by_field(capsys, tmp_path, snapshot):
    plan = plan_from("--task", "rte", "--epochs", "2")
    resolved, folder, *_ = planned_study.prepare(plan, options_in(tmp_path, "s"))
    launched_study(folder, resolved)
    assert launch.main(["--task", "rte", "--epochs", "3", "--name", "s", "--out", str(tmp_path)]) == 2
    assert shown(capsys.readouterr().err, tmp_path) == snapshot
    assert require_plan(folder).plan == resolved


@pytest.mark.parametrize("edited", [{"command": "other"}, {"plan": {}}, {"name": "x"}, {"digest": "0"}])
def test_a_plan_edited_by_hand_is_refused(capsys, tmp_path, edited):
    plan = plan_from("--task", "rte")
    resolved, folder, *_ = planned_study.prepare(plan, options_in(tmp_path, "s"))
    write_plan_of_launch(folder, resolved)
    content = json.loads((folder / "plan.json").read_text())
    write_json(folder / "plan.json", content | edited)
    assert launch.main(["--task", "rte", "--name", "s", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert says(error, f"{folder / 'plan.json'} was edited: ", "digest", "; delete the file, ", "repeat the launch")
    assert error.count("\n") == 1


def test_damaged_plan_names_the_launch_that_writes_it_again(capsys, tmp_path):
    folder = launched_study(tmp_path / "s")
    command = require_plan(folder).command
    (folder / "plan.json").write_text('{"plan": ')
    assert launch.main(["--name", "s", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert says(error, "; delete the file, ", f": {command}\n") and error.count("\n") == 1


def test_a_plan_that_another_launch_made_meanwhile_is_not_overwritten(tmp_path):
    options = launch.main.parser().options(["--task", "rte", "--name", "s", "--out", str(tmp_path)])
    made = planned_study.resolve_study(options)  # as a launch that is stopped in its import
    other = resolve(plan_from("--task", "rte", "--epochs", "2"))
    launched_study(made.folder, other)
    with pytest.raises(ValueError, match="epochs 2 ->"):
        run_study(made, options)
    assert require_plan(made.folder).plan == other


def test_a_lost_plan_is_rebuilt_from_the_journal(tmp_path):
    launched = launched_study(tmp_path / "s")
    before = require_plan(launched)
    (launched / "plan.json").unlink()
    rebuilt = find_plan(launched)
    assert rebuilt.plan == before.plan and rebuilt.protocol_hash == before.protocol_hash
    with pytest.raises(ValueError, match="does not match this command"):
        resolve_in(launched, plan_from("--method", "albert", "--task", "rte", "--set", "learning_rate=0.5"), rebuilt)
    resolved = resolve_in(launched, before.plan.request, rebuilt)
    write_plan_of_launch(launched, resolved)
    assert require_plan(launched).plan == before.plan


def test_a_study_is_not_made_smaller_and_says_so(tmp_path, capsys):
    resolved, folder, *_ = planned_study.prepare(
        plan_from("--task", "rte", "--samples", "4"), options_in(tmp_path, "s")
    )
    write_plan_of_launch(folder, resolved)
    fewer = ["--task", "rte", "--samples", "1", "--name", "s", "--out", str(tmp_path), "--dry-run"]
    assert launch.main(fewer) == 0
    assert says(capsys.readouterr().out, "--samples 1 is ignored, ", "already has 4 samples\n")
    assert launch.main([*fewer[:2], *fewer[4:]]) == 0
    assert "already" not in capsys.readouterr().out


def test_rays_own_variable_is_the_default_of_the_address(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert launch.main(["--profile", "mini", "--task", "rte", "--out", str(tmp_path / "runs")]) == 2
    assert "RAY_ADDRESS 127.0.0.1:1: no Ray cluster" in capsys.readouterr().err
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert launch.main.parser().options([]).address is None


def test_dry_run_says_what_would_run_and_creates_nothing(tmp_path):
    done = run("--method", "all", "--task", "rte,cola", "--dry-run", "--out", str(tmp_path / "runs"))
    assert done.returncode == 0 and says(done.stdout, "12 arms, ", "48 search ", "60 confirm ")
    assert list(tmp_path.iterdir()) == []


def test_dry_run_as_json_holds_the_plan(tmp_path):
    done = run("--sampler", "grid", "--profile", "mini", "--dry-run", "--json", "--out", str(tmp_path))
    plan = json.loads(done.stdout)["plan"]
    assert plan["asked"]["methods"] == ["palbert"] and plan["arms"][0]["seeds"] == [42, 43, 44, 45, 46]
    assert plan["protocol"]["sampler"] == "grid"


def test_a_setting_is_fixed_and_no_longer_tuned():
    plan = plan_from("--task", "rte", "--set", "beta=0.5")
    (arm,) = resolve(plan).arms
    assert arm.fixed["beta"] == 0.5 and "beta" not in arm.space


def test_paper_grid_has_12_and_36_points():
    plan = plan_from("--method", "albert,pabee,pondernet,palbert", "--task", "rte", "--profile", "paper")
    samples = {
        method: len(resolve_configuration(plan, method, "rte").first)
        for method in ("albert", "pabee", "pondernet", "palbert")
    }
    assert samples == {"albert": 12, "pabee": 12, "pondernet": 12, "palbert": 36}


def test_explaining_an_arm_says_of_each_value_where_it_comes_from(tmp_path, snapshot):
    arguments = ["--task", "rte", "--set", "beta=0.5", "--epochs", "3", "--explain", "palbert/rte"]
    assert run(*arguments, "--dry-run", "--out", str(tmp_path)).stdout == snapshot


def test_explained_value_names_option_or_file(tmp_path, capsys):
    file = tmp_path / "plan.toml"
    file.write_text('tasks = ["rte"]\n[set]\nepochs = 7\nbatch_size = 8\n')
    explained = ["--plan", str(file), "--dry-run", "--explain", "palbert/rte"]
    by_hand = ["attention=nystrom", "num_landmarks=16", "batch_size=4"]
    assert launch.main([*explained, *(word for setting in by_hand for word in ("--set", setting))]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {
        f"epochs 7 --plan {file}: epochs",
        "batch_size 4 --set batch_size",
        'attention "nystrom" --set attention',
        "conv_kernel_size 33 --set attention",
        "num_landmarks 16 --set num_landmarks",
    } <= {*lines}


@pytest.mark.skipif(not GLUE.exists(), reason="no real GLUE files")
def test_a_real_glue_folder_is_planned_for_the_tasks_it_has(tmp_path, capsys):
    real = ["--task", "rte", "--data", str(GLUE), "--dry-run", "--out", str(tmp_path)]
    assert launch.main([*real, "--method", "palbert,pabee"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert says(lines[1], "mini-albert", "random weights; ", "--backbone")
    assert any(line.endswith("tested against the baseline palbert") for line in lines)
    assert launch.main(real) == 0
    assert "palbert/rte" in capsys.readouterr().out
    assert launch.main(["--task", "stsb", "--data", str(GLUE), "--out", str(tmp_path)]) == 2
    assert "STS-B/train.tsv" in capsys.readouterr().err


@pytest.mark.parametrize("setting", [["--set", "pabee:patience=6"], ["--search", "pabee:patience=6,7,8"]])
def test_dry_run_names_arms_that_cannot_exit_early(tmp_path, capsys, setting):
    asked = ["--method", "albert,pabee", "--task", "rte", "--out", str(tmp_path), "--dry-run"]
    note = ["pabee/rte can exit early: ", "with patience 6, ", "layer 7, ", "6 layers; ", "--set pabee:patience=3"]
    assert launch.main([*asked, *setting]) == 0
    assert any(says(line, *note) for line in capsys.readouterr().out.splitlines())
    assert launch.main([*asked, "--set", "pabee:patience=4"]) == 0
    assert "can exit early" not in capsys.readouterr().out


def test_a_study_named_as_a_task_is_told_from_the_task(tmp_path, capsys):
    asked = ["--profile", "mini", "--method", "palbert", "--out", str(tmp_path), "--dry-run", "--name", "rte"]
    assert launch.main(asked) == 0
    assert says(capsys.readouterr().out.splitlines()[2], "--name rte only names ", "--task rte ")
    assert launch.main([*asked, "--task", "rte"]) == 0
    assert "--name rte" not in capsys.readouterr().out


def test_the_name_of_a_study_knows_a_backbone_by_its_content(tmp_path, monkeypatch):
    for name, vocabulary in (("one", "[PAD]"), ("other", "[PAD]"), ("third", "[MASK]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 2}')
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
        (tmp_path / name / "vocab.txt").write_text(vocabulary)
    monkeypatch.chdir(tmp_path)

    def name_of(*arguments: str) -> str:
        return planned_study.build_default_name(plan_from("--profile", "mini", *arguments))

    names = [name_of("--backbone", backbone) for backbone in ("./one", str(tmp_path / "one"), "./other", "./third")]
    assert names[0] == names[1] == names[2] != names[3]
    tokenizers = [
        name_of(*with_lines(tmp_path, f'tokenizer = "{tokenizer}"')) for tokenizer in ("./one", "./other", "./third")
    ]
    assert tokenizers[0] == tokenizers[1] and len({*tokenizers, name_of()}) == 3


def hub_names(monkeypatch, commit: str) -> None:
    """The hub answers that every name is at this commit, and has whatever is looked for."""
    monkeypatch.setattr("study.plans.resolution.backbone_fingerprint", lambda name, kind: f"{name}@{commit}")
    monkeypatch.setattr("study.plans.arm_checks.check_backbone", lambda backbone, tokenizer: None)
    monkeypatch.setattr("study.plans.resolution.has_new_pooler", lambda backbone: False)
    monkeypatch.setattr("study.plans.resolution.is_trained_on_mean", lambda backbone: False)
    monkeypatch.setattr("study.plans.arm_checks.check_depth", lambda backbone, depth, of: None)
    monkeypatch.setattr("study.plans.arm_checks.check_attention", lambda backbone, config: None)


def prepared(tmp_path: Path) -> ResolvedPlan:
    """The plan of a launch that uses the hub's ALBERT, written as a launch does."""
    plan = plan_from("--profile", "mini", "--method", "albert", "--task", "rte", "--backbone", "albert/albert-base-v2")
    resolved, folder, *_ = planned_study.prepare(plan, options_in(tmp_path, "s"))
    write_plan_of_launch(folder, resolved)
    return resolved


def test_study_keeps_first_commit_of_hub(tmp_path, monkeypatch):
    hub_names(monkeypatch, "0123")
    first = prepared(tmp_path)
    hub_names(monkeypatch, "4567")
    assert prepared(tmp_path) == first
    assert [arm.pinned_backbone for arm in first.arms] == ["albert/albert-base-v2@0123"]
    assert len(list(tmp_path.iterdir())) == 1, "one study, in one folder"


def test_a_study_that_has_its_commits_needs_no_hub(tmp_path, monkeypatch):
    hub_names(monkeypatch, "0123")
    first = prepared(tmp_path)

    def unreachable(name: str, kind: str) -> str:
        raise HubUnreachable("the hub cannot be reached")

    monkeypatch.setattr("study.plans.resolution.backbone_fingerprint", unreachable)
    assert prepared(tmp_path) == first
    with pytest.raises(HubUnreachable):
        prepared(tmp_path / "another")


@pytest.mark.parametrize("other", ["mini-bert", "another version"])
def test_a_search_space_of_another_backbone_is_another_study(tmp_path, monkeypatch, other):
    plan = plan_from("--profile", "mini", "--method", "albert", "--task", "rte")
    resolved, folder, *_ = planned_study.prepare(plan, options_in(tmp_path, "s"))
    launched_study(folder, resolved)
    if other == "mini-bert":
        monkeypatch.setitem(search_spaces.albert.BACKBONE, "mini", "mini-bert")
    else:
        monkeypatch.setitem(backbone_names.UNTRAINED, "mini-albert", "0123456789abcdef")
    with pytest.raises(ValueError, match=r'backbone_fingerprint "mini-albert@.*" -> "mini-.*@'):
        planned_study.prepare(plan, options_in(tmp_path, "s"))


def test_a_reader_that_goes_away_ends_a_command_without_a_word(tmp_path):
    command = [sys.executable, "-m", "study.launch", "--dry-run", "--json", "--profile", "mini", "--out", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 141
    process.stderr.close()


def test_a_launch_that_a_worker_makes_end_has_its_launch_ended(tmp_path, monkeypatch):
    folder = launched_study(tmp_path / "s")
    asked = require_plan(folder).plan.request
    more = replace(asked, seeds=asked.seeds + 1)

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("not what the plan says")

    monkeypatch.setattr("study.launch.Launch.drive", refuse)
    options = launch.main.parser().options(["--name", "s", "--out", str(tmp_path), "--tracking-uri", "none"])
    with pytest.raises(ValueError, match="not what the plan says"):
        run_study(planned_study.prepare(more, options), options)
    assert read_events(folder)[-1].status == "interrupted"


def test_launch_names_the_place_that_replaces_an_unusable_cache(tmp_path, monkeypatch, capsys):
    (file := tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("study.launch.Launch.run", lambda self: "")  # runs no trial
    launch.main(["--task", "rte", "--profile", "mini", "--out", str(tmp_path / "runs"), "--tracking-uri", "none"])
    place = tmp_path / ".cache" / "glue-exit-study"
    assert says(capsys.readouterr().err, f"{file}/glue-exit-study is not writable; ", f" in {place}\n")


@pytest.mark.parametrize("form", [["--toml"], ["--explain", "palbert/rte"]])
def test_departures_with_an_output_that_lacks_them_are_refused(capsys, form):
    assert launch.main(["--task", "rte", "--departures", *form, "--dry-run"]) == 2
    assert says(capsys.readouterr().err, "--departures lists ", f"{form[0]} does not print; ", "leave out one")


def test_search_only_without_a_search_is_refused(capsys):
    assert launch.main(["--task", "rte", "--search-only", "beta", "--samples", "0", "--dry-run"]) == 2
    assert says(capsys.readouterr().err, "--search-only beta ", "--samples 0 searches nothing; ", "leave out one")


def test_seeds_that_searches_may_have_are_refused(capsys):
    assert launch.main(["--task", "rte", "--seeds", "959", "--dry-run"]) == 2
    assert says(capsys.readouterr().err, "--seeds is 959; ", "allowed: at most 958\n")


def test_dry_run_with_register_names_the_registration(tmp_path, capsys):
    command = ["--task", "rte", "--register", "--tracking-uri", f"sqlite:///{tmp_path}/a.db", "--dry-run"]
    assert launch.main([*command, "--out", str(tmp_path / "runs")]) == 0
    printed = capsys.readouterr().out
    assert "the launch registers this plan in MLflow\n" in printed and "add --register" not in printed
