"""All commands under one name: `glue-study launch --method palbert` runs `python -m study.launch --method palbert`."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

import search_spaces
from study.plans import profiles
from study.plans.samplers import SAMPLERS
from study.terminal.command_line import Parser, guarded
from study.terminal.processes import CONSOLE
from trainables.configuration.schema import Typed
from trainables.configuration.spelling import unknown_name_error
from trainables.data.tasks import GLUE_TASKS

COMMANDS = {
    "pretrain": ("study.pretrain", "pretrain a backbone, which a study can use"),
    "launch": ("study.launch", "start, continue or extend a study"),
    "try": ("study.try", "train one configuration once in this process, to debug a method"),
    "status": (
        "study.status",
        "show which trials of a study, or of a folder of studies, are done, running, failed or missing",
    ),
    "tables": ("analysis.tables", "regenerate the tables of studies"),
    "compare": ("analysis.compare", "test differences between methods, from the predictions of any program"),
    "explain": ("analysis.explain", "list the trials behind a table cell"),
    "verify": ("analysis.verify", "recompute every number of a study"),
    "report": ("analysis.report", "write one HTML page about a study"),
    "doctor": ("study.doctor", "check this machine, or every node of a cluster"),
    "export": ("study.export", "export a trained model as a folder for transformers"),
    "predict": ("study.predict", "predict labels for a file with a trained model and early exits"),
    "submit": ("study.submit", "write a submission to the GLUE server"),
    "score-test": ("study.score_test", "score a finished study on test labels, and close it to new trials"),
    "time": ("study.time", "measure how long the models take for a text, with intervals"),
    "rebuild": ("study.rebuild", "rewrite all exports of a study: records, tables, report, MLflow"),
    "winners": ("study.winners", "print the best configuration of each arm, as text, TOML or JSON"),
    "drop": ("study.drop", "exclude a trial from searches and medians, with a reason that the table prints"),
    "mirror": ("study.mirror", "copy a study into MLflow, now or after an outage"),
    "check-method": ("study.check_method", "check your own method against every rule"),
}
EPILOG = """`glue-study COMMAND --help` lists the options of a command. To complete names in bash and zsh, run
`eval "$(register-python-argcomplete glue-study)"`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit status."""
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    if arguments and arguments[0] in COMMANDS:
        return int(importlib.import_module(COMMANDS[arguments[0]][0]).main(arguments[1:]))
    return guarded(CONSOLE, lambda: _print_help(arguments))


def build_parser(command: str | None = None) -> Parser[Typed]:
    """Build the parser of all commands. Only the module of `command` is imported, and only its options are added."""
    parser = Parser(Typed, CONSOLE, __doc__ or "", epilog=EPILOG)
    parser.add_argument("--version", action="version", version=importlib.metadata.version("glue-exit-study"))
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=cast("type[Parser[Typed]]", _build_parser))
    for name, (module, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary, module=module if name == command else None)
    return parser


def _build_parser(*, module: str | None, prog: str, **_: object) -> Parser[Any]:
    parser = Parser(Typed, prog, "") if module is None else importlib.import_module(module).main.parser()
    methods = [name for method in search_spaces.list_methods() for name in (method, *search_spaces.variants(method))]
    arms = [f"{method}/{task}" for method in methods for task in GLUE_TASKS]
    parser.complete(
        method=methods,
        task=GLUE_TASKS,
        profile=["auto", *profiles.list_profiles()],
        baseline=methods,
        explain=arms,
        sampler=[*SAMPLERS],
    )
    return parser


def _print_help(arguments: list[str]) -> int:
    if arguments and not arguments[0].startswith("-"):
        raise unknown_name_error("command", arguments[0], COMMANDS)
    build_parser().parse_args(arguments or ["--help"])
    return 0


def _complete() -> None:
    """Print the completions for the shell that requests them, then exit."""
    import argcomplete

    words = os.environ["COMP_LINE"].split()
    argcomplete.autocomplete(build_parser(next((word for word in words[1:] if word in COMMANDS), None)))


if __name__ == "__main__":
    sys.exit(main())
