"""Measurements of times in the journals of made studies."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import numpy as np

from study.facts.events import TimesMeasured
from study.facts.journal import Journal
from study.facts.record import Record
from trainables.runs.times import DETAIL_EVERY, LayerTime, TimedModel

SIZES = (1, 32)
TEXTS, ROUNDS = 40, 5


def timed_study(
    folder: Path,
    milliseconds: Callable[[Record, int], float],
    *,
    others: float | None = 0.02,
    spread: float = 0.005,
    drift: tuple[float, ...] = (1.0,) * ROUNDS,
    host: str = "node-1",
    threads: int = 1,
    heads: float = 0.1,
    sizes: tuple[int, ...] = SIZES,
    widths: Mapping[str, float] = MappingProxyType({}),
    seed: int = 0,
    seeds_timed: Container[int] = range(1_000),
) -> Path:
    """Adds a measurement of the study's confirm trials with these seeds.

    `milliseconds` is the mean at a batch size. Texts differ from it by up to 20 %, or by a method's share in `widths`.
    """
    rng = np.random.default_rng(seed)
    with closing(Journal(folder)) as journal:
        records = [record for record in journal.facts.records if record.phase == "confirm" and record.score is not None]
        records = [record for record in records if record.seed in seeds_timed]
        models, layers = [], []
        for record in records:
            for size in sizes:
                mean = milliseconds(record, size)
                models.append(_model(record, size, mean, widths.get(record.method, 0.2), rng, spread, drift))
                layers.append(
                    LayerTime(
                        key=record.key, batch_size=size, encoder=mean / 12, heads=heads * mean / 12, decision=0.01
                    )
                )
            models += _details(record, milliseconds(record, 1))
        event = TimesMeasured(
            time=journal.now(),
            host=host,
            device="A Processor",
            threads=threads,
            torch="2.13.0",
            clock="cpu",
            processors=2,
            others_before=others,
            others_during=others,
            seconds=60.0,
            models=models,
            layers=layers,
        )
        journal.append(event)
    return folder


def _model(
    record: Record,
    size: int,
    mean: float,
    width: float,
    rng: np.random.Generator,
    spread: float,
    drift: tuple[float, ...],
) -> TimedModel:
    """A model's times: all texts vary alike, and its rounds by `spread`, apart from the `drift` of all models."""
    texts = mean * np.linspace(1 - width, 1 + width, TEXTS) * (1 + 0.002 * rng.normal(size=TEXTS))
    rounds = mean * np.array(drift) * (1 + spread * rng.normal(size=ROUNDS))
    return TimedModel(
        key=record.key,
        exit="own",
        rule="threshold",
        batch_size=size,
        mean_layers=record.mean_layers or 12.0,
        texts=tuple(texts.tolist()),
        rounds=tuple(rounds.tolist()),
    )


def _details(record: Record, mean: float) -> list[TimedModel]:
    """Layers, cuts and two settings: a layer takes a twelfth of the mean, and a cut four fifths of that.

    With greatest probability, a layer takes nine tenths of what it takes with the method's own exits.
    """
    if record.method == "albert":
        return []

    def made(kind: str, at: float, time: float, rule: str = "made", **more: object) -> TimedModel:
        numbers = {"texts": (time,) * (TEXTS // DETAIL_EVERY), "rounds": (time,) * ROUNDS}
        return TimedModel(key=record.key, exit=kind, rule=rule, at=at, batch_size=1, mean_layers=at, **numbers, **more)

    layers = range(1, 13)
    found = [made("layer", layer, mean * layer / 12) for layer in layers]
    found += [made("cut", layer, 0.8 * mean * layer / 12) for layer in layers]
    found += [made("layer", layer, 0.9 * mean * layer / 12, rule="max_probability") for layer in layers]
    return [*found, *(made("setting", at, 1.02 * mean * at / 12, exit_layers=(int(at),) * 8) for at in (3, 6))]
