"""The command that pretrains, with a few steps of a tiny backbone."""

from __future__ import annotations

import subprocess
import sys

from helpers.places import PATIENCE_SECONDS, ROOT

from study import pretrain

WARMED = ("--set", "warmup_steps=1", "--set", "batch_size=8")
SHORT = (*WARMED, "--set", "steps=6", "--set", "steps_per_epoch=2")
SHAPE = ("--set", "max_length=32", "--tracking-uri", "none")
MINI = ("--backbone", "mini-albert", *SHAPE)
SMALL = (*SHORT, *MINI)


def refused(capsys, *arguments: str) -> str:
    """The one line with which the command was refused."""
    assert pretrain.main([*arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed.err
    return printed.err.strip()


def command(*arguments: str, module: str = "study.pretrain") -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def run(*arguments: str, module: str = "study.pretrain") -> subprocess.CompletedProcess[str]:
    words = command(*arguments, module=module)
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_SECONDS)
