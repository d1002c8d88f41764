"""The worked examples of docs/own_method.md: pytest tests/study/test_own_method_examples.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.edited_files import replace_in
from helpers.families import FAMILIES, TEXTS, write_backbone
from helpers.own_methods import write_methods
from helpers.plan_files import plan_from
from helpers.trials import assert_equal_weights, spec_of
from transformers import AutoModel, AutoTokenizer

import trainables
from study import check_method, launch, predict
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.files import method_files
from trainables.files.sources import hash_folder
from trainables.models.answer_rules import FixedLayer
from trainables.runs.flops import count_flops
from trainables.runs.trained_model import TrainedModel, export_trained, load_trained
from trainables.runs.training import TrainingRun
from trainables.runs.trial import TrialSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_rows")]
ROWS = 32


@pytest.fixture
def adapters(tmp_path: Path) -> Iterator[Path]:
    folder = write_methods(tmp_path / "adapters", "adapters")
    trainables.include(folder)
    yield folder
    method_files.include(None)


@pytest.fixture(scope="module")
def teacher(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model of RTE."""
    run = TrainingRun(spec_of("albert", "rte", config={"epochs": 1, "num_hidden_layers": 3}), cache=cache, limit=ROWS)
    run.run_epoch()
    return exported(run, tmp_path_factory.mktemp("teachers") / "teacher")


@pytest.fixture
def distilled(teacher: Path, tmp_path: Path) -> Iterator[Path]:
    folder = write_methods(tmp_path / "distilled", "distilled")
    replace_in(folder / "distilled.py", "/models/teacher", str(teacher))
    trainables.include(folder)
    yield folder
    method_files.include(None)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def trained_model(run: TrainingRun) -> TrainedModel:
    return TrainedModel(run.spec, run._config, run._task, run._model.eval(), run._data.tokenizer)


def exported(run: TrainingRun, folder: Path) -> Path:
    folder.mkdir()
    export_trained(trained_model(run), folder)
    return folder


def run_whole_and_resumed(spec: TrialSpec, cache: Path, folder: Path) -> tuple[TrainingRun, TrainingRun]:
    """A trial of two epochs that never stopped, and one that was saved after its first epoch."""
    whole, run = (TrainingRun(spec, cache=cache, limit=ROWS) for _ in range(2))
    whole.run_epoch()
    run.run_epoch()
    run.save(folder)
    torch.rand(3)
    resumed = TrainingRun.resume(folder, cache=cache, limit=ROWS)
    for each in (whole, resumed):
        each.run_epoch()
    return whole, resumed


def key_of(plan: ResolvedPlan) -> str:
    (arm,) = plan.arms
    return plan.trial_key(arm, phase="confirm", config=arm.any_configuration, seed=42, start=None)


def resolved(folder: Path, *words: str) -> ResolvedPlan:
    asked = ["--include", str(folder), "--task", "rte", "--profile", "mini", "--samples", "1", *words]
    return resolve(plan_from(*asked))


# Adapters.


@pytest.mark.long
@pytest.mark.parametrize("folder", ["adapters", "distilled"])
def test_an_example_passes_the_check_of_methods(folder: str, request: pytest.FixtureRequest) -> None:
    assert check_method.main([str(request.getfixturevalue(folder))]) == 0


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.long] * (place > 2)) for place, name in enumerate(FAMILIES)]
)
def test_adapters_resume_export_and_predict_on_every_family(
    family: str, adapters: Path, cache: Path, tmp_path: Path
) -> None:
    backbone = str(write_backbone(tmp_path / family, family, vocab_size=3000))
    config = {"num_hidden_layers": 0, "max_length": 32, "lora_rank": 2, "hidden_dropout": 0.1}
    spec = spec_of("lora", "rte", backbone=backbone, config=config)
    whole, run = run_whole_and_resumed(spec, cache, tmp_path / "state")
    assert_equal_weights(whole._model.state_dict(), run._model.state_dict())
    folder = exported(run, tmp_path / "exported")
    batch = dict(AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt"))
    loaded = load_trained(folder).model
    assert torch.equal(loaded.all_exits(batch).logits, run._model.eval().all_exits(batch).logits)
    with torch.no_grad():  # the merged weights are those of a plain model
        expected = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state[:, 0]
        *_, first = loaded.encoder.first_tokens(**batch)
    torch.testing.assert_close(loaded.encoder.final_norm(first), expected, rtol=0, atol=1e-5)


def test_adapters_train_narrow_matrices_and_cost_no_flops(adapters: Path, cache: Path) -> None:
    run = TrainingRun(spec_of("lora", "rte", config={"lora_rank": 2}), cache=cache, limit=ROWS)
    before = {name: weight.clone() for name, weight in run._model.state_dict().items()}
    for _ in range(2):  # the first step changes only one of the two matrices, because the other is 0
        run.run_epoch()
    after, model = run._model.state_dict(), run._model.eval()
    changed = {name for name, weight in after.items() if not weight.equal(before[name])}
    ends = {name.rsplit(".", 2)[-2] + "." + name.rsplit(".", 1)[-1] for name in changed if "layers" in name}
    assert ends == {f"{layer}.{part}" for layer in ("query", "value") for part in ("weight", "up", "down")}
    assert all(name.startswith(("encoder.layers", "encoder.pooler", "classifiers")) for name in changed)
    pabee = TrainingRun(spec_of("pabee", "rte"), cache=cache, limit=ROWS)._model.eval()
    batch = {"input_ids": torch.arange(5, 17)[None], "attention_mask": torch.ones(1, 12, dtype=torch.int64)}
    costs = [count_flops(lambda model=each: model.infer(batch, rule=FixedLayer(2))) for each in (model, pabee)]
    assert costs[0] == costs[1]
    layer = model.encoder.layers[0].albert_layers[0].attention.query
    assert layer.weight.equal(layer.pretrained + layer.scale * layer.up @ layer.down)


def test_the_rank_is_in_the_key(adapters: Path) -> None:
    ranks = [resolved(adapters, "--method", "lora", "--set", f"lora_rank={rank}") for rank in (4, 8)]
    assert len({*map(key_of, ranks)}) == 2


# Distillation.


def test_a_student_resumes_and_its_export_predicts_without_the_teacher(
    distilled: Path, teacher: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"hidden_dropout": 0.1, "teacher": hash_folder(teacher)[:16]}
    whole, run = run_whole_and_resumed(spec_of("distilled", "rte", config=config), cache, tmp_path / "state")
    assert_equal_weights(whole._model.state_dict(), run._model.state_dict())
    assert not any("teacher" in name for name in run._model.state_dict())
    folder = exported(run, tmp_path / "exported")
    expected = run._model.eval().all_exits(next(batches(run))).logits
    hidden = teacher.rename(teacher.with_name("away"))
    try:
        assert torch.equal(load_trained(folder).model.all_exits(next(batches(run))).logits, expected)
        (tmp_path / "input.tsv").write_text("sentence1\tsentence2\na dog sleeps\tit sleeps\n")
        method_files.include(None)
        asked = [str(folder), str(tmp_path / "input.tsv"), "--include", str(folder / "methods")]
        assert predict.main([*asked, "--to", str(tmp_path / "answers.tsv")]) == 0
    finally:
        hidden.rename(teacher)


def batches(run: TrainingRun) -> Iterator[dict[str, torch.Tensor]]:
    yield run._data.selection.batch(np.arange(8), torch.device("cpu"))


def test_the_loss_is_that_of_hinton_with_the_weights_of_pabee(distilled: Path, teacher: Path, cache: Path) -> None:
    config = {"teacher": hash_folder(teacher)[:16], "teacher_weight": 0.25, "temperature": 3.0}
    run = TrainingRun(spec_of("distilled", "rte", config=config), cache=cache, limit=ROWS)
    model, batch = run._model.eval(), next(batches(run))
    ours = model.loss(batch)["loss"].item()
    answers = (load_trained(teacher).model.all_exits(batch).logits[-1] / 3).softmax(dim=1)
    total = 0.0
    for number, logits in enumerate(model.all_exits(batch).logits, start=1):
        soft = (answers * (answers.log() - (logits / 3).log_softmax(dim=1))).sum(dim=1).mean()
        hard = torch.nn.functional.cross_entropy(logits, batch["labels"])
        total += number * float(0.25 * 9 * soft + 0.75 * hard)
    assert ours == pytest.approx(total / 3, rel=1e-5)


def test_the_teachers_digest_is_in_the_key(distilled: Path, teacher: Path) -> None:
    first = resolved(distilled, "--method", "distilled")
    assert first.arms[0].fixed["teacher"] == hash_folder(teacher)[:16]
    (teacher / "README.md").write_text("another teacher\n")
    try:
        method_files.include(None)
        second = resolved(distilled, "--method", "distilled")
        assert key_of(first) != key_of(second)
    finally:
        (teacher / "README.md").unlink()


def test_another_teacher_than_that_of_the_trial_is_refused(distilled: Path, cache: Path) -> None:
    run = TrainingRun(spec_of("distilled", "rte", config={"teacher": "0" * 16}), cache=cache, limit=ROWS)
    with pytest.raises(ValueError, match="teacher is not the teacher of this trial, whose digest is 0000000000000000"):
        run.run_epoch()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{teacher}", "/no/teacher", "/no/teacher has no teacher; allowed: a folder that study.export wrote"),
        ("--task rte", "--task cola", "answers rte, not cola; allowed: a task with classes"),
    ],
)
def test_a_teacher_that_cannot_teach_is_one_line(
    old: str, new: str, message: str, distilled: Path, teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"--include {distilled} --method distilled --task rte --profile mini --dry-run --out {tmp_path}"
    if old.startswith("--"):
        asked = asked.replace(old, new)
    else:
        replace_in(distilled / "distilled.py", old.format(teacher=teacher), new)
    method_files.include(None)
    assert launch.main(asked.split()) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
