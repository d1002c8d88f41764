"""How the heads read a layer, from the option to the report: pytest tests/study/test_pooling.py"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.configurations import SIZES
from helpers.corpora import pretrained_folder, without_pooler
from helpers.edited_files import replace_in
from helpers.launched_studies import launched_study, mini_plan
from helpers.messages import says
from helpers.own_methods import write_methods
from helpers.places import ROOT
from helpers.plan_files import plan_from
from helpers.trained_studies import trained_study
from msgspec.structs import replace
from transformers import AutoConfig, AutoModel

from analysis.layouts.protocol_notes import describe_pooling
from analysis.studies.load import load_study
from study import check_method, console, export, launch, predict
from study.facts.plan_file import compare_plans, require_plan
from study.facts.study_facts import read_facts
from study.plans.resolution import resolve
from study.plans.resolved_plan import Arm, ResolvedPlan
from trainables.encoders.mini_backbones import word_tokenizer
from trainables.files import method_files
from trainables.runs.trained_model import load_trained

KEPT = sorted((ROOT / "benchmarks" / "results" / "real" / "cpu").glob("*/plan.json"))
MEAN = ("--set", "pooling=mean")
REMEDY = "; --set pooling=mean reads the mean of the tokens instead\n"


def resolved_from(*words: str) -> ResolvedPlan:
    return resolve(plan_from("--task", "rte", *words))


def key_of(plan: ResolvedPlan, arm: Arm) -> str:
    return plan.trial_key(arm, phase="confirm", config=arm.any_configuration, seed=42, start=None)


def dry_run(capsys, *words: str) -> str:
    departures = [] if "--explain" in words else ["--departures"]
    assert launch.main(["--task", "rte", "--dry-run", *departures, *words]) == 0
    return capsys.readouterr().out


def refused(capsys, *words: str) -> str:
    """The one line with which the launch was refused."""
    assert launch.main(["--task", "rte", "--dry-run", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed
    return printed.err.removeprefix("study.launch: ").strip()


def test_the_default_is_no_part_of_configurations_and_keys():
    plain, same = resolved_from(), resolved_from("--set", "pooling=pooler")
    assert "pooling" not in plain.arms[0].fixed
    assert key_of(plain, plain.arms[0]) == key_of(same, same.arms[0])
    other = resolved_from(*MEAN)
    assert other.arms[0].fixed == {**plain.arms[0].fixed, "pooling": "mean"}
    assert key_of(other, other.arms[0]) != key_of(plain, plain.arms[0])
    assert compare_plans(plain, other) == ['pooling "pooler" -> "mean"']


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.parent.name)
def test_kept_trials_have_the_keys_that_their_plans_give(file):
    plan = require_plan(file.parent).plan
    for record in read_facts(file.parent).records:
        arm = plan.arm(f"{record.method}/{record.task}")
        chosen = arm.exit_settings if record.phase == "search" else {}
        config = {field: value for field, value in record.config.items() if field not in chosen}
        key = plan.trial_key(arm, phase=record.phase, config=config, seed=record.seed, start=record.start)
        assert key == record.key and record.config.get("pooling") != "pooler"


def test_explain_and_try_print_the_pooling_with_its_origin(capsys):
    explained = dry_run(capsys, "--method", "pabee", "--explain", "pabee/rte").split("\n")
    default = [line.split() for line in explained if line.split()[:1] == ["pooling"]]
    assert default == [["pooling", '"pooler"', "search_spaces/_every_method.py", "FIXED"]]
    words = ["pabee", "--task", "rte", "--limit", "8", "--set", "epochs=1", *MEAN]
    assert console.main(["try", *words]) == 0
    assert ["pooling", '"mean"', "--set", "pooling"] in [line.split() for line in capsys.readouterr().out.split("\n")]


def test_another_pooling_stands_in_the_dry_run_and_the_departures(capsys):
    said = dry_run(capsys, "--method", "albert,pabee", "--set", "pabee:pooling=mean")
    assert says(said, "\nthe heads of pabee ", "mean of the tokens, without a pooler\n")
    assert says(" ".join(said.split()), "pooling of pabee: the mean of the tokens, ", "(paper: [CLS] ")
    said = dry_run(capsys, "--method", "pabee", "--search", "pooling=pooler,first")
    assert says(said, "\nthe heads of pabee (if the search ", "[CLS], without a pooler\n")
    plain = dry_run(capsys, "--method", "albert,pabee")
    assert "heads of" not in plain and "pooling" not in plain


def test_another_pooling_stands_in_the_caption(tmp_path):
    study = launched_study(tmp_path / "study", mini_plan(methods=("albert", "pabee"), settings={"pooling": "mean"}))
    (sentence,) = describe_pooling([load_study(study)])
    assert says(sentence, "heads of albert, pabee ", "mean of the tokens, ", "without a pooler.")
    assert sentence in (study / "tables" / "dev.md").read_text()


def read_by_mean(folder: Path, **changes: object) -> Path:
    """Describe a folder as sentence-transformers does."""
    (folder / "1_Pooling").mkdir()
    content = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True} | changes
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(content))
    return folder


def test_untrained_pooler_is_named_with_remedy(capsys, tmp_path):
    folder = read_by_mean(pretrained_folder(tmp_path / "ours"))
    said = dry_run(capsys, "--backbone", str(folder))
    assert says(said, f"backbone {folder} was trained on the mean ", f"its pooler is not trained{REMEDY}")
    assert says(said, "poolers of backbones: not trained, ", "(paper: pretrained)")
    said = dry_run(capsys, "--backbone", str(folder), *MEAN)
    assert "pooler is not trained" not in said and "poolers of backbones" not in said


@pytest.mark.parametrize("content", [{"pooling_mode_mean_tokens": False}, {"pooling_mode": "cls"}])
def test_a_backbone_that_was_read_otherwise_is_not_named(capsys, tmp_path, content):
    folder = read_by_mean(pretrained_folder(tmp_path / "ours"), **{"pooling_mode_mean_tokens": False, **content})
    assert "pooler is not trained" not in dry_run(capsys, "--backbone", str(folder))
    (folder / "1_Pooling" / "config.json").write_text("{")  # not needed to load the backbone
    assert "pooler is not trained" not in dry_run(capsys, "--backbone", str(folder))


def test_a_missing_pooler_is_not_named_if_no_head_reads_it(capsys, tmp_path):
    folder = without_pooler(pretrained_folder(tmp_path / "ours"))
    assert says(dry_run(capsys, "--backbone", str(folder)), f"{folder} has no pooler, ", f"a random one{REMEDY}")
    assert "no pooler" not in dry_run(capsys, "--backbone", str(folder), *MEAN)


@pytest.mark.parametrize("family", ["electra", "roberta"])
def test_families_that_publish_no_pooler_are_named(family, capsys, tmp_path):
    folder = saved(tmp_path, family)
    assert says(dry_run(capsys, "--backbone", folder), f"{folder} has no pooler, ", f"a random one{REMEDY}")
    assert "no pooler" not in dry_run(capsys, "--backbone", folder, *MEAN)


def test_electra_s_own_head_needs_no_pooler(capsys, tmp_path):
    asked = ("--method", "electra-small", "--backbone", saved(tmp_path, "electra"))
    assert "pooler" not in dry_run(capsys, *asked)
    assert says(dry_run(capsys, *asked, "--set", "head=pooled"), " has no pooler, ")


def saved(folder: Path, family: str) -> str:
    config = AutoConfig.for_model(family, **(SIZES | {"max_position_embeddings": 140}))
    AutoModel.from_config(config).save_pretrained(folder)
    word_tokenizer(["ships wait ."]).backend_tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def test_the_caption_names_a_pooler_that_was_not_trained(tmp_path):
    plan = mini_plan(methods=("albert",))
    plan = replace(plan, arms=tuple(replace(arm, trained_on_mean=True) for arm in plan.arms))
    text = (launched_study(tmp_path / "study", plan) / "tables" / "dev.md").read_text()
    assert says(text, "Backbone mini-albert was trained on the mean ", "not trained; --set pooling")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--set", "pooling=means"],
            ["--set pooling is 'means'; ", "first, fresh, mean, pooler; did you mean mean?"],
        ),
        (
            ["--method", "albert,deebert", "--set", "deebert:pooling=mean"],
            ["pooling of deebert/rte is mean, ", "albert/rte, whose pooling is pooler; ", "--set pooling=pooler"],
        ),
        (
            ["--method", "electra-small", "--set", "pooling=fresh"],
            ["electra-small: pooling is fresh, ", "head first_token has no pooler; ", "pooler, first, mean, or "],
        ),
        (
            ["--method", "sharebert", "--set", "pooling=fresh"],
            ["pooling is fresh, ", "'mini-sharebert', a 'sharebert' model, ", "allowed: pooler, first, mean"],
        ),
        (
            ["--method", "sharebert", "--search", "pooling=mean,fresh"],
            ["pooling is fresh, ", "'mini-sharebert', a 'sharebert' model, ", "allowed: pooler, first, mean"],
        ),
    ],
)
def test_a_pooling_that_cannot_be_is_refused_in_one_line(capsys, words, message):
    assert says(refused(capsys, *words), *message)


@pytest.mark.slow
def test_export_and_predict_answer_as_the_model_that_was_trained(tmp_path, capsys):
    best = trained_study(tmp_path / "study", "pabee", "sst2", config={"pooling": "mean", "epochs": 1, "patience": 1})
    assert export.main([str(tmp_path / "study"), "--to", str(tmp_path / "to")]) == 0
    trained = load_trained(tmp_path / "to")
    assert trained.config.pooling == trained.model.encoder.pooling == "mean"
    assert load_trained(best.model or "").model.encoder.pooling == "mean"
    (tmp_path / "texts.tsv").write_text("sentence\na dog sleeps\nthe old cat sees a red bird\n")
    written = []
    for source in ("study", "to"):
        assert predict.main([str(tmp_path / source), str(tmp_path / "texts.tsv")]) == 0
        written.append(capsys.readouterr().out)
    assert written[0].splitlines()[-2:] == written[1].splitlines()[-2:]


@pytest.mark.slow
def test_an_own_method_with_the_base_classes_reads_as_pooling_says(tmp_path, capsys):
    methods = write_methods(tmp_path / "methods")
    try:
        words = ["entropy", "--include", str(methods), "--task", "rte", "--limit", "16", "--set", "epochs=1", *MEAN]
        assert console.main(["try", *words]) == 0
        replace_in(methods / "entropy.py", "    threshold: Positive", "    pooling: str\n    threshold: Positive")
        method_files.include(None)
        assert check_method.main([str(methods)]) == 1
        fault = "Config redefines pooling, "
        assert fault in capsys.readouterr().out
    finally:
        method_files.include(None)
