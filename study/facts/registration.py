"""Places that show a plan before its first trial: a git tag, and the commit that holds the plan's file."""

from __future__ import annotations

import shlex
import subprocess
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from study.facts.provenance import ROOT
from study.facts.study_facts import StudyFacts

_DIRTY = "-dirty"  # end of a commit whose files had changes


class PlanSource(NamedTuple):
    """The file from which a launch read the plan of the study's first trial, and the commit that the launch ran."""

    launch: int
    file: str  # as given with --plan
    commit: str


class PlanCommit(NamedTuple):
    """The commit of a plan's launch, in the history of this project's repository."""

    path: str | None  # of the plan's file in the repository; None if the commit does not hold the file
    made: datetime


def find_plan_tag(plan: str) -> str | None:
    """Return the git tag `plan-DIGEST` of a plan; `plan` is the digest.

    Return None if the repository of the current folder has no such tag.
    """
    tag = f"plan-{plan}"
    try:
        listed = subprocess.run(["git", "tag", "--list", tag], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    return tag if listed.strip() == tag else None


def find_plan_source(facts: StudyFacts) -> PlanSource | None:
    """Find the file of the plan with which the first trial started, and the commit of the code that read the file.

    Return None if no launch up to this trial read this plan from a file, or if its code was in no commit.
    """
    start = min((trial.started.time for trial in facts.trials.values()), default=facts.time)
    launches = [launch.began for launch in facts.launches.values() if launch.began.time <= start]
    for began in launches:
        words = shlex.split(began.command)
        words = [part for word in words for part in (word.split("=", 1) if word.startswith("--plan=") else [word])]
        file = next((value for flag, value in pairwise(words) if flag == "--plan"), None)
        if file and began.plan == launches[-1].plan and began.git_commit and not began.git_commit.endswith(_DIRTY):
            return PlanSource(began.launch, file, began.git_commit)
    return None


def read_plan_commit(source: PlanSource) -> PlanCommit | None:
    """Look a plan's commit up in the history of this project's repository.

    Return None if the repository lacks the commit, or if this is no checkout.
    """
    made = _run_git("show", "--no-patch", "--format=%cI", source.commit)
    if made is None:
        return None
    paths = (_run_git("ls-tree", "-r", "-z", "--name-only", source.commit) or "").split("\0")
    path = next((path for path in paths if path and f"/{source.file}".endswith(f"/{path}")), None)
    return PlanCommit(path, datetime.fromisoformat(made.strip()))


def _run_git(*arguments: str) -> str | None:
    """Return the output of a git command in this project's repository, or None if the command fails."""
    command = ["git", "-C", str(ROOT), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
