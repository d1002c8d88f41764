"""An empty trial that reports as one on a GPU does, for Ray's workers to import."""

from __future__ import annotations

import socket
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks import synthetic_trials as synthetic
from study.drivers.messages import ASSIGNMENTS, MESSAGES
from study.drivers.trial_actor import MESSAGE, place_of_actor


class SharingTrial(synthetic.StudyTrial):
    """Says where it waits, as a trial on a GPU does."""

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self._gpus = ASSIGNMENTS.read(config[MESSAGE].encode(), where="an assignment").gpus
        self._seconds = 0.0

    def step(self) -> dict[str, Any]:
        (news,) = MESSAGES.read(super().step()[MESSAGE].encode(), where="a message").news
        self._seconds += news.report.wall_seconds
        row = replace(news.report.row, train_seconds=self._seconds, eval_seconds=0.0)
        node, gpu = place_of_actor()
        costs = {"wall_seconds": self._seconds, "gpu_seconds": self._gpus * self._seconds, "gpu_share": 0.05}
        said = replace(news, report=replace(news.report, row=row, host=socket.gethostname(), gpu=gpu, **costs))
        return {MESSAGE: msgspec.json.encode({"news": [said], "node": node}).decode()}
