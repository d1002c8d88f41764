"""Mirrors a study into MLflow, while it runs or afterwards: `python -m study.mirror runs/NAME`.

Reads the study's journal and never writes to the study, but for its own lock and the default store. Running it again
changes nothing; after an outage of the tracking server it goes on where it was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout

from study.command_line import Parser, argument, guarded, option
from study.facts import events
from study.facts.plain_words import counted
from study.mlflow_mirror.follower import Mirror, mirror
from study.mlflow_mirror.tracking import default_uri, prepare_environment
from study.mlflow_mirror.views import links
from study.plans.included_folder import INCLUDE_NOW, include_for
from study.plans.plan_file import require_plan
from study.storage.addresses import TRACKING_DEFAULT, TRACKING_WORDS, masked, tracking_address
from trainables.configuration import NotNegative
from trainables.schema import Typed

LOCK_SECONDS = 300.0  # how long a follower waits for the follower of the launch before


class Options(Typed, frozen=True, kw_only=True):
    """The options of this command."""

    folder: Annotated[str, argument("runs/NAME", "the study's folder")]
    tracking_uri: Annotated[str | None, option(f"{TRACKING_WORDS}; {TRACKING_DEFAULT}", "URI")] = None
    follow: Annotated[bool, option("go on until the study's launch is over")] = False
    register: Annotated[bool, option("register the confirm models of each arm afterwards")] = False
    include: Annotated[str | None, option(f"with --register: {INCLUDE_NOW}", "FOLDER")] = None
    patience: Annotated[NotNegative, option("wait for a server that is away (%(default)s)", "SECONDS")] = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all is mirrored, 1 if the store was away or the study is being mirrored, 2 for bad usage."""
    return guarded("study.mirror", lambda: _main(argv), after_interrupt="; nothing is lost, mirror again later")


def _main(argv: Sequence[str] | None) -> int:
    options = build_parser().options(argv)
    folder = Path(options.folder)
    uri = tracking_address(options.tracking_uri) if options.tracking_uri else default_uri(folder)
    if not (folder / events.FILE).exists():
        raise ValueError(f"no {events.FILE} in {folder}; allowed: the folder of a study")
    require_plan(folder)  # before a store is made
    prepare_environment()
    began = time.monotonic()
    try:
        with FileLock(folder / "mirror.lock", timeout=LOCK_SECONDS if options.follow else 0):
            mirrored = mirror(folder, uri, follow=options.follow, patience=options.patience)
            if options.register:
                register_models(mirrored, include=options.include)
    except Timeout:
        print(f"study.mirror: {folder} is being mirrored by another process; try again when it ended", file=sys.stderr)
        return 1
    except TimeoutError as error:
        later = f"python -m study.mirror {folder} --tracking-uri {masked(uri)}"
        print(f"study.mirror: {error}. Nothing is lost; mirror later: {later}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - began
    print(f"mirrored {counted(len(mirrored.facts.trials), 'trial')} of {folder} to {masked(uri)} in {seconds:.1f} s")
    if mirrored.tracking and uri.startswith("http"):
        print("\n".join(links(masked(uri), mirrored.tracking.experiment_id, mirrored.progress())))
    return 0


def register_models(mirrored: Mirror, *, include: str | None = None) -> None:
    """Puts the confirm models into the registry, and says so of each."""
    from study.mlflow_mirror.registration import register

    assert mirrored.tracking is not None, "a mirrored study has its store"
    asked = mirrored.progress().plan.asked
    for method in asked.methods:
        include_for(method, asked, include)
    for model in register(mirrored.tracking, mirrored.progress(), mirrored.folder):
        print(f"registered {model.name} version {model.version} (trial {model.key})", flush=True)


def build_parser() -> Parser[Options]:
    return Parser(Options, "study.mirror", "Mirrors a study into MLflow, while it runs or afterwards.")


if __name__ == "__main__":
    sys.exit(main())
