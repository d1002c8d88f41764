"""Copy a study into MLflow, while it runs or afterwards: `python -m study.mirror runs/NAME`.

The command never changes the journal. Into the study's folder, it writes a lock, `browse.txt` with links to the runs,
and, without --tracking-uri, the store. You can run the command again, for instance after an outage of the server. It
then sends only the data that MLflow lacks.
"""

from __future__ import annotations

import hashlib
import math
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode

from filelock import FileLock, Timeout

from study.decisions.progress import compute_progress
from study.facts import events
from study.facts.events import EpochReported
from study.facts.journal_copy import check_not_lost
from study.facts.plan_file import INCLUDE_NOW, require_plan
from study.facts.study_facts import StudyFacts, apply_line
from study.facts.study_folder import (
    BROWSE,
    DEV_TABLE,
    compute_journal_digest,
    compute_plan_digest,
    read_export,
    read_mean_intervals,
)
from study.mlflow_mirror.run_content import NUMBERS, Run, StudyRuns, build_selected_points
from study.mlflow_mirror.tracking import (
    Tracking,
    build_default_uri,
    find_lasting_fault,
    outages,
    prepare_environment,
    read_runs,
    reason,
    register,
    skip_disk_flushes,
)
from study.storage.addresses import TRACKING_HELP, check_tracking_address
from study.stored_models.own_methods import include_methods
from study.terminal.command_line import Command, argument, option
from study.terminal.processes import require_package
from study.terminal.text import counted, masked, print_lines, python
from trainables.configuration import NotNegative
from trainables.configuration.schema import Typed
from trainables.files.atomic_files import write_text

LOCK_SECONDS = 300.0  # how long a mirror waits for the mirror of the previous launch to end
POLL_SECONDS = 1.0
LIVE_SECONDS = 5.0  # minimum time between two updates of MLflow while the study runs
SHARE = 0.1  # maximum share of the time that is spent on updates of MLflow
FILES = {"": ("plan.json", "report.html"), "tables": ("tables/[!.]*",), "pictures": ("pictures/[!.]*",)}

# Search and sort order of each link to MLflow's page. In the default order, by time, MLflow folds the trials into their
# arms, which hides the failed trials.
LINKS = {
    "Median score of each arm": {
        "searchFilter": "tags.level = 'arm'",
        "orderByKey": "metrics.`score`",
        "orderByAsc": "false",
        "compareRunsMode": "CHART",  # a bar for each run
    },
    "Best run of each arm": {
        "searchFilter": "tags.best = 'true'",
        "orderByKey": "metrics.`score`",
        "orderByAsc": "false",
    },
    "Score of each seed": {
        "searchFilter": "tags.counts = 'true'",
        "orderByKey": "tags.`arm`",
        "orderByAsc": "true",
        "compareRunsMode": "CHART",
    },
    "Failed trials": {
        "searchFilter": "tags.level = 'trial' AND attributes.status = 'FAILED'",
        "orderByKey": "tags.`arm`",
        "orderByAsc": "true",
    },
}


class Mirror:
    """Copies one study into one MLflow store."""

    def __init__(self, folder: Path, uri: str) -> None:
        """Keep the study's folder and the store's address."""
        self.folder, self.uri = folder, uri
        self.facts = StudyFacts()
        self.tracking: Tracking | None = None
        self._reader, self._offset, self._lines = events.EventReader(), 0, 0
        self.reports: defaultdict[str, list[EpochReported]] = defaultdict(list)  # trial key -> its epochs, each once

    def read(self) -> None:
        """Read the lines added to the journal since the last call, except an incomplete last line."""
        path = self.folder / events.FILE
        with path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        new = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        for number, line in enumerate(new, start=self._lines + 1):
            if not line.strip():  # at the end of a file that an editor has saved
                continue
            event = self._reader.read(line, where=f"{path}:{number}")
            apply_line(self.facts, event, where=f"{path}:{number}")
            if isinstance(event, events.TrialRestarted | events.TrialReopened):  # its earlier epochs do not count
                self.reports.pop(event.key, None)
            if isinstance(event, EpochReported) and self.facts.trials[event.key].last is event:
                self.reports[event.key].append(event)
        self._offset, self._lines = self._offset + sum(map(len, new)), self._lines + len(new)

    def connect(self) -> Tracking:
        """Connect to the store, which makes the tables of a new database."""
        if self.tracking is None:
            folder = self.folder.resolve()
            if self.uri == build_default_uri(folder):
                skip_disk_flushes(folder)
            self.tracking = Tracking(
                self.uri, experiment=folder.name, study_id=self.study_id, artifacts=folder / "mlartifacts"
            )
        return self.tracking

    def write(self, *, final: bool) -> None:
        """Send changed runs to MLflow. If `final`, also send the tables, the pictures and the report."""
        tracking = self.connect()
        for run in self.runs(final=final):
            tracking.write(run)

    def runs(self, *, final: bool) -> list[Run]:
        """Build the MLflow runs of the study, its arms and their trials. Each parent comes before its children."""
        intervals = read_mean_intervals(self.folder) if final else {}
        runs = StudyRuns(
            self.folder.resolve().name, require_plan(self.folder).plan, self.facts, self.reports, intervals
        )
        journal = compute_journal_digest(self.folder).describe() if final else ""
        files = {
            name: tuple(str(path) for pattern in patterns for path in sorted(self.folder.glob(pattern)))
            for name, patterns in FILES.items()
            if final
        }
        plan = compute_plan_digest(self.folder)
        return [
            runs.study(files=files, note=read_export(self.folder, DEV_TABLE), plan=plan, journal=journal),
            *(runs.arm(name) for name, facts in self.facts.arms.items() if facts.trials),
            *(runs.trial(key) for key in self.facts.trials),
        ]

    def is_over(self, launch: int) -> bool:
        """Check if a launch has ended, or a later one has begun."""
        last = self.facts.last_launch
        return last is not None and (last.began.launch > launch or last.is_over())

    @property
    def study_id(self) -> str:
        """Hash of the journal's first line, to distinguish studies with the same name."""
        with (self.folder / events.FILE).open("rb") as file:
            return hashlib.sha256(file.readline()).hexdigest()[:12]


def find_launch(folder: Path) -> int:
    """Find the number of the launch under way, or of the last one; 1 before any."""
    mirrored = Mirror(folder, uri="")
    mirrored.read()
    return max(1, mirrored.facts.launch_number)


def mirror(folder: Path, uri: str, *, follow: int | None = None, patience: float = 60.0) -> Mirror:
    """Copy the study in `folder` to the store at `uri`.

    If the store does not answer, print one warning to standard error and retry every second.

    Args:
        follow: number of a launch; keep copying until it has ended, or another has begun. None: copy once.
        patience: number of seconds to retry the final copy.

    Raises:
        TimeoutError: if the store does not answer the final copy within `patience` seconds.
        ValueError: if the journal is damaged, or the store refuses the runs.
    """
    _check_store(uri)
    mirrored, due, deadline, is_away, has_answered = Mirror(folder, uri), 0.0, None, False, False
    while True:
        final = follow is None or mirrored.is_over(follow)  # before `read`, which then reads to the end
        mirrored.read()
        try:
            if mirrored.facts.last_launch is not None and (final or time.monotonic() >= due):
                mirrored.connect()  # takes seconds if the database is new, which no later update does
                began = time.monotonic()
                mirrored.write(final=final)
                due, is_away = time.monotonic() + max(LIVE_SECONDS, (time.monotonic() - began) / SHARE), False
            if final:
                return mirrored
        except outages() as error:
            has_answered = has_answered or mirrored.tracking is not None
            _check_store(uri, error, has_answered=has_answered)
            deadline = (deadline or time.monotonic() + patience) if final else None
            if deadline and time.monotonic() > deadline:
                raise TimeoutError(f"{masked(uri)} does not answer: {reason(error)}") from None
            if not is_away:
                until = f"for {patience:g} s" if final else "while the study runs"
                print(f"{masked(uri)} does not answer: {reason(error)}; retrying {until}", file=sys.stderr, flush=True)
            mirrored.tracking, is_away = None, True
        time.sleep(POLL_SECONDS)


def _check_store(uri: str, error: BaseException | None = None, *, has_answered: bool = False) -> None:
    """Raise ValueError if the store at `uri` has a fault that a retry cannot fix; see `find_lasting_fault`."""
    if fault := find_lasting_fault(uri, error, has_answered=has_answered):
        raise ValueError(f"{fault}; nothing is lost, and study.mirror copies the runs later") from None


# ---- differences between a store and the journal


def contradictions(mirrored: Mirror) -> list[str]:
    """Compare the runs in MLflow with the journal. Return a line for each difference; write nothing.

    The comparison covers the digests of plan and journal, the keys of all trials, and the metrics of ended trials.
    """
    name = mirrored.folder.resolve().name
    stored, trials = read_runs(mirrored.uri, mirrored.study_id, name=name), mirrored.facts.trials
    if "study" not in stored:
        return [f"MLflow has no copy of this study (study_id {mirrored.study_id})"]
    lines = _compare_digests(mirrored.folder, stored["study"].tags)
    for key, stored_run in stored.items():
        if stored_run.tags.get("level") == "trial" and key not in trials:
            lines.append(f"trial {key} of {stored_run.tags['arm']} is missing from the journal")
    for key, trial in trials.items():
        place = f"trial {key} of {trial.started.arm}"
        if key not in stored:
            lines.append(f"{place} is missing from MLflow")
        elif trial.record:
            wanted = {point.name: point.value for point in build_selected_points(trial.record)}
            values = {name: value for name, value in stored[key].metrics.items() if math.isfinite(value)}
            for name in sorted({*NUMBERS, *wanted}):
                if (value := values.get(name)) != (number := wanted.get(name)):
                    lines.append(f"{place}: {name} is {value} in MLflow, but {number} in the journal")
    return lines


def _compare_digests(folder: Path, tags: dict[str, str]) -> list[str]:
    """Compare the digests in MLflow's tags with those of the study's plan and journal; list the differences."""
    plan, journal = tags.get("plan"), tags.get("journal", "")
    lines = []
    if plan != (wanted := compute_plan_digest(folder)):
        lines.append(
            f"the digest of the plan at the start of the first trial is {plan} in MLflow, but {wanted} in the journal"
        )
    if not journal:
        return [*lines, "MLflow has no digest of the journal yet; it is written at the end of a launch"]
    number = int(journal.split()[1])
    if journal != (now := compute_journal_digest(folder, first=number).describe()):
        lines.append(f"the digest of the journal's first {number} lines was {journal}, but now it is {now}")
    return lines


# ---- how to see the runs


def browse(mirrored: Mirror) -> list[str]:
    """Return the lines that explain how to see the runs in a browser.

    The first line has the address of the MLflow server, or the command that starts a server for the store. The other
    lines have links to the runs. If the store is a database server, the list is empty.
    """
    uri = mirrored.uri
    if mirrored.tracking is None or not uri.startswith(("http", "sqlite")):
        return []
    if uri.startswith("http"):
        server = served = masked(uri).rstrip("/")
    else:
        server = "http://127.0.0.1:5000"
        served = f"{python()} -m mlflow ui --backend-store-uri {shlex.quote(_shorten(uri))}"
    page = f"{server}/#/experiments/{quote(mirrored.tracking.experiment_id)}/runs"
    links = dict[str, str]()
    for name, link in LINKS.items():
        search = f"{link['searchFilter']} AND tags.study_id = '{mirrored.study_id}'"  # not other studies of this name
        fields = {"workflowType": "machine_learning", **link, "searchFilter": search}  # MLflow's view "Model training"
        links[name] = f"{page}?{urlencode(fields, quote_via=quote)}"
    return [f"browse:      {served}", *(f"  {name + ':':<31}{link}" for name, link in links.items())]


def _shorten(uri: str) -> str:
    """Shorten an SQLite file's URI to a path relative to the working folder, if `python()` gives such a path too."""
    here = f"sqlite:///{Path.cwd()}/"
    is_short = uri.startswith(here) and not Path(python()).is_absolute()
    return f"sqlite:///{uri.removeprefix(here)}" if is_short else uri


# ---- the command


class Options(Typed, frozen=True, kw_only=True):
    """Options of `study.mirror`: the study to copy, and the MLflow store."""

    folder: Annotated[str, argument("runs/NAME", "the study's folder")]
    tracking_uri: Annotated[str | None, option(TRACKING_HELP, "URI")] = None
    compare: Annotated[bool, option("copy nothing; print the differences between MLflow and the journal")] = False
    follow: Annotated[bool, option("keep copying until the study's launch ends")] = False
    register: Annotated[bool, option("after copying, add the confirm models to MLflow's registry")] = False
    include: Annotated[list[str], option(f"with --register: {INCLUDE_NOW}", "FOLDER")] = []
    patience: Annotated[NotNegative, option("how long to retry the last copy; default: %(default)g", "SECONDS")] = 60.0


def run(options: Options) -> int:
    """Copy the study or, with --compare, print the differences. Return 1 after a failed copy or a difference, else 0.

    Raises:
        ValueError: if MLflow is not installed, or the folder holds no study.
    """
    if options.compare and (options.follow or options.register):
        raise ValueError("--compare copies nothing; allowed: without --follow and --register")
    if options.include and not options.register:
        raise ValueError(f"--include is {' '.join(options.include)}; allowed: with --register")
    folder = Path(options.folder)
    require_package("mlflow")
    uri = check_tracking_address(options.tracking_uri) if options.tracking_uri else build_default_uri(folder)
    check_not_lost(folder)
    if not (folder / events.FILE).exists():
        raise ValueError(f"the folder {folder} has no {events.FILE}; allowed: the folder of a study")
    require_plan(folder)  # fails before a store is created
    prepare_environment()
    if options.compare:
        return _compare(folder, uri)
    began = time.monotonic()
    launch = find_launch(folder) if options.follow else None  # the next may begin during the wait
    try:
        with FileLock(folder / "mirror.lock", timeout=LOCK_SECONDS if options.follow else 0):
            mirrored = mirror(folder, uri, follow=launch, patience=options.patience)
            if options.register:
                register_models(mirrored, include=options.include)
    except Timeout:
        print(f"study.mirror: another process is copying {folder}; try again after it ends", file=sys.stderr)
        return 1
    except TimeoutError as error:
        words = [str(folder), "--tracking-uri", masked(uri), *["--register"] * options.register]
        command = f"{python()} -m study.mirror {shlex.join(words)}"
        print(f"study.mirror: {error}. Nothing is lost; to try again: {command}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - began
    print(f"mirrored {counted(len(mirrored.facts.trials), 'trial')} of {folder} to {masked(uri)} in {seconds:.1f} s")
    lines = browse(mirrored)
    write_text(folder / BROWSE, "".join(f"{line}\n" for line in lines))
    print_lines(lines[:1], sys.stdout)
    print("".join(f"{line}\n" for line in lines[1:]), end="")  # links: never wrapped
    return 0


def _compare(folder: Path, uri: str) -> int:
    """Print every difference between MLflow and the journal. Return 1 if there are any, else 0."""
    from sqlalchemy.engine import make_url

    if uri.startswith("sqlite") and not Path(make_url(uri).database or "").is_file():
        raise ValueError(f"{uri} does not exist; allowed: a store that has a copy of the study")
    mirrored = Mirror(folder, uri)
    mirrored.read()
    try:
        lines = contradictions(mirrored)
    except outages() as error:
        raise ValueError(f"{masked(uri)} does not answer, or refuses the request: {reason(error)}") from None
    print("".join(f"{line}\n" for line in lines), end="")
    return 1 if lines else 0


def register_models(mirrored: Mirror, *, include: Sequence[str]) -> None:
    """Register the models of confirm trials in MLflow's model registry. Print a line for each new version.

    Raises:
        ValueError: if the store fails or has no registry.
    """
    assert mirrored.tracking is not None, "copy the study first"
    plan = require_plan(mirrored.folder).plan
    progress = compute_progress(plan, mirrored.facts)
    include_methods(mirrored.folder, [record for arm in progress.arms for record in arm.confirmed], include)
    try:
        for line in register(mirrored.tracking, progress, mirrored.folder):
            print(line, flush=True)
    except OSError:  # a file of a model
        raise
    except outages() as error:
        raise ValueError(
            f"{masked(mirrored.uri)} did not register the models: {reason(error)}; the runs are there; "
            "run the same command again, or leave out --register"
        ) from None


main = Command(
    "study.mirror",
    Options,
    __doc__ or "",
    run,
    after_interrupt="; nothing is lost; run the same command again",
)

if __name__ == "__main__":
    sys.exit(main())
