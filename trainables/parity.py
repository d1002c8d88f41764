"""Compares our models with reference cases: numbers computed by the original code.

    python -m trainables.parity FOLDER...

A case with a `kind` is one of pretraining_cases.py. A case without is of PALBERT or PABEE: a folder with
`weights.safetensors` (a state dict with the original names) and `case.json` (configuration, batch, expected numbers),
where everything is computed for the whole batch and for one example at a time. One line per quantity gives the largest
difference. Exit status: 0 all equal (within 1e-4, exit layers exactly), 1 a difference, 2 a case that cannot be read.

One example at a time, the task loss and the gradients of a ponder model are not defined by the case: with the original
`constant` tail they depend on how many layers the rest of the batch needs.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel

from trainables.configuration import PonderConfig, TrainingConfig
from trainables.encoders.layerwise import layerwise
from trainables.models.classifiers import ClassifierPerLayer
from trainables.models.early_exit import Batch, EarlyExitModel
from trainables.models.exit_rules import ExitResult, ExitRule, Expectation, LastLayer, Patience, Threshold, apply_exit
from trainables.models.ponder import LAMBDA_ARCHS, Lambda, PonderModel, divergence
from trainables.pretraining_cases import compare_by_kind
from trainables.reference_files import TOLERANCE, Comparison, largest_difference, read_description, read_tensors

Quantities = dict[str, Tensor]

# Settings of a case and what they are where a case does not say: the original code's values.
_SETTINGS: dict[str, dict[str, Any]] = {
    "ponder": {"lambda_layer_arch": "linear", "num_lambda_layers": 1, "epsilon": 0.05},
    "pabee": {"regression_threshold": 0.2},
}

# Fields of `TrainingConfig` that have no effect on a comparison (or, dropout, must be off).
_NO_TRAINING: dict[str, Any] = {
    "learning_rate": 1.0,
    "batch_size": 1,
    "epochs": 1,
    "stop_after": 0,
    "select": "best",
    "weight_decay": 0.0,
    "adam_epsilon": 1e-8,
    "schedule": "constant",
    "warmup_ratio": 0.0,
    "warmup_steps": 0,
    "decay_power": None,
    "gradient_clip": 0.0,
    "layer_decay": 1.0,
    "max_length": 128,
    "classifier_dropout": 0.0,
    "hidden_dropout": 0.0,
    "num_hidden_layers": 0,
    "attention": "softmax",
    "num_landmarks": None,
    "conv_kernel_size": None,
    "precision": "float32",
}


@dataclass(frozen=True)
class Case:
    """One reference case, read and checked."""

    name: str
    method: str  # ponder or pabee
    settings: dict[str, Any]
    albert_config: dict[str, Any]
    weights: dict[str, Tensor]
    batch: Batch
    train: dict[str, Any]
    eval: dict[str, dict[str, Any]]


def read_case(folder: Path) -> Case:
    """The case that lies in a folder.

    Raises:
        ValueError: it is incomplete, damaged, or has settings that we do not know.
    """
    content, weights = read_description(folder), read_tensors(folder, "weights.safetensors")
    try:
        settings = dict(content["case"])
        method, expected = settings.pop("method"), content["expected"]
        labels_type = torch.float32 if content["albert_config"].get("num_labels") == 1 else torch.int64
        batch = {
            name: torch.tensor(values, dtype=labels_type if name == "labels" else torch.int64)
            for name, values in content["batch"].items()
        }
        return Case(
            name=folder.name,
            method=method,
            settings=_checked_settings(folder, method, settings),
            albert_config=content["albert_config"],
            weights=weights,
            batch=batch,
            train=expected.get("train", {}),
            eval=expected.get("eval", {}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}/case.json is incomplete: {error!r}") from error


def build_model(case: Case) -> EarlyExitModel:
    """Our model with the weights of the case.

    Raises:
        ValueError: the weights do not fit.
    """
    config = AlbertConfig(**case.albert_config)
    encoder = layerwise(AlbertModel._from_config(config, attn_implementation="sdpa"))
    num_labels = case.albert_config.get("num_labels", 2)
    model: EarlyExitModel
    if case.method == "pabee":
        rule = Patience(1, case.settings["regression_threshold"])
        model = ClassifierPerLayer(encoder, rule, num_labels, TrainingConfig(**_NO_TRAINING), swept=())
    else:
        model = PonderModel(encoder, num_labels, _ponder_config(case), _lambda(case), LastLayer())
    weights = {ours: tensor for name, tensor in case.weights.items() if (ours := our_name(name)) is not None}
    _check_names(case, set(model.state_dict()), set(weights))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        first_mismatch = str(error).splitlines()[1].strip()
        raise ValueError(f"{case.name}: weights do not fit the configuration: {first_mismatch}") from error
    return model.eval()


def our_name(original: str) -> str | None:
    """The name of an original parameter in our models, None if it takes no part in what a case computes."""
    if original.endswith("position_ids") or original == "albert.layer_positional_embeddings.weight":
        return None  # a buffer, and an option that no published command uses
    for pattern, replacement in _NAMES:
        if re.match(pattern, original):
            return re.sub(pattern, replacement, original)
    return original


def compare(case: Case) -> Iterator[Comparison]:
    """Every expected quantity beside ours, first for the whole batch, then for one example at a time.

    Raises:
        ValueError: the case expects something that we do not know.
    """
    model = build_model(case)
    yield from _compare_training(case, model)
    yield from _compare_evaluation(case, model, [case.batch], "batched")
    yield from _compare_evaluation(case, model, list(_examples(case.batch)), "batch 1")


def main(arguments: list[str] | None = None) -> int:
    """Prints the comparisons of every folder; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m trainables.parity", description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a reference case")
    folders = parser.parse_args(arguments).folders
    torch.set_num_threads(1)  # in models this small, threads mostly wait for each other
    return max([_status(folder) for folder in folders])


def _status(folder: Path) -> int:
    """0 equal, 1 different, 2 a case that cannot be run, of whatever kind its damage is; the others still are."""
    try:
        return _report(folder)
    except Exception as error:
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        print(f"error: {reason if str(folder) in reason else f'{folder}: {reason}'}".splitlines()[0], file=sys.stderr)
        return 2


def _report(folder: Path) -> int:
    title, comparisons = _compared(folder)
    print(title)
    for comparison in comparisons:
        verdict = "" if comparison.is_equal else "  DIFFERS"
        print(f"  {comparison.difference:9.2e}  {comparison.quantity}{verdict}")
    num_different = sum(not comparison.is_equal for comparison in comparisons)
    print(f"  {'DIFFERENT' if num_different else 'equal'}: {num_different} of {len(comparisons)} quantities differ")
    return 1 if num_different else 0


def _compared(folder: Path) -> tuple[str, list[Comparison]]:
    """What to write above the comparisons, and these."""
    if "kind" in (description := read_description(folder)):
        return f"{folder.name}: {description['kind']}", list(compare_by_kind(folder))
    case = read_case(folder)
    if not case.train or not case.eval:
        raise ValueError(f"{folder}/case.json expects nothing: expected.train and expected.eval are needed")
    return f"{case.name}: {case.method} {case.settings}", list(compare(case))


def _checked_settings(folder: Path, method: str, settings: dict[str, Any]) -> dict[str, Any]:
    if method not in _SETTINGS:
        raise ValueError(f"{folder}: unknown method {method!r}; known: {', '.join(_SETTINGS)}")
    unknown = sorted(set(settings) - set(_SETTINGS[method]))
    if unknown:
        raise ValueError(f"{folder}: unknown settings {', '.join(unknown)}; known: {', '.join(_SETTINGS[method])}")
    settings = _SETTINGS[method] | settings
    if settings.get("lambda_layer_arch", "linear") not in LAMBDA_ARCHS:
        menu = ", ".join(LAMBDA_ARCHS)
        raise ValueError(f"{folder}: unknown lambda_layer_arch {settings['lambda_layer_arch']!r}; known: {menu}")
    return settings


def _ponder_config(case: Case) -> PonderConfig:
    return PonderConfig(
        **_NO_TRAINING,
        lambda_bias_init="default",
        beta=case.train.get("beta", 0.5),
        prior_lambda=case.train.get("prior_lambda", 0.1),
        epsilon=case.settings["epsilon"],
        kl_direction="prior_posterior",
        posterior_tail="constant",
    )


def _lambda(case: Case) -> Lambda:
    arch, layers = case.settings["lambda_layer_arch"], case.settings["num_lambda_layers"]
    # The original's 1 is a bare linear layer; from 2 on it counts the hidden tanh layers.
    return Lambda(arch, 0 if layers == 1 and arch != "rnn" else layers, learning_rate=None)


def _check_names(case: Case, ours: set[str], theirs: set[str]) -> None:
    missing, unknown = sorted(ours - theirs), sorted(theirs - ours)
    if missing or unknown:
        names = [f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
        raise ValueError(f"{case.name}: weights do not map to our names: {'; '.join(names)}")


def _compare_training(case: Case, model: EarlyExitModel) -> Iterator[Comparison]:
    batched, one_by_one = _TRAINING[case.method](case, model)
    _check_quantities(case, set(case.train), set(batched) | {"beta", "prior_lambda"})
    for how, quantities in (("batched", batched), ("batch 1", one_by_one)):
        for quantity, ours in quantities.items():
            if quantity in case.train:
                difference = largest_difference(ours, case.train[quantity])
                yield Comparison(f"train {quantity} ({how})", difference, TOLERANCE)


def _compare_evaluation(case: Case, model: EarlyExitModel, batches: list[Batch], size: str) -> Iterator[Comparison]:
    for setting, expected in case.eval.items():
        for way, ours in _inferred(model, _rule(case, setting), batches):
            _check_quantities(case, set(expected), set(ours))
            for quantity in expected:
                allowed = 0.0 if quantity == "exit_layer" else TOLERANCE
                difference = largest_difference(ours[quantity], expected[quantity])
                yield Comparison(f"eval {setting} {quantity} ({size}, {way})", difference, allowed)


def _check_quantities(case: Case, expected: set[str], ours: set[str]) -> None:
    if unknown := sorted(expected - ours):
        raise ValueError(f"{case.name}: unknown expected quantities: {', '.join(unknown)}")


def _ponder_training(case: Case, model: EarlyExitModel) -> tuple[Quantities, Quantities]:
    assert isinstance(model, PonderModel)
    terms = model.loss(case.batch)
    terms["loss"].backward()
    exit_head: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (exit_head if name.startswith("lambda_head.") else rest).append(parameter)
    batched = {
        **_posterior(model, case.batch),
        "task_loss": terms["task_loss"],
        "total_loss": terms["loss"],
        "grad_norm_exit_head": _gradient_norm(exit_head),
        "grad_norm_rest": _gradient_norm(rest),
    }
    alone = [_posterior(model, example) for example in _examples(case.batch)]
    one_by_one = {
        "exit_pdf": torch.cat([posterior["exit_pdf"] for posterior in alone], dim=1),
        "kl": torch.stack([posterior["kl"] for posterior in alone]).mean(),
    }
    return batched, one_by_one


def _posterior(model: PonderModel, batch: Batch) -> Quantities:
    posterior = model.posterior(model.heads_until_cut(batch)[1])
    kl = divergence(posterior, model.config.kl_direction).mean()
    return {"exit_pdf": posterior.probabilities(), "kl": kl}


def _pabee_training(case: Case, model: EarlyExitModel) -> tuple[Quantities, Quantities]:
    batched = _loss_and_gradient(model, [case.batch])
    return batched, _loss_and_gradient(model, list(_examples(case.batch)))


def _loss_and_gradient(model: EarlyExitModel, batches: list[Batch]) -> Quantities:
    model.zero_grad()
    loss = torch.stack([model.loss(batch)["loss"] for batch in batches]).mean()
    loss.backward()
    return {"loss": loss, "grad_norm": _gradient_norm(list(model.parameters()))}


def _gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt()


def _examples(batch: Batch) -> Iterator[Batch]:
    for index in range(len(batch["input_ids"])):
        yield {name: values[index : index + 1] for name, values in batch.items()}


def _rule(case: Case, setting: str) -> ExitRule:
    name, _, number = setting.partition("@")
    try:
        return _RULES[name](case, number)
    except (KeyError, ValueError) as error:
        menu = "threshold@Q, patience@T, expectation, expectation_legacy, last"
        raise ValueError(f"{case.name}: unknown evaluation {setting!r}; known: {menu}") from error


def _inferred(model: EarlyExitModel, rule: ExitRule, batches: list[Batch]) -> list[tuple[str, Quantities]]:
    """Answers and exit layers by both ways of evaluating."""
    model.exit_rule = rule
    results = {
        "simulated": [apply_exit(rule, model.all_exits(batch)) for batch in batches],
        "compacted": [model.infer(batch) for batch in batches],
    }
    return [(way, _joined(result)) for way, result in results.items()]


def _joined(results: list[ExitResult]) -> Quantities:
    return {
        "exit_layer": torch.cat([result.exit_layer for result in results]),
        "logits": torch.cat([result.logits for result in results]),
    }


_TRAINING = {"ponder": _ponder_training, "pabee": _pabee_training}

_RULES: dict[str, Callable[[Case, str], ExitRule]] = {
    "threshold": lambda case, number: Threshold(float(number)),
    "patience": lambda case, number: Patience(int(number), case.settings["regression_threshold"]),
    "expectation": lambda case, number: Expectation(legacy=False),
    "expectation_legacy": lambda case, number: Expectation(legacy=True),
    "last": lambda case, number: LastLayer(),
}

# Original name -> ours, first match. Λ is a `LambdaLayer`, or a plain Linear as long as its architecture is not set.
_NAMES = (
    (r"albert\.encoder\.embedding_hidden_mapping_in\.", "encoder.project."),
    (r"albert\.encoder\.albert_layer_groups\.", "encoder.layers."),
    (r"albert\.", "encoder."),
    (r"classifiers\.cls_head\.", "classifier."),
    (r"classifiers\.exit_head\.(?:cls\.)?(weight|bias)$", r"lambda_head.output.\1"),
    (r"classifiers\.exit_head\.feature_extractor\.(\d+)\.0\.", r"lambda_head.hidden.\1."),
    (r"classifiers\.exit_head\.feature_extractor\.", "lambda_head.recurrent."),
)


if __name__ == "__main__":
    sys.exit(main())
