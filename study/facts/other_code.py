"""Finds trials whose code differs from that of the study's first trials; their results may not be comparable."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from study.facts.events import LaunchBegan
from study.facts.plain_words import counted
from study.facts.study_facts import StudyFacts, TrialFacts
from trainables import base_method

_DIGITS = 12  # displayed digits of a commit or a digest


class FirstCode:
    """The code of a study's first trials and, for a user's own methods, of each method's first trials."""

    def __init__(self, facts: StudyFacts) -> None:
        """Find the first launch that trained any trial, and the first that trained each method."""
        self._launches = {number: launch.began for number, launch in facts.launches.items()}
        trials = facts.trials.values()
        trained = sorted((number, base_method(trial.arm.method)) for trial in trials for number in trial.trained_in)
        # None if no trial has run an epoch. Launches without an epoch are skipped: they produced no numbers.
        self.launch = self._launches[trained[0][0]] if trained else None
        self._files: dict[str, str | None] = {}  # method -> digest of its files; None for the package's methods
        for number, method in trained:
            self._files.setdefault(method, _find_files(method, self._launches[number]))

    def others(self, trial: TrialFacts) -> list[str]:
        """List the code that trained the trial and differs from the first code of the study or of the method."""
        others = [", ".join(self._others(trial, self._launches[number])) for number in trial.trained_in]
        return list(dict.fromkeys(filter(None, others)))

    def _others(self, trial: TrialFacts, launch: LaunchBegan) -> list[str]:
        """Describe how a launch's code differs from the first code.

        The description gives commit and digest, or the digest alone if the commit is the same.
        """
        assert self.launch is not None, "the trial was trained"
        method, differing = base_method(trial.arm.method), []
        if launch.code_digest != self.launch.code_digest:
            is_commit_the_same = launch.git_commit == self.launch.git_commit
            differing = [_sources(launch) if is_commit_the_same else describe_code(launch)]
        files = _find_files(method, launch)
        return differing + [f"the method's own files {(files or 'none')[:_DIGITS]}"] * (files != self._files[method])


def describe_code(launch: LaunchBegan) -> str:
    """Format a launch's commit, if known, and the digest of its training code, both shortened."""
    if launch.git_commit is None:
        return _sources(launch)
    commit, _, changed = launch.git_commit.partition("-")
    return f"commit {commit[:_DIGITS]}{'-' * bool(changed)}{changed}, {_sources(launch)}"


def describe_code_by_launch(facts: StudyFacts) -> list[str]:
    """List the code of all launches that trained a trial; successive launches with the same code share a line."""
    trained = Counter(number for trial in facts.trials.values() for number in trial.trained_in)
    began, lines = [facts.launches[number].began for number in sorted(trained)], list[str]()
    for _, alike in groupby(began, lambda one: (one.format, one.git_commit, one.code_digest, one.versions)):
        first, *others = alike
        which = f"launches {first.launch} to {others[-1].launch}" if others else f"launch {first.launch}"
        trials = counted(sum(trained[launch.launch] for launch in (first, *others)), "trial")
        versions = ", ".join(f"{name} {version[:_DIGITS]}" for name, version in first.versions.items())
        lines.append(f"{which} ({trials}): {describe_code(first)}, {versions}; format {first.format}")
    return lines


def _sources(launch: LaunchBegan) -> str:
    return f"sources {launch.code_digest[:_DIGITS]}"


def _find_files(method: str, launch: LaunchBegan) -> str | None:
    return (launch.included or {}).get(method)
