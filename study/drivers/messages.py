"""The messages between a driver and its workers. They are sent as JSON, and the receiver validates them.

A launch also writes the newest `Steps` of its running trials to a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from study.facts.events import Failure, Report
from study.facts.provenance import Attestation
from trainables import base_method
from trainables.configuration import AtLeastOne, Count, NotNegative
from trainables.configuration.schema import Reader, Typed, to_plain
from trainables.files.atomic_files import write_json
from trainables.files.method_files import IncludedMethods
from trainables.runs.trial import TrialSpec

# Loading data, a download, the tokenising of a large task or an outage of the storage may keep a worker silent.
SILENCE_SECONDS = 1800.0


class AssignedTrial(Typed, frozen=True, kw_only=True):
    """A trial as a worker receives it."""

    key: str
    spec: TrialSpec
    expected: Attestation  # code and data that the worker must have
    epochs: Count  # epochs reported so far, in all launches; the saved state contains them
    seconds: tuple[NotNegative, NotNegative] = (0.0, 0.0)  # wall-clock and GPU seconds recorded so far
    place: str  # path or URI of its files in the storage
    start_digest: str | None = None  # of the model at `spec.start`; None if its trial recorded none
    predictions: str | None  # path, absolute or relative to `place`; None: not kept
    marks: tuple[str, ...] = ()  # files of the launch that the worker must find in the storage


class Assignment(Typed, frozen=True, kw_only=True):
    """The work of a worker (a trial or smoke steps), and the resources for this work."""

    trial: AssignedTrial | None = None
    smoke: Mapping[str, TrialSpec] = {}  # arm name -> spec of its smoke step; used if there is no trial
    device: Literal["cpu", "cuda"]
    cpus: float
    gpus: float
    threads: int
    avoid: tuple[str, ...] = ()  # ids of the nodes to avoid
    included: IncludedMethods | None = None  # methods outside this package, as the launcher read them
    log: str | None = None  # file for the process's output; None: the driver redirects it
    node: str | None = None  # id of the worker's node; None: the name of its host
    silence_seconds: float = SILENCE_SECONDS  # a step that takes longer than this may be ended as hung

    @property
    def runs_own_methods(self) -> bool:
        """True if the work runs code of an included folder, which may change its process for all later work."""
        specs = [self.trial.spec] if self.trial else self.smoke.values()
        return self.included is not None and any(self.included.defines(base_method(spec.method)) for spec in specs)


class Loss(Typed, frozen=True, kw_only=True):
    """The end of a worker's process while it worked on an assignment."""

    error: str  # one line
    is_crash: bool = False  # True if the process ended itself, crashed or hung: nobody else ended it


class Steps(Typed, frozen=True, kw_only=True):
    """The progress of a trial within its current epoch. The journal, in contrast, has only finished epochs."""

    key: str
    done: Count
    of: AtLeastOne
    seconds: NotNegative  # since the epoch began


class SmokeReport(Typed, frozen=True, kw_only=True):
    """The result of smoke steps: the failures by arm, and the versions of the worker's code."""

    failures: Mapping[str, Failure]
    code_digest: str
    versions: Mapping[str, str]


class Message(Typed, frozen=True, kw_only=True):
    """A worker's message after one step of its assignment.

    If it has a `key`, it is about this trial: the end of an epoch, a failure that interrupts the trial, or a refusal. A
    worker refuses a trial if the code or data on its node differ from the launch's.
    """

    key: str | None = None  # of the worker's trial; None within an epoch, and for smoke steps and lost processes
    host: str = ""
    node: str | None = None  # id of the worker's node
    report: Report | None = None
    failure: Failure | None = None
    seconds: tuple[NotNegative, NotNegative] = (0.0, 0.0)  # of the trial so far, with a failure; zeros: unknown
    restarted: str | None = None  # why the trial's saved state could not be used
    refused: Attestation | None = None  # the worker's code and data, if they differ from those expected
    steps: Steps | None = None  # progress in an epoch that the next step continues
    smoke: SmokeReport | None = None
    lost: Loss | None = None  # the worker's process is lost; another will be started for the next assignment


ASSIGNMENTS = Reader(Assignment)
MESSAGES = Reader(Message)
_STEPS = Reader(tuple[Steps, ...])


# ---- the file that `study.status` reads

STEPS_FILE = "steps.json"  # in the study's folder, while a launch runs


def write_steps(folder: Path, steps: Collection[Steps]) -> None:
    """Replace the steps file; ignore errors, because the launch does not depend on the file."""
    with suppress(OSError):
        write_json(folder / STEPS_FILE, to_plain(tuple(steps)))


def remove_steps(folder: Path) -> None:
    """Delete the steps file at the end of a launch."""
    with suppress(OSError):
        (folder / STEPS_FILE).unlink(missing_ok=True)


def read_steps(folder: Path) -> Mapping[str, Steps]:
    """Map the key of each running trial to its steps; return {} if the file cannot be read."""
    try:
        running: tuple[Steps, ...] = _STEPS.read((folder / STEPS_FILE).read_bytes(), where=STEPS_FILE)
    except (OSError, ValueError):
        return {}
    return {steps.key: steps for steps in running}
