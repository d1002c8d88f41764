"""Declare the options of a command, print its help, and report an error as one line on standard error.

All commands share this code. A command's options are the fields of one struct. Each field has a type, and it may have
a default. `option` or `argument` gives the help text. The parser is built from these fields:

    class Options(Typed, frozen=True, kw_only=True):
        study: Annotated[str, argument("runs/NAME", "the study's folder")]
        seeds: Annotated[AtLeastOne | None, option("confirm trials per arm", "K")] = None
        json: Annotated[bool, option("print the answer as JSON")] = False

    main = Command("study.status", Options, "Show the progress.", run)  # run(options) returns the exit status
"""

from __future__ import annotations

import argparse
import math
import os
import re
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Generic, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from study.terminal.processes import (
    CONSOLE,
    EXTRA_MODULES,
    PACKAGES,
    STOP_SIGNALS,
    check_not_shadowed,
    describe_missing,
    is_installed,
)
from study.terminal.text import masked, print_lines, wrap_line
from trainables.configuration.schema import Typed, Value, from_plain, read_value
from trainables.configuration.spelling import suggest_nearest
from trainables.files.atomic_files import name_full_disk

T = TypeVar("T", bound=Typed)
# Takes an option that the command lacks, its value and the flags of the command; returns `; here, ...` or "".
Suggest = Callable[[str, str, Sequence[str]], str]
V = TypeVar("V")
SEVERAL = ("--method", "--task")  # these options take a,b,c
HELP = "list the common options; with all, list every option"


class _Help(argparse.HelpFormatter):
    """A help formatter that also wraps group titles and lists of choices; argparse does not wrap them."""

    def format_help(self) -> str:
        lines = super().format_help().split("\n")
        return "\n".join(line if len(line) <= self._width else _wrap(line, self._width) for line in lines)


def _wrap(line: str, width: int) -> str:
    """Wrap a line at spaces, and after the bars of a list of choices such as `a|b|c`."""
    return re.sub("\1 ?", "", wrap_line(line.replace("|", "|\1 "), width))


@dataclass(frozen=True)
class Option:
    """The declaration of an option or a positional argument."""

    text: str  # shown by --help
    metavar: str | None
    flag: str | None = None  # None: `--` and the name of the field
    is_argument: bool = False  # positional, without a flag


def option(text: str = "", metavar: str | None = None, *, flag: str | None = None) -> Option:
    """Declare a field as an option.

    A `bool` field becomes a switch. A list field collects the values of a repeated option. A `Literal` field needs no
    metavar.
    """
    return Option(text, metavar, flag)


def argument(metavar: str, text: str = "") -> Option:
    """Declare a field as a positional argument. If the field is a list, the argument takes one or more values."""
    return Option(text, metavar, is_argument=True)


class Parser(argparse.ArgumentParser, Generic[T]):
    """An argparse parser for one command, made from the struct of its options.

    A struct with many options has two class variables. `groups` maps the first field of each option group to the
    group's title in --help. `common` lists the fields that the short help shows.
    """

    def __init__(
        self,
        kind: type[T],
        command: str,
        description: str,
        *,
        epilog: str | None = None,
        suggest: Suggest | None = None,
    ) -> None:
        """Build the parser. `command` is a program's name, or a module's name such as `study.launch`."""
        prog = f"python -m {command}" if "." in command else command
        if Path(sys.argv[0]).stem == CONSOLE:
            prog = f"{CONSOLE} {command.partition('.')[2]}" if "." in command else command
        self._suggest = suggest
        self._kind, self._common = kind, getattr(kind, "common", ())
        self.given: dict[str, object] = {}  # field -> value of each option with one value, in the current command line
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=_Help,
            add_help=not self._common,
        )
        if self._common:
            self.add_argument(
                "-h", "--help", action=_ShowHelp, nargs="?", default=argparse.SUPPRESS, metavar="all", help=HELP
            )
        titles: dict[str, str] = getattr(kind, "groups", {})
        group: argparse._ActionsContainer = self
        for field in fields(kind):
            if field.name in titles:
                group = self.add_argument_group(titles[field.name])
            _add(group, field)

    def _suggest_option(self, unknown: Sequence[str], flags: Sequence[str]) -> str:
        """Suggest an option of this command for the unknown option `unknown[0]`."""
        flag, _, value = unknown[0].partition("=")
        if flag.lstrip("-").replace("-", "_") in ("cpu", "no_cuda", "use_cpu"):
            return f"; here, {flag} is CUDA_VISIBLE_DEVICES='' before the command"
        value = value or next((text for text in unknown[1:2] if not text.startswith("--")), "VALUE")
        return (self._suggest(flag, value, flags) if self._suggest else "") or suggest_nearest(flag, flags)

    def format_common_help(self) -> str:
        """Format the short help, which lists only the common options."""
        formatter = self._get_formatter()
        formatter.add_usage("%(prog)s [OPTION ...]", [], [])
        formatter.add_text(self.description)
        formatter.start_section("common options; --help all shows every option")
        actions = {action.dest: action for action in self._actions}
        formatter.add_arguments([actions[name] for name in self._common])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Raise a ValueError with argparse's error message, instead of exiting as argparse does."""
        raise ValueError(f"{message}; see --help")

    def complete(self, **values: Sequence[str]) -> None:
        """Set the values that shell completion offers. Each keyword is the name of an option without `--`."""
        for action in self._actions:
            for name in {*values} & {flag.removeprefix("--") for flag in action.option_strings}:
                action.completer = partial(_complete_word, values[name])  # type: ignore[attr-defined]  # argcomplete asks for it

    def options(self, arguments: Sequence[str] | None) -> T:
        """Parse a command line.

        Raises:
            ValueError: if an option is unknown, missing, invalid, or given twice with different values.
        """
        self.given = {}
        known, unknown = self.parse_known_args(arguments)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            places = [place for place, text in enumerate(unknown) if re.match("--?[a-zA-Z]", text)]
            suggestions = [self._suggest_option(unknown[place:], flags) for place in places]
            if not any(suggestions) and self._suggest:
                suggestions.append("; docs/coming_from.md translates options and values of other programs")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(suggestions)}")
        values = vars(known)
        for action in self._actions:
            value = values.get(action.dest)
            if "" in (value if isinstance(value, list) else [value]):
                name = next((flag for flag in action.option_strings if flag.startswith("--")), action.metavar)
                raise ValueError(
                    f"{name} is empty; give some text{', or leave the option out' * (not action.required)}"
                )
        try:
            return from_plain(self._kind, values, where="--")
        except ValueError as error:
            field, _, fault = str(error).removeprefix("--: ").removesuffix(" or null").partition(" ")
            if fault.endswith("a whole number") and "," in str(values[field]):
                meaning = next(action.help for action in self._actions if action.dest == field)
                fault += f", not a list; the option means: {meaning}"
            raise ValueError(f"--{field.replace('_', '-')} {fault}") from None


@dataclass(frozen=True)
class Command(Generic[T]):
    """A command-line program. To run it, call the object; the call returns the exit status."""

    name: str  # the module that `python -m` runs
    kind: type[T]  # the struct of its options
    description: str
    run: Callable[[T], int]  # returns the exit status; a ValueError becomes status 2, bad usage
    epilog: str | None = None
    after_interrupt: str = ""  # added to the error line after Ctrl-C or an OSError
    suggest: Suggest | None = None  # finds the option for another program's option

    def parser(self) -> Parser[T]:
        """Build the parser of the command's options."""
        return Parser(
            self.kind, self.name, " ".join(self.description.split()), epilog=self.epilog, suggest=self.suggest
        )

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run the command and return the exit status. The default of `argv` is the arguments of the process."""
        return guarded(self.name, lambda: self.run(self.parser().options(argv)), after_interrupt=self.after_interrupt)


class _ShowHelp(argparse.Action):
    """An argparse action: `--help` prints the short help, and `--help all` lists every option."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, value: object, flag: str | None = None) -> None:
        assert isinstance(parser, Parser)
        if value not in (None, "all"):
            parser.error(f"{flag} is {value!r}; allowed: all, or no value")
        print(parser.format_help() if value == "all" else parser.format_common_help(), end="")
        parser.exit()


class _StoreOnce(argparse.Action):
    """An argparse action that stores the value of an option, and rejects another value later in the command line."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: object, flag: str | None = None
    ) -> None:
        assert isinstance(parser, Parser)
        earlier = parser.given.setdefault(self.dest, value)
        if earlier != value:
            raise ValueError(f"{flag} is given twice, as {earlier} and as {value}; allowed: once")
        setattr(namespace, self.dest, value)


def _add(parser: argparse._ActionsContainer, field: FieldInfo) -> None:
    """Add an option to the parser, or to one of its groups. The struct field `field` declares the option."""
    declared = next(each for each in field.type.__metadata__ if isinstance(each, Option))
    kinds = {*_list_types(field.type)}
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    menu = "|".join(choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind))
    settings: dict[str, Any] = {"help": declared.text, "metavar": declared.metavar or menu or None}
    if {int, float} & kinds:
        settings["type"] = _read_number
    is_list = any(get_origin(kind) is list for kind in kinds)
    if declared.is_argument:
        settings |= {"nargs": "+"} if is_list else {} if default is NODEFAULT else {"nargs": "?"}
        parser.add_argument(field.name, **settings)
        return
    flag = declared.flag or f"--{field.name.replace('_', '-')}"
    if bool in kinds:
        parser.add_argument(flag, dest=field.name, action="store_true", help=declared.text)
        return
    required = default is NODEFAULT
    settings["action"] = "append" if is_list else _StoreOnce
    parser.add_argument(flag, dest=field.name, required=required, default=None if required else default, **settings)


def _read_number(text: str) -> int | float | str:
    """Read a finite number as `--set` does; return any other text unchanged."""
    value = read_value(text)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):  # JSON has NaN
        return value
    return text


def _list_types(kind: Any) -> Iterator[Any]:
    """List the types in a union, without their annotations: `Annotated[int, ...] | None` gives int and None."""
    if get_origin(kind) is Annotated:
        yield from _list_types(kind.__origin__)
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _list_types(member)
    else:
        yield kind


def _complete_word(names: Sequence[str], *, prefix: str, action: argparse.Action, **_: object) -> list[str]:
    """List the possible completions of a word. In a word such as `a,b,c`, only the last name is completed."""
    before, comma, _last = prefix.rpartition(",")
    if comma and not {*SEVERAL} & {*action.option_strings}:
        return []
    chosen = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name not in chosen]


def guarded(command: str, main: Callable[[], int], *, after_interrupt: str = "") -> int:
    """Run `main` and return its exit status. Return 2 after a `ValueError`, and 1 after Ctrl-C or an `OSError`.

    An error or interrupt is reported in one line; so is a missing package of the extra `train`, with status 2. After
    Ctrl-C or an `OSError`, this line ends with `after_interrupt`. If the reader of standard output goes away (as in
    `| head`), the command ends silently.
    """
    warnings.formatwarning = _format_warning
    try:
        for number in STOP_SIGNALS:  # all like Ctrl-C
            if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler)
        check_not_shadowed("study", *{command.partition(".")[0]} & {*PACKAGES})
        status = main()
        sys.stdout.flush()
        return status
    except ValueError as error:
        message, status = str(error).removeprefix(f"{command}: "), 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_MODULES or is_installed(package):
            raise
        message, status = f"this command {describe_missing(package)}", 2
    except KeyboardInterrupt:
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: os._exit(1))  # else a second signal prints destructors' tracebacks
        message, status = f"interrupted{after_interrupt}", 1
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        message, status = f"{name_full_disk(error)}{after_interrupt}", 1
    print_lines([f"{command}: {masked(message)}"], sys.stderr)
    return status


def read_setting(text: str, option: str = "--set", form: str = "FIELD=VALUE") -> tuple[str, Value]:
    """Split `FIELD=VALUE` into the field and the value.

    The value is parsed as JSON. If it is not valid JSON, it is kept as a string.

    Raises:
        ValueError: if the text has no field or no `=`; the message gives the allowed form.
    """
    field, value = read_pair(option, text, form)
    return field, read_value(value)


def read_settings(texts: Sequence[str]) -> dict[str, Value]:
    """Read the values of a repeated --set into a mapping from field to value.

    Raises:
        ValueError: if a text is not `FIELD=VALUE`, or a field is given twice.
    """
    settings = dict[str, Value]()
    for text in texts:
        add_once(settings, *read_setting(text), "--set")
    return settings


def add_once(settings: dict[str, V], field: str, value: V, option: str) -> None:
    """Add a field's value to the settings. Raise ValueError if the settings already have a value for the field."""
    if field in settings:
        raise ValueError(f"{option}{field and f' {field}'} is given twice; allowed: once")
    settings[field] = value


def read_pair(option: str, text: str, form: str) -> tuple[str, str]:
    """Split the value of an option at its first `=`.

    Raises:
        ValueError: if the text has no `=`, or nothing before the `=`; the message gives the allowed form.
    """
    left, equals, right = text.partition("=")
    if not equals or not left:
        raise ValueError(f"{option} is {text!r}; allowed: {form}")
    return left, right


def _nobody_reads() -> bool:
    """Check if the reader of standard output is gone."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # 0: report only errors
    return bool(poll.poll(0))


def _format_warning(message: Warning | str, *_: object, **__: object) -> str:
    return f"warning: {message}\n"
