"""Files answered by trained models: pytest tests/study/test_predict.py"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.made_studies import arm, config_of, record, write_study
from helpers.messages import says
from helpers.places import ROOT
from helpers.trained_studies import trained_study
from msgspec.structs import replace

from study.export import export
from study.facts.record import Record
from study.facts.study_facts import read_facts
from study.facts.study_folder import predictions_file
from study.predict import _list_choices, _list_limits, label_text, main, set_exit
from study.stored_models.choice import ModelChoice, _find_trial
from trainables.data.glue import load_split
from trainables.data.metrics import predictions_from_logits
from trainables.data.tasks import TASKS
from trainables.models.answer_rules import Beem, Entropy, FixedLayer, FPabee, Pcee
from trainables.models.exit_rules import LayerOutputs, apply_exit, describe_rule
from trainables.models.safe_exits import find_safe_setting, read_evaluated_settings

pytestmark = pytest.mark.slow

LEARNS = {"epochs": 1, "learning_rate": 2e-3, "num_hidden_layers": 4}
ARMS = {
    "pabee/mnli": {"patience": 1},  # examples leave after 2, 3 and 4 layers
    "pabee/sst2": {"patience": 1},
    "palbert/cola": {"q": 0.5, "lambda_learning_rate": 2e-3, "prior_lambda": 0.3},
    "pabee/stsb": {"patience": 1, "regression_threshold": 0.02},
}


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> dict[str, Record]:
    """A trained model of every arm, by its arm; the studies lie beside each other."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: trained_study(folder / name.replace("/", "-"), *name.split("/"), config=LEARNS | config)
        for name, config in ARMS.items()
    }


def folder_of(row: Record) -> Path:
    """The study's folder."""
    return Path(row.model or "").parents[2]


def write_rows(file: Path, task: str, split: str, *, extra: bool = False) -> Path:
    """A split of mini-GLUE as a TSV file; `extra`: with a column that no task has."""
    rows = load_split(TASKS[task], split, "mini")
    columns = TASKS[task].file_columns
    lines = [("colour", *columns) if extra else columns]
    lines += [("red", *texts) if extra else texts for texts in rows.texts]
    file.write_text("".join("\t".join(line) + "\n" for line in lines))
    return file


def answered(file: Path) -> list[list[str]]:
    header, *lines = file.read_text().splitlines()
    assert header == "index\tprediction\texit_layer"
    return [line.split("\t") for line in lines]


def refused(capsys, *arguments: object) -> str:
    """The one line with which the command refused."""
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1, printed
    return printed.err.removeprefix("study.predict: ").strip()


@pytest.fixture
def untimed(monkeypatch) -> None:
    """Answers alone: measuring what they cost takes longer."""
    monkeypatch.setattr("study.predict._measure_costs", lambda *_: [])


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("exported", [False, True])
def test_dev_predictions_repeat_trial_with_exits(studies, tmp_path, capsys, arm, exported):
    row = studies[arm]
    model, task = folder_of(row), TASKS[row.task]
    if exported:
        model = tmp_path / "exported"
        export(row, model)
    rows = write_rows(tmp_path / "dev.tsv", row.task, task.dev_splits[0], extra=True)
    assert main([str(model), str(rows), "--to", str(tmp_path / "answers.tsv")]) == 0
    stored = np.load(predictions_file(folder_of(row), row.key), allow_pickle=False)
    asked = stored["split"] == task.dev_splits[0]
    ids, layers = stored["ids"][asked], stored["exit_layers"][0, asked]
    predictions = predictions_from_logits(task, stored["logits"][0, asked])
    assert answered(tmp_path / "answers.tsv") == [
        [str(index), label_text(task, value), str(layer)]
        for index, value, layer in zip(ids, predictions, layers, strict=True)
    ]
    assert f"mean number of layers run: {layers.mean():.2f} of 4, with exit " in capsys.readouterr().out
    assert arm != "pabee/mnli" or len(set(layers)) > 1  # or its exits would prove little


def test_times_are_printed_with_exits_and_with_all_layers(studies, tmp_path, capsys):
    file = write_rows(tmp_path / "test.tsv", "sst2", "test")
    assert main([str(folder_of(studies["pabee/sst2"])), str(file), "--to", str(tmp_path / "answers.tsv")]) == 0
    rows = f"{len(load_split(TASKS['sst2'], 'test', 'mini').ids):,}"
    wrote, layers, *times, flops, device = capsys.readouterr().out.splitlines()
    assert wrote == f"wrote {tmp_path}/answers.tsv: {rows} predictions of pabee for SST-2"
    assert layers.endswith("with exit patience 1")
    for line, size in zip(times, (1, 8, 32, 128), strict=True):
        words = line.split()
        assert line.startswith(f"batches of {size}: ") and " ms with all layers (means over " in line
        assert float(words[3]) > 0 and float(words[9]) > 0
    assert flops.endswith(" with all layers") and 0 < float(flops.split()[0]) <= float(flops.split()[6])
    assert device.startswith("measured on ") and re.search(r" \d+ threads?$", device)


def test_answers_go_to_stdout_rest_to_stderr(studies, tmp_path, capsys):
    file, model = write_rows(tmp_path / "test.tsv", "sst2", "test"), str(folder_of(studies["pabee/sst2"]))
    assert main([model, str(file), "--to", str(tmp_path / "answers.tsv")]) == 0
    capsys.readouterr()
    assert main([model, str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.out == (tmp_path / "answers.tsv").read_text()
    assert " predictions of pabee for SST-2\nmean number of layers run: " in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.tsv", "test.tsv"]


def test_answers_have_the_index_of_the_input(studies, tmp_path):
    texts = load_split(TASKS["sst2"], "test", "mini").texts[:3]
    rows = [f"{index}\t{text}" for index, (text,) in zip((98, 102, 99), texts, strict=True)]
    (tmp_path / "input.tsv").write_text("\n".join(["index\tsentence", *rows]) + "\n")
    arguments = [folder_of(studies["pabee/sst2"]), tmp_path / "input.tsv", "--to", tmp_path / "answers.tsv"]
    assert main([str(argument) for argument in arguments]) == 0
    assert [index for index, *_ in answered(tmp_path / "answers.tsv")] == ["98", "102", "99"]


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("arm", "folder", "warned"),
    [
        ("pabee/sst2", "CoLA", ["warning: {file} is in the folder of CoLA, but the model is for SST-2"]),
        ("pabee/sst2", "SST-2", []),
        ("pabee/sst2", "mine", []),
        ("pabee/mnli", "diagnostic", []),
        ("pabee/mnli", "RTE", ["warning: {file} is in the folder of RTE, but the model is for MNLI"]),
    ],
)
def test_the_folder_of_another_task_is_warned_of(studies, tmp_path, capsys, arm, folder, warned):
    (tmp_path / folder).mkdir()
    file = write_rows(tmp_path / folder / "test.tsv", arm.partition("/")[2], "dev_matched" if "mnli" in arm else "dev")
    assert main([str(folder_of(studies[arm])), str(file), "--to", str(tmp_path / "answers.tsv")]) == 0
    assert capsys.readouterr().err.splitlines() == [line.format(file=file) for line in warned]


def test_a_file_of_one_row_is_answered(studies, tmp_path, capsys):
    (tmp_path / "one.tsv").write_text("sentence\na dog sleeps\n")
    arguments = [
        str(folder_of(studies["pabee/sst2"])),
        str(tmp_path / "one.tsv"),
        "--to",
        str(tmp_path / "answers.tsv"),
    ]
    assert main(arguments) == 0 and len(answered(tmp_path / "answers.tsv")) == 1
    assert capsys.readouterr().out.count("batches of 1: ") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ["no input file {file}; ", "TSV, .csv, .jsonl or .parquet"]),
        (b"", ["{file} is empty; ", "with the columns sentence"]),
        (b"index\tsentence\n", ["{file} has no rows; ", "a line for each row"]),
        (b"text,label\nfine,1\n", ["{file}, line 1: ", "'sentence'; ", "commas (','); ", "tabs"]),
        (b"sentence\tsentence\na\tb\n", ["{file}, line 1: ", "several columns 'sentence'; ", "sentence, sentence"]),
        (b"index\tsentence\n0\tone\n1\n", ["{file}, line 3: ", "1 instead of 2: '1'; ", "index, sentence"]),
        (b"index\tsentence\n0\tone\n1\t \n", ["{file}, line 3: ", "no text in sentence; ", "at least one column"]),
        (b"sentence\ncaf\xe9\n", ["{file}, line 2: ", "byte 0xe9 ", "allowed: UTF-8"]),
    ],
)
def test_a_file_that_cannot_be_answered_is_refused_in_one_line(studies, tmp_path, capsys, content, message):
    file = tmp_path / "input.tsv"
    if content is not None:
        file.write_bytes(content)
    model, to = folder_of(studies["pabee/sst2"]), tmp_path / "answers.tsv"
    assert says(refused(capsys, model, file, "--to", to), *(part.format(file=file) for part in message))
    assert not to.exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["-", "/dev/stdin", "{fifo}"])
def test_pipe_is_answered_as_the_file(studies, tmp_path, name):
    folder, file, fifo = folder_of(studies["pabee/sst2"]), tmp_path / "file.tsv", tmp_path / "fifo"
    file.write_text("sentence\ndull\na delight\n")
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "study.predict", str(folder), name.format(fifo=fifo), "--to"]
    piped = subprocess.Popen([*command, str(tmp_path / "piped")], cwd=ROOT, stdin=subprocess.PIPE)
    piped.stdin.write(file.read_bytes())
    piped.stdin.close()
    if "fifo" in name:
        fifo.write_bytes(file.read_bytes())
    assert piped.wait() == 0
    assert main([str(folder), str(file), "--to", str(tmp_path / "read")]) == 0
    assert answered(tmp_path / "piped") == answered(tmp_path / "read")


@pytest.mark.long
def test_pipe_fault_uses_users_name(studies, tmp_path):
    command = [sys.executable, "-m", "study.predict", str(folder_of(studies["pabee/sst2"])), "-"]
    done = subprocess.run(command, cwd=ROOT, input="index\n1\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert says(done.stderr, "study.predict: -, line 1: ", "'sentence'; ", "index\n")


def test_answers_that_are_there_are_not_replaced(studies, tmp_path, capsys):
    (tmp_path / "answers.tsv").write_text("mine")
    file = write_rows(tmp_path / "test.tsv", "sst2", "test")
    error = refused(capsys, folder_of(studies["pabee/sst2"]), file, "--to", tmp_path / "answers.tsv")
    assert error == f"--to {tmp_path}/answers.tsv exists; allowed: a new file"
    assert (tmp_path / "answers.tsv").read_text() == "mine"


def test_what_is_no_model_is_refused_in_one_line(studies, tmp_path, capsys):
    file, to = write_rows(tmp_path / "test.tsv", "sst2", "test"), ["--to", tmp_path / "answers.tsv"]
    assert says(refused(capsys, tmp_path, file, *to), f"{tmp_path} ", "(no plan.json)", "(no model.safetensors)")
    said = refused(capsys, tmp_path, file, "--task", "sst2", *to)
    assert says(said, "--trial, --method and --task ", f"{tmp_path} has no plan.json")
    study = folder_of(studies["pabee/sst2"])
    searched = next(row for row in read_facts(study).records if row.phase == "search")
    assert refused(capsys, study, file, "--trial", searched.key, *to).startswith(f"trial {searched.key} has no model")


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("arm", "setting", "of_sweep"),
    [("pabee/sst2", "patience=2", ("patience", 2)), ("palbert/cola", "q=0.3", ("threshold", 0.3))],
)
def test_another_exit_setting_answers_as_its_sweep_did(studies, tmp_path, arm, setting, of_sweep):
    row, task = studies[arm], arm.partition("/")[2]
    to = tmp_path / "answers.tsv"
    dev = write_rows(tmp_path / "dev.tsv", task, "dev")
    assert main([str(folder_of(row)), str(dev), "--to", str(to), "--set", setting]) == 0
    layers = np.array([int(layer) for _, _, layer in answered(to)])
    stored = np.load(predictions_file(folder_of(row), row.key))
    place = (stored["sweep_rule"] == of_sweep[0]) & np.isclose(stored["sweep_setting"], of_sweep[1])
    assert layers.mean() == pytest.approx(stored["sweep_mean_layers"][place].item(), abs=1e-6)


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize("arm", ["pabee/sst2", "palbert/cola", "pabee/stsb"])
def test_another_exit_rule_answers_as_it_does_on_all_layers(studies, tmp_path, arm):
    row, task = studies[arm], arm.partition("/")[2]
    dev = write_rows(tmp_path / "dev.tsv", task, "dev")
    stored = np.load(predictions_file(folder_of(row), row.key))["layer_logits"].astype(np.float32)
    rules = [FixedLayer(2), Entropy(0.9), Pcee(0.9, 1, ensemble=False), FPabee(0.01), Beem(1.0)]
    for rule in rules[: 1 if task == "stsb" else None]:
        to = tmp_path / f"{rule.name}.tsv"
        fields = {"rule": rule.name, **vars(rule)}
        options = [word for name, value in fields.items() for word in ("--set", f"{name}={str(value).lower()}")]
        assert main([str(folder_of(row)), str(dev), "--to", str(to), *options]) == 0
        expected = apply_exit(rule, LayerOutputs(stored, None)).exit_layer.mean()
        assert np.mean([int(layer) for _, _, layer in answered(to)]) == pytest.approx(expected, abs=1e-2)


@pytest.mark.parametrize(
    ("arm", "settings", "message"),
    [
        (
            "pabee/sst2",
            ["rule=entrpy"],
            ["available: fixed, patience, entropy", ", beem; did you mean entropy"],
        ),
        (
            "pabee/sst2",
            ["rule=entropy"],
            ["--set rule=entropy needs a value", "add --set entropy=NU"],
        ),
        ("pabee/sst2", ["rule=fixed", "layer=0"], ["--set rule=fixed: layer is 0; ", "a whole number >= 1"]),
        (
            "pabee/sst2",
            ["rule=patience", "patience=0"],
            ["--set rule=patience: patience is 0; ", "a whole number >= 1"],
        ),
        ("pabee/sst2", ["rule=beem", "evidence=much"], ["--set rule=beem: evidence is 'much'; ", "a number"]),
        ("pabee/sst2", ["rule=beem", "evidence=1", "q=1"], ["beem has no q; ", "evidence, weight"]),
        ("pabee/sst2", ["rule=beem", "evidence=1", "trained=1"], ["beem has no trained; ", "evidence, weight"]),
        (
            "pabee/stsb",
            ["rule=entropy"],
            ["pabee on STS-B (a regression task)", "'entropy'; available: f"],
        ),
    ],
)
def test_what_is_no_exit_rule_is_refused_in_one_line(studies, tmp_path, capsys, arm, settings, message):
    dev = write_rows(tmp_path / "dev.tsv", arm.partition("/")[2], "dev")
    options = [word for setting in settings for word in ("--set", setting)]
    assert main([str(folder_of(studies[arm])), str(dev), *options]) == 2
    error = capsys.readouterr().err
    assert says(error, *message) and error.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("patince=2", ["--set patince ", "exit settings are patience; ", "did you mean patience?"]),
        ("depth=2", ["--set depth ", "exit settings are patience\n"]),
        ("learning_rate=1", ["--set learning_rate ", "exit settings are patience\n"]),
        ("patience=2 --set patience=3", ["--set patience ", "twice; allowed: once"]),
        ("patience=0", ["patience is 0; ", "a whole number >= 1"]),
    ],
)
def test_what_is_no_exit_setting_is_refused_in_one_line(studies, tmp_path, capsys, setting, message):
    dev = write_rows(tmp_path / "dev.tsv", "sst2", "dev")
    assert main([str(folder_of(studies["pabee/sst2"])), str(dev), "--set", *setting.split()]) == 2
    error = capsys.readouterr().err
    assert says(error, *message) and error.count("\n") == 1


def test_setting_of_a_model_without_exit_settings_is_refused():
    rule, spec = FixedLayer(layer=1), SimpleNamespace(method="albert", config={})
    trained = SimpleNamespace(model=SimpleNamespace(exit_rule=rule), spec=spec)
    with pytest.raises(ValueError, match=r"^--set patience .*; .* no exit settings$"):
        set_exit(trained, {"patience": 2})


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(("arm", "rule", "risk"), [("pabee/sst2", "patience", 0.2), ("palbert/cola", "threshold", 0.3)])
def test_risk_uses_earliest_safe_exit_of_dev(studies, tmp_path, capsys, arm, rule, risk):
    row, task = studies[arm], arm.partition("/")[2]
    stored, to = predictions_file(folder_of(row), row.key), tmp_path / "answers.tsv"
    settings, labels = read_evaluated_settings(stored, rule)
    place = find_safe_setting(settings.lost(labels), risk)
    assert place is not None and settings.mean_layers[place] < 4  # or the test would prove little
    file = write_rows(tmp_path / "dev.tsv", task, "dev")
    assert main([str(folder_of(row)), str(file), "--to", str(to), "--risk", str(risk)]) == 0
    layers = np.array([int(layer) for _, _, layer in answered(to)])
    assert layers.mean() == pytest.approx(settings.mean_layers[place], abs=1e-6)
    printed = capsys.readouterr().out
    assert f"with exit {describe_rule(settings.rules[place])}\n" in printed
    rows = f"{len(layers)} labelled rows of {stored})"
    assert says(printed, " is safe on dev: ", f"at most {100 * risk:g} % ", "95 % confidence, ", rows)
    assert "by hand" not in printed


def test_risk_takes_another_rule_than_the_model_s_own(studies, tmp_path, capsys):
    row = studies["pabee/sst2"]
    file = write_rows(tmp_path / "dev.tsv", "sst2", "dev")
    arguments = [str(folder_of(row)), str(file), "--to", str(tmp_path / "answers.tsv"), "--risk", "0.3"]
    assert main([*arguments, "--set", "rule=entropy"]) == 0
    settings, labels = read_evaluated_settings(predictions_file(folder_of(row), row.key), "entropy")
    place = find_safe_setting(settings.lost(labels), 0.3)
    layers = np.array([int(layer) for _, _, layer in answered(tmp_path / "answers.tsv")])
    assert layers.mean() == pytest.approx(settings.mean_layers[place], abs=0.02)  # the stored answers are float16
    printed = capsys.readouterr().out
    assert says(printed, f"exit {describe_rule(settings.rules[place])} is safe", "at most 30 %", "by hand")


@pytest.mark.parametrize(
    ("selection", "settings", "trial", "words"),
    [
        ("dev", {}, False, "epoch and seed scored"),
        ("dev", {"select": "last"}, False, "seed scored"),
        ("dev", {"epochs": 1}, True, None),
        ("dev", {}, True, "epoch scored"),
        ("holdout", {}, False, "seed scored"),
        ("holdout", {}, True, None),
    ],
)
def test_risk_names_what_was_chosen_on_the_same_rows(tmp_path, selection, settings, trial, words):
    records = arm("pabee", "rte", [0.7, 0.8], config={**config_of("pabee"), **settings})
    folder = write_study(tmp_path / "s", records, protocol={"selection": selection}, seeds=2)
    record = read_facts(folder).records[-1]
    choice = ModelChoice(trial=record.key if trial else None)
    limits = _list_limits(_list_choices(record, folder, choice), is_other_rule=False)
    assert [limit.startswith(f"the model's {words} best on these rows") for limit in limits] == [True] * bool(words)


def test_all_layers_run_if_no_exit_is_shown_to_be_safe(studies, tmp_path, capsys):
    file = tmp_path / "input.tsv"
    file.write_text("sentence\na sentence that no generator writes\n")
    arguments = [str(folder_of(studies["pabee/sst2"])), str(file), "--to", str(tmp_path / "answers.tsv")]
    assert main([*arguments, "--risk", "0.0001"]) == 0
    printed = capsys.readouterr().out
    assert says(printed, "layers run: 4.00 of 4, ", "exit last\n", "no exit is safe on dev, ")


def test_a_risk_that_nothing_can_promise_is_refused_in_one_line(studies, tmp_path, capsys):
    sst2, stsb = (folder_of(studies[arm]) for arm in ("pabee/sst2", "pabee/stsb"))
    file, scores = write_rows(tmp_path / "sst2.tsv", "sst2", "dev"), write_rows(tmp_path / "stsb.tsv", "stsb", "dev")
    export(studies["pabee/sst2"], tmp_path / "exported")
    said = refused(capsys, stsb, scores, "--risk", 0.1)
    assert says(said, "--risk 0.1: ", "STS-B", "not a classification, ", "leave out --risk")
    said = refused(capsys, tmp_path / "exported", file, "--risk", 0.1)
    assert says(said, "--risk 0.1: ", "exported model", "dev predictions; ", "folder of a study")
    assert "--risk" in refused(capsys, sst2, file, "--risk", 1.5)
    said = refused(capsys, sst2, file, "--risk", 0.1, "--set", "patience=2")
    assert says(said, "--risk and --set patience ", "only --set rule=NAME")
    assert "did you mean entropy?" in refused(capsys, sst2, file, "--risk", 0.1, "--set", "rule=entropi")


def test_trial_is_chosen_by_the_first_digits_of_its_key() -> None:
    records = [record("albert", "rte", 0.7, seed=seed, key=f"{seed}0a") for seed in (42, 43)]
    assert _find_trial(records, "43") is records[1]
    with pytest.raises(ValueError, match=r"--trial '4' matches several trials; these trials have a model: 420a .*430a"):
        _find_trial(records, "4")


def test_trial_that_failed_before_it_completed_has_a_model() -> None:
    completed = record("albert", "rte", 0.7, seed=42)
    failed = replace(completed, status="failed", score=None)
    for records in ([failed, completed], [completed, failed]):
        assert _find_trial(records, completed.key) is completed
    with pytest.raises(ValueError, match=f"trial {completed.key} has no model: .*failed confirm"):
        _find_trial([failed], completed.key)
