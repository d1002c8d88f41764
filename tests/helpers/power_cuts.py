"""Kills a study, and all that it has started, at once, and launches it again until it is done.

    python -m helpers.power_cuts --cuts 9

The long form of the test in tests/study/test_power_cuts.py. Only processes that were started here are killed, by their
numbers.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.launches import Launches
from helpers.started_processes import kill_all

from analysis.verify import first_difference, list_differences, verify
from study.facts.record import Record
from study.facts.study_facts import read_facts
from trainables.configuration.schema import to_plain
from trainables.files.sources import hash_of_file

# What may differ between two runs of the same study: places, all that a clock says, and a commit of the same sources.
OF_THE_RUN = ("model", "host", "started", "ended", "git_commit")
COSTS = ("train_seconds", "eval_seconds", "gpu_seconds", "wall_seconds")


@dataclass
class CutOffStudy(Launches):
    """A study whose launches have a Ray or workers of their own: a machine that loses its power."""

    cuts: int = 0

    def run(self, moments: Iterable[int]) -> None:
        """Kills a launch with all that it has started at each moment, a number of epochs in the journal; then ends."""
        launcher = self.launch()
        try:
            for moment in moments:
                if not self.wait_for(moment, launcher):
                    break
                kill_all(launcher)
                self.cuts += 1
                launcher = self.launch()
            self.finish(launcher)
        finally:
            kill_all(launcher)


def run_cut_off(folder: Path, arguments: list[str], *, moments: Iterable[int], seed: int = 0) -> CutOffStudy:
    """A study in a new folder, to its end, killed as a whole at each of the moments."""
    folder.mkdir()
    study = CutOffStudy(folder / "study", arguments, random.Random(seed))
    study.run(moments)
    return study


def small_study(*, epochs: int, seeds: int) -> list[str]:
    """Arguments of a launch that tunes one arm and repeats its winner.

    What it asks for next depends on no order: a grid, and nothing is stopped.
    """
    tuning = ["--method", "albert", "--task", "rte", "--sampler", "grid", "--early-stopping", "none"]
    return [*tuning, "--samples", "2", "--seeds", str(seeds), "--epochs", str(epochs), "--profile", "mini"]


def results_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Key -> record and, where a model is kept, the hash of its weights; without costs and what is each run's own."""
    return {record.key: _result(record) for record in read_facts(folder).records}


def _result(record: Record) -> dict[str, Any]:
    values = {name: value for name, value in to_plain(record).items() if name not in (*OF_THE_RUN, *COSTS)}
    return values | {"weights": record.model and hash_of_file(Path(record.model) / "model.safetensors")}


def differences_of(folder: Path, undisturbed: Path) -> list[str]:
    """What a study's records, weights and table have, and those of one that was not disturbed have not; and what
    `analysis.verify` says of either."""
    tables = [(study / "tables" / "dev.csv").read_bytes() for study in (folder, undisturbed)]
    lines = list_differences("records", results_of(folder), results_of(undisturbed))
    lines += [f"dev.csv: {first_difference(*tables)}"] * (tables[0] != tables[1])
    return [*lines, *verify(folder), *verify(undisturbed)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuts", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    arguments, epochs = small_study(epochs=7, seeds=2), 4 * 7
    moments = sorted(random.Random(options.seed).sample(range(1, epochs - options.cuts), options.cuts))
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        cut_off = run_cut_off(home / "cut-off", arguments, moments=moments, seed=options.seed)
        undisturbed = run_cut_off(home / "undisturbed", arguments, moments=[])
        print(f"{cut_off.cuts} cuts, after epochs {moments}")
        if lines := differences_of(cut_off.folder, undisturbed.folder):
            raise SystemExit("\n".join(lines))
    if cut_off.cuts < options.cuts:
        raise SystemExit(f"the study was done before it had been cut off {options.cuts} times")


if __name__ == "__main__":
    main()
