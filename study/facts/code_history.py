"""Tells which code trained the trials of a study."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from study.facts.events import LaunchBegan
from study.facts.study_facts import StudyFacts, TrialFacts
from study.terminal.text import counted
from trainables import base_method
from trainables.files.method_files import compute_digest

_SHOWN_DIGITS = 12  # of a commit or a digest


def list_own_methods(facts: StudyFacts) -> set[str]:
    """List the methods and variants of a study that came from an included folder."""
    included = {method for launch in facts.launches.values() for method in launch.began.included or {}}
    methods = {trial.arm.method for trial in facts.trials.values()}
    return {method for method in methods if base_method(method) in included}


def list_edited_methods(facts: StudyFacts, trials: Iterable[TrialFacts]) -> list[str]:
    """List the included methods whose files are not those that trained the trials."""
    edited = dict[str, None]()
    for trial in trials:
        method, launches = base_method(trial.arm.method), [facts.launches[number] for number in trial.trained_in]
        now, recorded = compute_digest(method), {(launch.began.included or {}).get(method) for launch in launches}
        if now is not None and recorded - {now}:
            edited[method] = None
    return [*edited]


class FirstCode:
    """The code of the first launch that trained a trial of a study.

    The files of a user's own method are those of the first launch that trained this method.
    """

    def __init__(self, facts: StudyFacts) -> None:
        """Find the first code in the state of a study."""
        self._launches = {number: launch.began for number, launch in facts.launches.items()}
        trials = facts.trials.values()
        trained = sorted((number, base_method(trial.arm.method)) for trial in trials for number in trial.trained_in)
        # None if no trial has run an epoch. Launches without an epoch are skipped: they produced no numbers.
        self.launch = self._launches[trained[0][0]] if trained else None
        self._files: dict[str, str | None] = {}  # method -> digest of its files; None for the package's methods
        for number, method in trained:
            self._files.setdefault(method, (self._launches[number].included or {}).get(method))

    def list_others(self, trial: TrialFacts) -> list[str]:
        """List how the code that trained the trial differs from the first code."""
        differences = [self._describe_difference(trial, self._launches[number]) for number in trial.trained_in]
        return list(dict.fromkeys(filter(None, differences)))

    def _describe_difference(self, trial: TrialFacts, launch: LaunchBegan) -> str:
        """Describe how the code of a launch differs from the first code; "" if there is no difference."""
        assert self.launch is not None, "the trial was trained"
        method, differences = base_method(trial.arm.method), list[str]()
        if launch.code_digest != self.launch.code_digest:
            is_commit_the_same = launch.git_commit == self.launch.git_commit
            differences.append(_format_digest(launch) if is_commit_the_same else describe_code(launch))
        if (files := (launch.included or {}).get(method)) != self._files[method]:
            differences.append(f"the method's own files {(files or 'none')[:_SHOWN_DIGITS]}")
        return ", ".join(differences)


def describe_code(launch: LaunchBegan) -> str:
    """Format the git commit and the code digest of a launch, both shortened. An unknown commit is omitted."""
    if launch.git_commit is None:
        return _format_digest(launch)
    commit, _, changed = launch.git_commit.partition("-")
    return f"commit {commit[:_SHOWN_DIGITS]}{'-' * bool(changed)}{changed}, {_format_digest(launch)}"


def describe_code_by_launch(facts: StudyFacts) -> list[str]:
    """List the code of all launches that trained a trial. Successive launches with the same code share one line."""
    trained = [{*trial.trained_in} for trial in facts.trials.values()]
    began, lines = [facts.launches[number].began for number in sorted(set().union(*trained))], list[str]()
    for _, launches in groupby(began, attrgetter("format", "git_commit", "code_digest", "versions")):
        first, *others = launches
        title = f"launches {first.launch} to {others[-1].launch}" if others else f"launch {first.launch}"
        numbers = {launch.launch for launch in (first, *others)}
        trials = counted(sum(bool(each & numbers) for each in trained), "trial")
        versions = ", ".join(f"{name} {version[:_SHOWN_DIGITS]}" for name, version in first.versions.items())
        lines.append(f"{title} ({trials}): {describe_code(first)}, {versions}; format {first.format}")
    return lines


def _format_digest(launch: LaunchBegan) -> str:
    return f"sources {launch.code_digest[:_SHOWN_DIGITS]}"
