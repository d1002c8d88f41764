import argparse
import importlib
import os
import re
import signal
import subprocess
import sys
from typing import Annotated, Literal

import pytest
from helpers.places import PATIENCE_SECONDS, ROOT

import study.launch
from study import console
from study.plans import profiles
from study.plans.names_elsewhere import SAMPLED
from study.terminal.command_line import Parser, argument, option
from trainables.configuration import AtLeastOne
from trainables.configuration.schema import Typed

COMMAND = """
import atexit, time
from study.terminal.command_line import guarded

def main():
    print("runs", flush=True)
    time.sleep(1000)

atexit.register(lambda: (print("ends", flush=True), time.sleep(1000)))
raise SystemExit(guarded("study.launch", main))
"""


INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), getattr(signal, os.environ["INTERRUPTED_BY"]))

sys.meta_path.insert(0, Interrupting())
"""  # Python imports it as sitecustomize, before all else

COMMANDS = [module for module, _ in console.COMMANDS.values()]


def hear_interrupts():
    """A shell that runs tests in the background lets nothing of them hear Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(command, folder, *, at, by):
    """A command that gets the signal `by` as it begins to import the module `at`."""
    (folder / "sitecustomize.py").write_text(INTERRUPTING)
    environment = {**os.environ, "PYTHONPATH": str(folder), "INTERRUPTED_AT": at, "INTERRUPTED_BY": by}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, preexec_fn=hear_interrupts
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_interrupt_before_command_import_is_one_line(command, tmp_path):
    done = interrupted([sys.executable, "-m", command, "runs/NAME"], tmp_path, at=command, by="SIGINT")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{command}: interrupted; nothing was started\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("study.launch", "SIGINT"),
        ("study.launch", "SIGTERM"),
        *(pytest.param(command, "SIGINT", marks=pytest.mark.long) for command in COMMANDS if command != "study.launch"),
        *(pytest.param("study.launch", name, marks=pytest.mark.long) for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU")),
    ],
)
def test_interrupt_during_command_import_is_one_line(command, name, tmp_path):
    done = interrupted([sys.executable, "-m", command], tmp_path, at="study.terminal.command_line", by=name)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{command}: interrupted; nothing was started\n")


def test_interrupt_before_console_import_is_one_line(tmp_path):
    script = tmp_path / "glue-study"
    script.write_text("import sys\nsys.path.insert(0, '.')\nfrom study.console import main\nsys.exit(main())\n")
    done = interrupted([sys.executable, str(script), "status", "runs"], tmp_path, at="study.console", by="SIGINT")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "glue-study: interrupted; nothing was started\n")


def test_interrupt_outside_commands_is_untouched(tmp_path):
    program = [sys.executable, "-c", "import study\nimport study.facts"]
    assert interrupted(program, tmp_path, at="study.facts", by="SIGINT").stderr.endswith("KeyboardInterrupt\n")


def test_second_interrupt_has_no_traceback():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, cwd=ROOT, preexec_fn=hear_interrupts, **pipes) as process:
        for line in ("runs\n", "ends\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_SECONDS) == 1
        assert process.stderr.read() == "study.launch: interrupted\n"


@pytest.mark.parametrize("columns", [60, 70, 100])
def test_help_fits_the_terminal_and_says_every_choice(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = study.launch.main.parser().format_help()
    assert max(map(len, said.splitlines())) <= columns - 2
    menu = "|".join(["auto", *profiles.list_profiles()])
    assert said.replace("\n", "").replace(" ", "").count(menu) == 2


def test_help_shows_common_options_and_all_on_demand(capsys):
    shown = {}
    for how in ([], ["all"]):
        with pytest.raises(SystemExit):
            study.launch.main.parser().parse_args(["--help", *how])
        shown[tuple(how)] = re.findall(r"^  (?:-h.*)?(--[a-z-]+)", capsys.readouterr().out, re.M)
    assert 10 < len(shown[()]) <= 15
    assert set(shown[()]) < set(shown["all",]) and len(shown["all",]) > 35


@pytest.mark.parametrize(
    ("parser", "arguments", "meant"),
    [
        ("launch", "--cpu", "CUDA_VISIBLE_DEVICES='' before the command"),
        ("pretrain", "mlm --corpus mini --to x --no_cuda", "CUDA_VISIBLE_DEVICES='' before the command"),
        ("launch", "--learning_rate 1e-4", "--set learning_rate=1e-4"),
        ("launch", "--lr=1e-4", "--set learning_rate=1e-4"),
        ("launch", "--num_train_epochs 3", "--epochs 3"),
        ("launch", "--per_gpu_train_batch_size 16", "--set batch_size=16"),
        ("launch", "--warmup-ratio", "--set warmup_ratio=VALUE"),
        ("launch", "--beta 0.5", "--set beta=0.5"),
        ("launch", "--lambda-layer-arch linear_cat", "--set lambda_layer_arch=linear_cat"),
        ("launch", "--regression_threshold 0.1", "--set regression_threshold=0.1"),
        ("launch", "--train_batch_size 16", "--set batch_size=16"),
        ("pretrain", "mlm --corpus mini --to x --optimizer adamw", "--set optimizer=adamw"),
        ("launch", "--type=x --unheard 1 --lr 1e-5", "--set learning_rate=1e-5"),
    ],
)
def test_option_of_another_program_is_answered_with_ours(parser, arguments, meant):
    module = importlib.import_module(f"study.{parser}")
    with pytest.raises(ValueError, match=rf"; here, --\S+ is {re.escape(meant)}; see --help"):
        module.main.parser().options(arguments.split())


@pytest.mark.parametrize("command", ["launch", "try"])
def test_patience_of_palbert_and_of_pabee_are_told_apart(command):
    module = importlib.import_module(f"study.{command}")
    with pytest.raises(ValueError, match="unrecognized arguments: --patience 3,4; here, ") as error:
        module.main.parser().options([*(["pabee", "--task", "rte"] * (command == "try")), "--patience", "3,4"])
    assert "--set stop_after=5;" in str(error.value) and "tables/exits.json" in str(error.value)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("launch", "--fp16"),
        ("launch", "--methdo palbert"),
        ("predict", "runs/x input.tsv --fp16"),
        ("predict", "runs/x input.tsv --learning_rate 3"),
    ],
)
def test_page_for_other_programs_is_named_where_it_can_help(command, arguments, snapshot):
    module = importlib.import_module(f"study.{command}")
    with pytest.raises(ValueError) as raised:
        module.main.parser().options(arguments.split())
    assert str(raised.value) == snapshot


def test_the_hint_for_a_sampled_exit_works_as_typed(capsys, snapshot):
    options = re.findall(r"(--method \S+)(?=,)|((?: ?--set \S+){3})", SAMPLED)
    for words in ("--method pondernet", f"--method palbert {options[1][1].strip()}"):
        assert words.removeprefix("--method palbert ") in SAMPLED
        assert study.launch.main([*words.split(), "--profile", "mini", "--task", "rte", "--dry-run"]) == 0
    assert study.launch.main(["--profile", "mini", "--task", "rte", "--set", "exit_criteria=sample"]) == 2
    refusal = capsys.readouterr().err.strip()
    assert refusal.endswith(SAMPLED) and refusal == snapshot


def test_help_names_the_page_that_counts_lambda_layers():
    assert "docs/coming_from.md" in study.launch.main.parser().epilog
    assert "bare output layer, which is 0 here" in (ROOT / "docs" / "coming_from.md").read_text()


def test_launch_help_is_one_line_per_option(monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "80")
    long = {"--continue", "--method", "--task", "--include", "--data", "--backbone", "--sampler", "--select-by"}
    long |= {"--early-stopping", "--set", "--storage", "--start-from", "--name"}
    parser = study.launch.main.parser()
    lines = {action.option_strings[-1]: parser._get_formatter()._expand_help(action) for action in parser._actions[1:]}
    assert (parser.description, lines, parser.epilog) == snapshot
    assert {flag for flag, text in lines.items() if len(text) > 54} <= long


def test_help_is_broken_behind_bars_and_at_blanks(monkeypatch):
    monkeypatch.setenv("COLUMNS", "42")
    parser = Parser(Typed, "study.launch", "")
    group = parser.add_argument_group("what to study (by default as the profile)")
    group.add_argument("--data", metavar="mini|mini-shuffled|hub:NAME[@REVISION]")
    said = parser.format_help()
    assert "\nwhat to study (by default as the\n  profile):\n" in said
    assert "\n  --data mini|mini-shuffled|\n    hub:NAME[@REVISION]\n" in said


class Chosen(Typed, frozen=True, kw_only=True):
    folder: Annotated[str, argument("FOLDER")]
    seeds: Annotated[AtLeastOne | None, option("how many", "K")] = None
    split: Annotated[Literal["dev", "test"], option("which")] = "dev"
    names: Annotated[list[str], option("which", flag="--name")] = []
    json: Annotated[bool, option("as JSON")] = False


def test_options_are_read_as_their_fields_say():
    read = Parser(Chosen, "study.choose", "").options(["runs", "--seeds", "3", "--name", "a", "--name", "b", "--json"])
    assert read == Chosen(folder="runs", seeds=3, names=["a", "b"], json=True)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_option_of_a_number_takes_no_nan_or_infinity(text):
    with pytest.raises(ValueError, match=f"--max-minutes is '{text}'; allowed: a number"):
        study.launch.main.parser().options([f"--max-minutes={text}"])


def test_option_repeated_with_the_same_value_is_allowed():
    read = Parser(Chosen, "study.choose", "").options(["runs", "--seeds", "3", "--seeds", "3", "--json", "--json"])
    assert read == Chosen(folder="runs", seeds=3, json=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_drops_the_first_of_two_values(command):
    parser = importlib.import_module(command).main.parser()
    for action in parser._actions:
        if action.option_strings and action.nargs is None:
            flag, values = action.option_strings[-1], ("1", "2")
            if not isinstance(action, argparse._AppendAction):
                with pytest.raises(ValueError, match="given twice, as 1 and as 2;"):
                    parser.options([f"{flag}={value}" for value in values])


def test_help_lists_the_menu_of_a_literal():
    said = Parser(Chosen, "study.choose", "").format_help()
    assert "--split dev|test" in said and "--seeds K" in said


@pytest.mark.parametrize(
    "words",
    [
        "runs --seeds 0",
        "runs --seeds x",
        "runs --split train",
        "runs --sed 1",
        "",
        "runs --seeds 1 --seeds 2",
        "runs --split=dev --split test",
    ],
)
def test_wrong_option_is_answered_with_what_is_allowed(words, snapshot):
    with pytest.raises(ValueError) as raised:
        Parser(Chosen, "study.choose", "").options(words.split())
    assert str(raised.value) == snapshot
