import signal
import subprocess
import sys

import pytest
from helpers.places import PATIENCE_SECONDS, ROOT

import study.launch_options
from study import profiles
from study.command_line import Parser

COMMAND = """
import atexit, time
from study.command_line import guarded

def main():
    print("runs", flush=True)
    time.sleep(1000)

atexit.register(lambda: (print("ends", flush=True), time.sleep(1000)))
raise SystemExit(guarded("study.launch", main))
"""


EARLY = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "study.launch_options":
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))

sys.meta_path.insert(0, Interrupting())
runpy.run_module("study.launch", run_name="__main__")
"""


def hear_interrupts():
    """A shell that runs tests in the background lets nothing of them hear Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_while_a_launch_is_imported_ends_it_in_one_line(name):
    command = [sys.executable, "-c", EARLY, name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=hear_interrupts)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "study.launch: interrupted, nothing was begun\n")


def test_a_second_interrupt_ends_a_command_that_is_ending_without_a_traceback():
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
    said = study.launch_options.build_parser().format_help()
    assert max(map(len, said.splitlines())) <= columns - 2
    menu = "|".join(["auto", *profiles.available()])
    assert said.replace("\n", "").replace(" ", "").count(menu) == 2


def test_help_is_broken_behind_bars_and_at_blanks(monkeypatch):
    monkeypatch.setenv("COLUMNS", "42")
    parser = Parser("study.launch", "")
    group = parser.add_argument_group("what to study (by default as the profile)")
    group.add_argument("--data", metavar="mini|mini-shuffled|hub:NAME[@REVISION]")
    said = parser.format_help()
    assert "\nwhat to study (by default as the\n  profile):\n" in said
    assert "\n  --data mini|mini-shuffled|\n    hub:NAME[@REVISION]\n" in said
