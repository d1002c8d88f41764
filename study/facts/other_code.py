"""Which trials have other code than those that the study began with: their numbers may differ for that alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from study.facts.events import LaunchBegan
from study.facts.study_facts import StudyFacts, TrialFacts
from trainables import base_method

_DIGITS = 12  # of a commit or a digest, as they are said to people


@dataclass(frozen=True)
class FirstCode:
    """What the study's first trials were trained with, and the first of each method of an included folder."""

    launch: LaunchBegan
    included: Mapping[str, str | None]  # method -> digest of its files; None: it was the package's


def first_code(facts: StudyFacts) -> FirstCode | None:
    """None where no trial had an epoch: a launch that ended before that has made no number."""
    trained = [(number, trial.arm.method) for trial in facts.trials.values() for number in trial.trained_in]
    if not trained:
        return None
    included: dict[str, str | None] = {}
    for number, method in sorted(trained):
        base = base_method(method)
        included.setdefault(base, _files_of(base, facts.launches[number].began))
    return FirstCode(facts.launches[min(trained)[0]].began, included)


def other_code_of(trial: TrialFacts, facts: StudyFacts, first: FirstCode | None) -> list[str]:
    """What of the code that the trial was trained with is another than its study, or its method, began with."""
    if first is None:
        return []
    method = base_method(trial.arm.method)
    launches = [facts.launches[number].began for number in trial.trained_in]
    others = [
        ", ".join(_others_of_package(launch, first.launch) + _others_of_method(launch, first, method))
        for launch in launches
    ]
    return list(dict.fromkeys(filter(None, others)))


def _others_of_package(launch: LaunchBegan, first: LaunchBegan) -> list[str]:
    """A commit, and the digest of the sources, which tells it from others of the same name."""
    if launch.code_digest == first.code_digest:
        return []
    same_commit = launch.git_commit == first.git_commit
    return [f"sources {launch.code_digest[:_DIGITS]}"] if same_commit else [code_in_words(launch)]


def _others_of_method(launch: LaunchBegan, first: FirstCode, method: str) -> list[str]:
    own = _files_of(method, launch)
    return [] if own == first.included[method] else [f"the method's own files {(own or 'none')[:_DIGITS]}"]


def _files_of(method: str, launch: LaunchBegan) -> str | None:
    return (launch.included or {}).get(method)


def code_in_words(launch: LaunchBegan) -> str:
    """The commit, where there is one, and the digest of the sources, both shortened."""
    sources = f"sources {launch.code_digest[:_DIGITS]}"
    if launch.git_commit is None:
        return sources
    commit, _, changed = launch.git_commit.partition("-")
    return f"commit {commit[:_DIGITS]}{'-' * bool(changed)}{changed}, {sources}"
