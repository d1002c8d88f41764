"""The names that other programs give to the settings of this project."""

from __future__ import annotations

from collections.abc import Collection

import trainables
from trainables.configuration.spelling import suggest_nearest
from trainables.pretraining import objectives

# Options that correspond to exit_criteria=sample in PALBERT's scripts.
SAMPLED = "--method pondernet, or --method palbert --set exit=sample --set q=null --set sample_draws=1"
PATIENCE_ADVICE = (  # --patience of PALBERT and of PABEE
    "PALBERT's --patience 5 is --set stop_after=5; PABEE's --patience 3,4 needs no option: tables/exits.json has the "
    "score at each patience, and --set patience=3 sets that of the model"
)
NAMES_IN_REPOSITORIES = {  # option in the scripts of PALBERT, PABEE, DeeBERT, BERxiT or lmtuners -> field here
    "accumulate_grad_batches": "gradient_accumulation",
    "attention_probs_dropout_prob": "hidden_dropout",
    "d_loss_weight": "discriminator_weight",
    "early_exit_entropy": "entropy",
    "exit_criteria": "exit",
    "generator_type": "generator_family",
    "hidden_dropout_prob": "hidden_dropout",
    "lambda_lr": "lambda_learning_rate",
    "lambda_p": "prior_lambda",
    "lte_th": "threshold",
    "lr": "learning_rate",
    "lr_schedule": "schedule",
    "max_grad_norm": "gradient_clip",
    "max_seq_length": "max_length",
    "max_steps": "steps",
    "mlm_prob": "mask_probability",
    "num_train_epochs": "epochs",
    "num_warmup_steps": "warmup_steps",
    "pabee_patience": "patience",
    "per_gpu_train_batch_size": "batch_size",
    "ponder_threshold": "q",
    "threshold": "q",
    "train_batch_size": "batch_size",
}


def suggest_field(field: str, known: Collection[str]) -> str:
    """Return `; did you mean FIELD?`, or "" if no known field is similar.

    `field` may be misspelt, or may be the name of an option in a paper's code.
    """
    ours = NAMES_IN_REPOSITORIES.get(field.replace("-", "_"))
    if field == "exit_criteria" and ours in known:
        return f"; did you mean exit? For exit_criteria=sample, use {SAMPLED}"
    return f"; did you mean {ours}?" if ours in known else suggest_nearest(field, known)


def suggest_method_option(flag: str, value: str, flags: Collection[str]) -> str:
    """Return the option for a method's field that other programs or this project name `flag`; "" if there is none.

    `flags` are the command's own options. The result is like `; here, --num_train_epochs is --epochs 3`.
    """
    if _name(flag) == "patience":
        return f"; here, {PATIENCE_ADVICE}"
    configs = (trainables.load_method(method).Config for method in trainables.list_methods())
    return _suggest_setting(flag, value, flags, {field for config in configs for field in config.__struct_fields__})


def suggest_pretraining_option(flag: str, value: str, flags: Collection[str]) -> str:
    """Return the option for an objective's field that other programs or this project name `flag`, else ""."""
    configs = (objectives.load_objective(name).Config for name in objectives.list_objectives())
    return _suggest_setting(flag, value, flags, {field for config in configs for field in config.__struct_fields__})


def _suggest_setting(flag: str, value: str, flags: Collection[str], fields: Collection[str]) -> str:
    field = NAMES_IN_REPOSITORIES.get(_name(flag), _name(flag))
    if field not in fields:
        return ""
    return f"; here, {flag} is " + (f"--{field} {value}" if f"--{field}" in flags else f"--set {field}={value}")


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
