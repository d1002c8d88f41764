"""Which trials have other code than those that the study began with: their numbers may differ for that alone."""

from __future__ import annotations

from study.facts.events import LaunchBegan
from study.facts.study_facts import StudyFacts, TrialFacts


def first_training_launch(facts: StudyFacts) -> LaunchBegan | None:
    """The first launch that trained; one that ended before any trial had an epoch has made no number."""
    numbers = [number for trial in facts.trials.values() for number in trial.trained_in]
    return facts.launches[min(numbers)].began if numbers else None


def other_code_of(trial: TrialFacts, facts: StudyFacts, first: LaunchBegan | None) -> list[str]:
    """The code that the trial was trained with and the `first` launch did not have."""
    launches = [facts.launches[number].began for number in trial.trained_in]
    others = [launch for launch in launches if first is not None and launch.code_digest != first.code_digest]
    return list(dict.fromkeys(code_in_words(launch) for launch in others))


def code_in_words(launch: LaunchBegan) -> str:
    """A commit, with the digest of the sources where that alone tells it from others of the same name."""
    commit = launch.git_commit
    return f"commit {commit}, sources {launch.code_digest}" if commit else f"sources {launch.code_digest}"
