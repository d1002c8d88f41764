"""Whether the searches still fit into the GPU time that a launch may spend."""

from __future__ import annotations

from statistics import fmean

from study.decisions.progress import ArmProgress, StudyProgress


def searches_to_close(progress: StudyProgress) -> list[str]:
    """Names of the arms whose searches end now: all that go on, once another search trial would not leave enough GPU
    time for the confirm trials. None before a trial has ended, or without a limit."""
    if progress.max_gpu_hours is None or not progress.facts.records:
        return []  # without a look at every trial, which takes longer the more there are
    searching = [arm.arm.name for arm in progress.arms if not arm.is_search_over and arm.search_trials_to_start]
    if not searching or _committed_gpu_seconds(progress) <= 3600 * progress.max_gpu_hours:
        return []
    return searching


def _committed_gpu_seconds(progress: StudyProgress) -> float:
    """GPU time used, to be used by trials under way, by all confirm trials, and by one more search trial."""
    used = sum(record.gpu_seconds for record in progress.facts.records)
    under_way = sum(
        _gpu_seconds(progress, progress.arm(trial.started.arm)) for trial in progress.facts.under_way.values()
    )
    confirm = sum(arm.confirm_trials_to_start * _gpu_seconds(progress, arm) for arm in progress.arms)
    return used + under_way + confirm + max(_gpu_seconds(progress, arm) for arm in progress.arms)


def _gpu_seconds(progress: StudyProgress, arm: ArmProgress) -> float:
    """Mean GPU seconds of the arm's completed trials, of all ended trials while it has none."""
    completed = [record for record in arm.facts.records if record.status == "completed"]
    return fmean(record.gpu_seconds for record in completed or progress.facts.records)
