"""All commands under one name: pytest tests/study/test_console.py"""

import importlib
import os
import subprocess
import sys

import pytest
from helpers.places import ROOT

from study.console import COMMANDS, build_parser, main


def test_every_command_is_a_module_with_a_parser_of_its_own():
    for module, _ in COMMANDS.values():
        command = importlib.import_module(module)
        assert command.main.parser().prog == f"python -m {module}" and callable(command.main)


def test_every_runnable_study_module_is_a_command():
    files = [path for room in ("study", "analysis") for path in (ROOT / room).glob("*.py")]
    texts = {f"{path.parent.name}.{path.stem}": path.read_text() for path in files}
    commands = {name: text for name, text in texts.items() if "\nmain = Command(" in text}
    assert commands.keys() == {module for module, _ in COMMANDS.values()}
    run = '\nif __name__ == "__main__":\n    sys.exit(main())\n'  # without it, `python -m` would do nothing
    assert [name for name, text in commands.items() if not text.endswith(run)] == []


def test_console_passes_options_and_exit_status(tmp_path, capsys):
    assert main(["status", str(tmp_path / "gone")]) == 2
    assert capsys.readouterr().err.startswith(f"study.status: there is no folder {tmp_path / 'gone'}; ")


def test_a_command_that_is_none_is_answered_with_the_nearest(capsys):
    assert main(["lanch"]) == 2
    assert capsys.readouterr().err.endswith("; did you mean launch?\n")


@pytest.mark.parametrize("argument", ["--help", None])
def test_help_names_every_command(capsys, argument):
    with pytest.raises(SystemExit, match="0"):
        main([argument] if argument else [])
    printed = capsys.readouterr().out
    assert all(f"    {name}" in printed for name in COMMANDS)


def test_the_version_is_that_of_the_distribution(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.strip() == importlib.metadata.version("glue-exit-study")


def completions(line: str) -> set[str]:
    """What a shell offers after a line, asked as bash asks."""
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'glue-study'; from study.console import main; main()"]
    answer = subprocess.run(
        ["bash", "-c", 'exec "$@" 8>&1 9>/dev/null', "_", *command],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return {word.strip() for word in answer.stdout.split("\n") if word.strip()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("glue-study la", {"launch"}),
        ("glue-study launch --meth", {"--method"}),
        ("glue-study launch --early", {"--early-stopping"}),  # not in the short help
        ("glue-study launch --sampler cm", {"cmaes"}),
        ("glue-study launch --method palbert:e", {"palbert:expectation"}),
        ("glue-study launch --method albert,palbert:e", {"albert,palbert:expectation"}),
        ("glue-study launch --task st", {"stsb"}),
        ("glue-study launch --task rte,cola,m", {"rte,cola,mnli", "rte,cola,mrpc"}),
        ("glue-study launch --baseline albert,pal", set()),
        ("glue-study launch --dry-run --explain pabee/st", {"pabee/stsb"}),
        ("glue-study launch --profile ab", {"ablation"}),
    ],
)
def test_a_shell_completes_commands_options_and_values(line, offered):
    assert completions(line) == offered


def test_the_parser_of_all_commands_imports_none_of_them():
    code = "import sys; from study.console import build_parser; build_parser(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout.split()
    assert not {"ray", "torch", "mlflow", "study.launch", "study.status"} & {*modules}
    assert "--samples" not in build_parser().format_help()
