"""What ASHA lost: stopped search trials that were trained to their end outside of the search, beside its winner."""

from __future__ import annotations

from study.counterfactual.curves import audited
from study.decisions.progress import ArmProgress
from trainables.schema import Typed

LEVEL = 0.95


class Audit(Typed, frozen=True, kw_only=True):
    """The audit of an arm."""

    stopped: int  # search trials that ASHA stopped
    audited: int  # of these, those that were trained to their end: a draw that no score decides
    better: int  # of these, those with a better selection score than the winner of the search
    most_gained: float  # by how much the best of them is better; at most 0 where none is
    share_low: float  # 95 % Clopper-Pearson interval of the share of stopped trials that are better
    share_high: float

    def in_words(self) -> str:
        """A sentence."""
        share = f"{100 * self.share_low:.0f} to {100 * self.share_high:.0f} % of all stopped ones (95 %)"
        if not self.better:
            return f"of {self.audited} audited of {self.stopped} stopped trials none beats the winner; {share} may"
        gained = f"by up to {100 * self.most_gained:.1f} points of search score"
        seen = f"of {self.audited} audited of {self.stopped} stopped trials {self.better} beat the winner"
        return f"{seen} {gained}; {share}"


def audit_of(arm: ArmProgress) -> Audit | None:
    """None where no audit has completed, or no search trial."""
    stopped = {audited(trial) for trial in arm.facts.search if trial.record and trial.record.status == "stopped"}
    records = [trial.record for trial in arm.facts.audit if audited(trial) in stopped]
    scores = [record.selection_score for record in records if record and record.selection_score is not None]
    best = arm.winner.search.selection_score if arm.winner and arm.winner.search else None
    if not scores or best is None:
        return None
    better = sum(score > best for score in scores)
    low, high = share_interval(better, len(scores))
    return Audit(
        stopped=len(stopped),
        audited=len(scores),
        better=better,
        most_gained=max(scores) - best,
        share_low=low,
        share_high=high,
    )


def share_interval(found: int, tried: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `found` of `tried` were seen (Clopper and Pearson, 1934)."""
    from scipy import special  # takes a while to import

    tail = (1 - LEVEL) / 2
    low = float(special.betaincinv(found, tried - found + 1, tail)) if found else 0.0
    high = float(special.betaincinv(found + 1, tried - found, 1 - tail)) if found < tried else 1.0
    return low, high
