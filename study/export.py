"""Exports a trained model as a folder of `transformers`: `python -m study.export runs/NAME --to FOLDER`.

`AutoModel.from_pretrained` loads the folder; where `transformers` has a class that computes the same logits, so does
`AutoModelForSequenceClassification`. What it has no class for, the heads of exits, is in a file of its own, and
`study.predict` answers with all of it. The files of a method of your own go with it, in `methods`. A README.md says
where the model comes from.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import UNSET

from study.chosen_models import ModelChoice, chosen_model
from study.command_line import Parser, argument, guarded, option
from study.facts.record import Record
from study.facts.study_facts import read_facts, read_records
from study.model_card import Pretraining, model_card
from study.plans.identity import is_pretraining
from study.plans.included_folder import INCLUDE_NOW, include_for
from study.plans.plan_file import require_plan
from study.storage.output_places import check_new_folder
from study.storage.stored_models import local_model
from trainables.atomic_files import write_folder
from trainables.encoders.backbones import backbone_fingerprint


class Options(ModelChoice, frozen=True, kw_only=True):
    """The options of this command."""

    study: Annotated[str, argument("runs/NAME", "the study's folder")]
    to: Annotated[str, option("made; what holds something is refused", "FOLDER")]
    include: Annotated[str | None, option(INCLUDE_NOW, "FOLDER")] = None


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is exported, 2 if that cannot be done."""
    return guarded("study.export", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    options = build_parser().options(argv)
    check_new_folder("--to", Path(options.to))
    folder = Path(os.path.realpath(options.to))
    record = chosen_model(Path(options.study), options)
    include_for(record.method, require_plan(Path(options.study)).plan.asked, options.include)
    fingerprint, pretraining = fingerprint_left(Path(options.study), record), pretraining_behind(Path(options.study))
    loaded_as = export(record, folder, fingerprint=fingerprint, pretraining=pretraining)
    print(f"wrote {folder}: {loaded_as}, {record.arm}, seed {record.seed}, trial {record.key}")
    return 0


def build_parser() -> Parser[Options]:
    return Parser(Options, "study.export", " ".join((__doc__ or "").split("\n\n")))


def fingerprint_left(study: Path, record: Record) -> str | None:
    """Of the files that a pretraining left, by the journal; None for other trials, whose weights nobody has hashed."""
    trial = read_facts(study).trials.get(record.key)
    outcome = trial.last.report.outcome if trial and trial.last else None
    return None if outcome is None or outcome.model_fingerprint is UNSET else outcome.model_fingerprint


def pretraining_behind(study: Path) -> Pretraining | None:
    """What made the backbone of a study's arms; None where nothing was pretrained."""
    arm, records = require_plan(study).plan.pretraining, read_records(study)
    done = [record for record in records if record.phase == "pretrain" and record.status == "completed"]
    return None if arm is UNSET or not done else Pretraining(arm, done[-1])


def export(
    record: Record, folder: Path, *, fingerprint: str | None = None, pretraining: Pretraining | None = None
) -> str:
    """Writes the model of a record, whole or not at all; the class of `transformers` that it is.

    Raises:
        ValueError: no class of `transformers` is its encoder, or its files do not have the fingerprint.
    """
    with local_model(record.model or "") as model:
        if fingerprint is not None and (found := backbone_fingerprint(str(model))) != fingerprint:
            raise ValueError(f"the model of trial {record.key} was changed: {found}; its trial left {fingerprint}")
        write_folder(folder, lambda unfinished: _fill(unfinished, record, model, pretraining))
    return _class_of(folder)


def _fill(folder: Path, record: Record, model: Path, pretraining: Pretraining | None) -> None:
    from trainables.runs.trained_model import METHODS, export_pretrained, export_trained, load_trained

    try:
        if is_pretraining(record.task):
            export_pretrained(model, folder)
        else:
            export_trained(load_trained(model), folder)
    except ValueError as error:
        raise ValueError(f"trial {record.key} ({record.arm}) cannot be exported: {error}") from error
    own = METHODS if (folder / METHODS).is_dir() else None
    card = model_card(record, _class_of(folder), pretraining, methods=own)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _class_of(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["architectures"][0])


if __name__ == "__main__":
    sys.exit(main())
