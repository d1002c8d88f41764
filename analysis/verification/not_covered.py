"""What `analysis.verify` cannot find changed, because nothing in a study's folder repeats it, and what the chain of the
journal alone finds."""

from __future__ import annotations

from typing import NamedTuple


class NotCovered(NamedTuple):
    """A field, or a whole file where `field` is empty."""

    file: str
    field: str  # of one kind of event: KIND.FIELD
    reason: str


_WHO = "who ran a launch, and where, stands nowhere else"
_WHY = "why a trial or a smoke step broke off, and where, stands nowhere else"
_TRAINED_NOTHING = "of a launch that trained nothing; else records repeat it"
_ORDER = "only the order of times is checked"
_NOT_SELECTED = "of the selected epoch the record repeats it, of others nothing does"
_BEFORE_LAST = "of the last epoch the record repeats it, of earlier ones nothing does"

# Found by the chain alone: not where a hand also makes the chain of all later lines anew, and its heads in the records.
CHAIN_ALONE = (
    NotCovered("events.jsonl", "launch_began.command", _WHO),
    NotCovered("events.jsonl", "launch_began.host", _WHO),
    NotCovered("events.jsonl", "launch_began.pid", _WHO),
    NotCovered("events.jsonl", "launch_began.max_gpu_hours", "where it closed nothing"),
    NotCovered("events.jsonl", "launch_began.versions", _TRAINED_NOTHING),
    NotCovered("events.jsonl", "launch_began.git_commit", _TRAINED_NOTHING),
    NotCovered("events.jsonl", "launch_began.code_digest", _TRAINED_NOTHING),
    NotCovered("events.jsonl", "launch_began.included", _TRAINED_NOTHING),
    NotCovered("events.jsonl", "launch_began.storage", _WHO),
    NotCovered("events.jsonl", "launch_began.plan", "but for what may not change: a launch may have asked for less"),
    NotCovered("events.jsonl", "launch_ended.status", "whether one Ctrl-C, two or the watchdog ended it"),
    NotCovered("events.jsonl", "trial_retried.failure", _WHY),
    NotCovered("events.jsonl", "trial_restarted.reason", "what was wrong with a state stands nowhere else"),
    NotCovered("events.jsonl", "trial_ended.failure.cause", _WHY),
    NotCovered("events.jsonl", "trial_ended.failure.traceback", _WHY),
    NotCovered("events.jsonl", "trial_ended.failure.host", _WHY),
    NotCovered("events.jsonl", "trial_ended.failure.node", _WHY),
    NotCovered("events.jsonl", "smoke_step_failed.config", _WHY),
    NotCovered("events.jsonl", "smoke_step_failed.failure.error", _WHY),
    NotCovered("events.jsonl", "smoke_step_failed.failure.traceback", _WHY),
    NotCovered("events.jsonl", "smoke_step_failed.failure.host", _WHY),
    NotCovered("events.jsonl", "smoke_step_failed.failure.node", _WHY),
    NotCovered("events.jsonl", "node_left_out.trials", "which node a trial ran on stands nowhere else"),
    NotCovered("events.jsonl", "launch_began.time", _ORDER),
    NotCovered("events.jsonl", "launch_ended.time", _ORDER),
    NotCovered("events.jsonl", "start_chosen.time", _ORDER),
    NotCovered("events.jsonl", "epoch_reported.time", _ORDER),
    NotCovered("events.jsonl", "asha_decided.time", _ORDER),
    NotCovered("events.jsonl", "trial_retried.time", _ORDER),
    NotCovered("events.jsonl", "trial_restarted.time", _ORDER),
    NotCovered("events.jsonl", "trial_reopened.time", _ORDER),
    NotCovered("events.jsonl", "smoke_step_failed.time", _ORDER),
    NotCovered("events.jsonl", "node_left_out.time", _ORDER),
    NotCovered("events.jsonl", "node_taken_back.time", _ORDER),
    NotCovered("events.jsonl", "study_paused.time", _ORDER),
    NotCovered("events.jsonl", "search_closed.time", _ORDER),
    NotCovered("events.jsonl", "confirm_closed.time", _ORDER),
    NotCovered("events.jsonl", "epoch_reported.report.row.train_loss", "measured once"),
    NotCovered("events.jsonl", "epoch_reported.report.row.train_seconds", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.row.eval_seconds", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.row.mean_layers", "of a sampled exit: decimals behind the 12th"),
    NotCovered("events.jsonl", "epoch_reported.report.row.metrics.sample_std", _NOT_SELECTED),
    NotCovered("events.jsonl", "epoch_reported.report.row.metrics.expected_accuracy", _NOT_SELECTED),
    NotCovered("events.jsonl", "epoch_reported.report.row.metrics.expected_mean_layers", _NOT_SELECTED),
    NotCovered("events.jsonl", "epoch_reported.report.row.metrics.mlm_loss", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.row.metrics.sop_accuracy", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.row.metrics.tokens", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.outcome.eval_seconds", "of a confirm trial: measured once"),
    NotCovered("events.jsonl", "epoch_reported.report.wall_seconds", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.gpu_seconds", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.host", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.device", _BEFORE_LAST),
    NotCovered("events.jsonl", "epoch_reported.report.gpu_share", "measured once"),
    NotCovered("events.jsonl", "epoch_reported.report.gpu", "where a trial happened to run"),
)

NOT_COVERED = (
    NotCovered("optuna.journal", "worker_id", "which process wrote a line"),
    NotCovered("trials/KEY/model-epoch-N/model.safetensors", "", "weights of confirm trials are not hashed: gigabytes"),
    NotCovered("trials/KEY/model-epoch-N/tokenizer*", "", "files of the backbone's, not of the study's"),
    NotCovered("trials under a URI", "", "no model is fetched"),
    NotCovered("mlflow.db", "", "an output of the mirror"),
    NotCovered("mirror.log", "", "free text"),
    NotCovered("workers.log", "", "free text"),
    NotCovered("launch.lock", "", "free text"),
)


def in_words() -> str:
    """What is not covered, in a paragraph that a screen has room for; fields with one reason together."""
    chain = (
        f"{len(CHAIN_ALONE)} fields of events.jsonl are held by the chain of its lines alone, so not where it, "
        "records, tables and report were all made anew: such as who ran a launch and where, why a trial broke off, "
        "when something happened, what was measured once"
    )
    nowhere = f"Not covered, because nothing in the folder repeats it: {_listed(NOT_COVERED)}."
    return f"{nowhere} {chain}. Each of them stands with its reason in analysis/verification/not_covered.py."


def _listed(entries: tuple[NotCovered, ...]) -> str:
    groups: dict[tuple[str, str], list[str]] = {}
    for item in entries:
        groups.setdefault((item.file, item.reason), []).append(item.field)
    items = [f"{' '.join([file, ', '.join(fields)]).strip()} ({reason})" for (file, reason), fields in groups.items()]
    return "; ".join(items)
