"""The commands of docs/coming_from.md plan what the papers' repositories run: pytest tests/house/test_coming_from.py"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.places import ROOT
from helpers.plan_files import plan_from

import trainables
from study import launch, pretrain, submit
from study.plans import resolution
from study.plans.resolution import resolve_configuration
from trainables.encoders.backbones import find_family
from trainables.encoders.mini_backbones import word_tokenizer
from trainables.pretraining import objectives

PAGE = (ROOT / "docs" / "coming_from.md").read_text()
LINES = [line for block in re.findall(r"^```\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()]
COMMANDS = [line.split()[2:] for line in LINES if not line.startswith("echo ")]
FILES = {name: text for line in LINES for text, name in re.findall(r"^echo '(.*)' > (\S+)$", line)}
PARSERS = [module.main.parser() for module in (launch, pretrain, submit, importlib.import_module("study.try"))]
LAUNCHES = [words[1:] for words in COMMANDS if words[0] == "study.launch"]

# What the commands of the READMEs say, in this order, as far as a field here means it.
PALBERT = {"epochs": 25, "stop_after": 5, "hidden_dropout": 0.0, "weight_decay": 0.0, "schedule": "constant"}
PABEE = {
    "learning_rate": 2e-5,
    "batch_size": 32,
    "epochs": 5,
    "max_length": 128,
    "schedule": "linear",
    "warmup_steps": 0,
}
WANTED: list[tuple[str, dict[str, Any]]] = [
    ("palbert", PALBERT | {"learning_rate": 1e-5, "batch_size": 32, "lambda_learning_rate": 1e-5, "beta": 0.5, "q": 0.5,
                           "lambda_layer_arch": "linear_cat", "num_lambda_layers": 3, "prior_lambda": 0.1}),
    ("pondernet", PALBERT | {"learning_rate": 1e-5, "batch_size": 16, "beta": 0.5, "prior_lambda": 0.1}),
    ("pabee", PALBERT | {"learning_rate": 1e-5, "batch_size": 32, "patience": 6}),
    ("albert", PALBERT | {"learning_rate": 1e-5, "batch_size": 128}),
    ("pabee", PABEE | {"gradient_clip": 1.0, "weight_decay": 0.0, "stop_after": 0, "hidden_dropout": 0.0}),
    ("pabee", PABEE | {"gradient_clip": 1.0, "weight_decay": 0.0, "stop_after": 0, "hidden_dropout": 0.1}),
    ("deebert", {"learning_rate": 2e-5, "batch_size": 8, "epochs": 3, "max_length": 128, "schedule": "linear",
                 "warmup_steps": 0, "gradient_clip": 1.0, "weight_decay": 0.0, "select": "last"}),
    ("berxit", {"learning_rate": 2e-5, "batch_size": 8, "epochs": 3, "max_length": 128, "schedule": "linear",
                "warmup_steps": 0, "gradient_clip": 1.0, "weight_decay": 0.0}),
    ("electra-small:lmtuners", {"head": "pooled", "weight_decay": 0.0, "max_length": 128, "epochs": 10}),
    ("alectra-small", {"head": "pooled", "weight_decay": 0.0, "max_length": 128, "epochs": 5}),
    ("sharebert", {"learning_rate": 5e-5, "batch_size": 64, "epochs": 5, "warmup_steps": 50, "weight_decay": 0.01,
                   "gradient_clip": 1.0, "schedule": "polynomial", "max_length": 128}),
]  # fmt: skip


def test_page_has_a_command_for_each_that_is_compared() -> None:
    assert len(LAUNCHES) == len(WANTED) and len(COMMANDS) == len(LAUNCHES) + 8


@pytest.mark.parametrize("number", range(len(WANTED)))
def test_launch_has_the_values_of_the_repository_and_searches_nothing(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(resolution, "find_family", lambda name: "bert" if "/bert-" in name else find_family(name))
    words, (method, wanted) = LAUNCHES[number], WANTED[number]
    assert launch.main([*words, "--dry-run"]) == 0
    assert f"{method}/rte" in capsys.readouterr().out
    found = resolve_configuration(plan_from(*words), method, "rte")
    assert {name: layered.value for name, layered in found.fixed.items() if name in wanted} == wanted
    assert not found.tuned or "electra-small" in method or method == "alectra-small"


PRETRAININGS = [words[1:] for words in COMMANDS if words[0] == "study.pretrain"]
SHAREBERT = {"learning_rate": 1e-3, "batch_size": 4000, "gradient_accumulation": 16, "steps": 23_000,
             "warmup_steps": 1380, "schedule": "linear", "gradient_clip": 0.5, "weight_decay": 0.01,
             "optimizer": "adamw", "adam_beta2": 0.98, "adam_epsilon": 1e-6, "hidden_dropout": 0.1}  # fmt: skip
# What the scripts of the repositories say, by objective and backbone.
WANTED_PRETRAININGS: dict[tuple[str, str], dict[str, Any]] = {
    ("alectra-rtd", "alectra-small"): {"learning_rate": 2e-3, "batch_size": 512, "steps": 500_000,
                                       "warmup_steps": 40_000, "optimizer": "lamb_clamped", "weight_decay": 0.01},
    ("mlm", "sharebert-small"): SHAREBERT,
    ("mlm", "sharebert-base"): SHAREBERT,
    # hps.py, DataCollatorForLanguageModeling, torch.optim.Adam and the defaults of nystrom.py
    ("albert-mlm", "./hps"): {"learning_rate": 1e-4, "batch_size": 1024, "gradient_accumulation": 128,
                              "steps": 125_000, "max_length": 512, "hidden_dropout": 0.1,
                              "optimizer": "adamw", "weight_decay": 0.0, "adam_beta2": 0.999, "adam_epsilon": 1e-8,
                              "schedule": "constant", "warmup_steps": 0, "gradient_clip": 0.0,
                              "masking": "bernoulli", "mask_probability": 0.15, "max_predictions": 0,
                              "mask_token_share": 0.8, "random_token_share": 0.1,
                              "attention": "nystrom", "num_landmarks": 256, "conv_kernel_size": 33},
}  # fmt: skip


@pytest.fixture
def hps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's `hps/config.json` and a tokenizer in `words`."""
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "hps").mkdir()
    (tmp_path / "hps" / "config.json").write_text(text)
    (tmp_path / "words").mkdir()
    word_tokenizer(["a man sleeps"]).backend_tokenizer.save(str(tmp_path / "words" / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", PRETRAININGS, ids=" ".join)
@pytest.mark.usefixtures("hps")
def test_pretraining_has_the_values_of_the_repository(words: list[str]) -> None:
    request = pretrain.resolve(pretrain.main.parser().options(words))
    wanted = WANTED_PRETRAININGS.get((request.recipe.objective, request.backbone.value), {})
    assert {name: request.fields[name].value for name in wanted} == wanted
    here = " ".join("mini" if word.startswith("hub:") else word for word in words)
    without_hub = here.replace("--backbone sharebert-base --tokenizer google-bert/bert-base-uncased", "")
    without_hub = without_hub.replace("albert/albert-base-v2", "./words")
    assert pretrain.main([*without_hub.split(), "--dry-run"]) == 0


def test_every_pretraining_that_is_compared_is_a_command() -> None:
    requests = [pretrain.resolve(pretrain.main.parser().options(words)) for words in PRETRAININGS]
    assert {*WANTED_PRETRAININGS} <= {(request.recipe.objective, request.backbone.value) for request in requests}


@pytest.mark.parametrize(("width", "layers"), [(768, 6), (1024, 24), (2048, 24)])
def test_the_sizes_of_another_repository_can_be_pretrained(width: int, layers: int, hps: Path) -> None:
    sizes = {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": layers}
    file = hps / "hps" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | sizes))
    own = ["--backbone", "./hps", "--tokenizer", "./words", "--set", "attention=nystrom"]
    assert pretrain.main(["albert-mlm", "--corpus", "mini", "--to", "to", *own, "--dry-run"]) == 0


def test_the_tables_name_options_and_fields_that_exist() -> None:
    flags = {flag for parser in PARSERS for action in parser._actions for flag in action.option_strings}
    fields = {
        name for method in trainables.list_methods() for name in trainables.load_method(method).Config.__struct_fields__
    }
    fields |= {
        name
        for each in objectives.list_objectives()
        for name in objectives.load_objective(each).Config.__struct_fields__
    }
    here = " ".join(line.split(" | ", 1)[1] for line in PAGE.splitlines() if line.startswith("| `"))
    code = re.findall(r"`([^`]+)`", here)
    assert {word for text in code for word in text.split() if word.startswith("--")} <= flags
    named = {word.partition("=")[0].removeprefix("--set ") for word in code if "_" in word and "/" not in word}
    assert named - {"CUDA_VISIBLE_DEVICES", "HF_HOME", "linear_cat", "linear_diff"} <= fields


# The options of each repository. READMEs and scripts at the commits that the methods' files name; of `transformers`,
# examples/research_projects/bert-loses-patience at 00e12e7.
OPTIONS = {
    "tinkoff-ai/palbert": """
        --type --name --epochs --patience --valid-metric --lr --weight-decay --beta1 --beta2 --batch-size
        --num-warmup-steps --hidden-dropout-prob --attention-probs-dropout-prob --classifier_dropout --seed --device
        --log --pondering --beta --lambda-p --ponder-threshold --lambda-lr --prior-type --use-prev-hiddens
        --prev-state-influence --num-lambda-layers --pos-encoding-type --lambda-layer-arch --exit-criteria --pabee
        --pabee-patience --fp16 --num-hidden-layers --debug --validate --save-model --cross-val --init-sinusoidal
        --detach-lambda --run-test
    """,
    "JetRunner/PABEE": """
        --data_dir --model_type --model_name_or_path --task_name --output_dir --patience --regression_threshold
        --config_name --tokenizer_name --cache_dir --max_seq_length --do_train --do_eval --evaluate_during_training
        --do_lower_case --per_gpu_train_batch_size --per_gpu_eval_batch_size --gradient_accumulation_steps
        --learning_rate --weight_decay --adam_epsilon --max_grad_norm --num_train_epochs --max_steps --warmup_steps
        --logging_steps --save_steps --eval_all_checkpoints --no_cuda --overwrite_output_dir --overwrite_cache --seed
        --fp16 --fp16_opt_level --local_rank --server_ip --server_port
    """,
    "castorini/DeeBERT": """
        --model_type --model_name_or_path --task_name --do_train --do_eval --do_lower_case --data_dir --max_seq_length
        --per_gpu_eval_batch_size --per_gpu_train_batch_size --learning_rate --num_train_epochs --overwrite_output_dir
        --seed --output_dir --plot_data_dir --save_steps --overwrite_cache --eval_after_first_stage
        --eval_each_highway --eval_highway --early_exit_entropy
    """,
    "castorini/berxit": """
        --model_type --model_name_or_path --task_name --do_train --do_eval --do_lower_case --data_dir --max_seq_length
        --per_gpu_eval_batch_size --per_gpu_train_batch_size --learning_rate --num_train_epochs --overwrite_output_dir
        --seed --output_dir --plot_data_dir --save_steps --overwrite_cache --train_routine --log_id --no_comet
        --eval_each_highway --eval_highway --lte_th --testset
    """,
    "shoarora/lmtuners": "--tokenizer_path --max_length",
    "jchenghu/sharebert": """
        --local_rank --model_type --tokenizer_name --hidden_act --hidden_size --factor_size --num_hidden_layers
        --num_attention_heads --intermediate_size --hidden_dropout_prob --attention_probs_dropout_prob
        --encoder_ln_mode --lr --train_batch_size --train_micro_batch_size_per_gpu --lr_schedule --curve
        --warmup_proportion --gradient_clipping --optimizer_type --weight_decay --adam_beta1 --adam_beta2 --adam_eps
        --max_steps --dataset_path --output_dir --print_steps --num_epochs_between_checkpoints --job_name
        --project_name --validation_epochs --validation_epochs_begin --validation_epochs_end
        --validation_begin_proportion --validation_end_proportion --validation_micro_batch --deepspeed
        --data_loader_type --do_validation --seed --fp16 --fp16_backend --layer_norm_type --total_training_time
        --early_exit_time_marker --model_name_or_path --task_name --max_seq_length --overwrite_output_dir --do_train
        --do_eval --do_predict --evaluation_strategy --per_device_train_batch_size --gradient_accumulation_steps
        --per_device_eval_batch_size --learning_rate --eval_steps --max_grad_norm --num_train_epochs
        --lr_scheduler_type --warmup_steps -f -o --type --dir --num_train_shards --num_test_shards --frac_test
        --dup_factor --vocab_file --do_lower_case --masked_lm_prob --model_name --max_predictions_per_seq --n_processes
    """,
    "vvvm23/albert": "--cpu --tqdm-off --small --model --no-save",
}


@pytest.mark.parametrize("repository", OPTIONS)
def test_every_option_of_a_repository_is_translated(repository: str) -> None:
    section = PAGE.split(f"## {repository}\n")[1].split("\n## ")[0]
    there = " ".join(line.split(" | ")[0] for line in section.splitlines() if line.startswith("| "))
    translated = {*re.findall(r"(?<=[ `])--?[A-Za-z][\w-]*", there)}
    assert [option for option in OPTIONS[repository].split() if option not in translated] == []
