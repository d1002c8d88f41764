"""A pretraining run with what a worker asks of any run: epochs, a saved state, an outcome, what it is made of."""

from __future__ import annotations

from pathlib import Path

from study.drivers.messages import ProcessGroup
from study.drivers.pretraining_rows import epoch_row, outcome_of
from trainables.data.tokenised import cache_folder
from trainables.runs.pretraining_run import PretrainingRun, content_of_pretraining
from trainables.runs.pretraining_trial import PretrainingSpec
from trainables.runs.trial import Content, EpochRow, Outcome


class PretrainingTrial:
    """The run in the terms of a trial: its last epoch is the selected one, and every example runs all layers.

    `group`: the processes that train it, between whose epochs it is here; None: this one does.
    """

    def __init__(self, run: PretrainingRun, group: ProcessGroup | None = None) -> None:
        self.run = run
        self._group = group

    @classmethod
    def new(cls, spec: PretrainingSpec, device: str, group: ProcessGroup | None = None) -> PretrainingTrial:
        return cls(PretrainingRun(spec, device=device, cache=cache_folder()), group)

    @classmethod
    def resume(
        cls, folder: Path, spec: PretrainingSpec, device: str, group: ProcessGroup | None = None
    ) -> PretrainingTrial:
        """The run that was saved in `folder`; see `PretrainingRun.resume`."""
        return cls(PretrainingRun.resume(folder, spec=spec, device=device, cache=cache_folder()), group)

    def content(self) -> Content:
        """What it is made of, by what this process has read."""
        return content_of_pretraining(self.run)

    @property
    def history(self) -> list[EpochRow]:
        return [epoch_row(row, num_layers=self.run.num_layers) for row in self.run.history]

    def run_epoch(self) -> EpochRow:
        """Trains for an epoch; see `PretrainingRun.run_epoch`."""
        if self._group is None:
            self.run.run_epoch()
        else:
            from study.drivers.pretraining_group import run_epoch_in_group

            run_epoch_in_group(self.run, self._group)
        return self.history[-1]

    def save(self, folder: Path) -> None:
        """Replaces what is saved in `folder`."""
        self.run.save(folder)

    def outcome(self, predictions: Path | None = None) -> Outcome:
        """The outcome, with the content of the model that is left, as a backbone. There are no predictions."""
        assert predictions is None
        return outcome_of(self.run.outcome(), num_layers=self.run.num_layers)
