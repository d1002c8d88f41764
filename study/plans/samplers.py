"""The options --sampler and --select-by of a search.

A sampler is given by the name of an Optuna sampler, or as `package.module:Factory`.
`study.decisions.proposals` asks samplers for configurations. --select-by is the rule that chooses epochs and trials;
`select_exit` in `trainables/runs/evaluation.py` applies this rule. Importing this module does not import Optuna.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from study.plans.plan import EarlyStopping
from trainables.configuration.spelling import resolve_name, unknown_name_error
from trainables.runs.trial import AREA, AT_LAYERS, read_most_layers

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

OWN = ":"  # only in the name of a user's sampler
FORM = "PACKAGE.MODULE:FACTORY"
SELECT_FORMS = f"score, {AREA}, {AT_LAYERS}LAYERS"
RANDOM_TRIALS = 10  # random trials per arm before TPE and GP start to learn: Optuna's n_startup_trials
SAMPLERS = {  # name -> packages that the sampler needs
    "tpe": (),
    "random": (),
    "grid": (),
    "qmc": ("scipy",),
    "cmaes": ("cmaes",),
    "gp": ("torch", "scipy"),
}


def resolve_sampler(name: str) -> str:
    """Correct the spelling of an Optuna sampler's name. Return `package.module:Factory` unchanged.

    Raises:
        ValueError: the name is unknown.
    """
    return name if OWN in name else resolve_name(name, [*SAMPLERS, FORM], what="sampler")


def check_sampler(name: str) -> None:
    """Raise ValueError if the sampler is unknown or invalid, or needs a missing package."""
    if OWN in name:
        make_own_sampler(name, seed=0)
    elif name not in SAMPLERS:
        raise unknown_name_error("sampler", name, [*SAMPLERS, FORM])
    elif missing := [package for package in SAMPLERS[name] if find_spec(package) is None]:
        raise ValueError(f"--sampler {name} needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def make_own_sampler(name: str, *, seed: int) -> BaseSampler:
    """Import `package.module:Factory` from Python's path and call the factory with the seed.

    Raises:
        ValueError: the factory cannot be imported, fails, or does not return an Optuna sampler.
    """
    from optuna.samplers import BaseSampler

    module, _, factory = name.partition(OWN)
    try:
        sampler = getattr(importlib.import_module(module), factory)(seed=seed)
    except Exception as error:  # a user's code may raise anything
        fault = f"{type(error).__name__}: {error}"
        where = "; allowed: an installed package, or a module in a folder of PYTHONPATH"
        raise ValueError(f"--sampler {name}: {fault}{where * isinstance(error, ImportError)}") from error
    if not isinstance(sampler, BaseSampler):
        raise ValueError(
            f"--sampler {name}: the factory returned {type(sampler).__name__} for seed={seed}; allowed: a BaseSampler"
        )
    return sampler


def describe_sampler(name: str, samples: int, stopping: EarlyStopping | None) -> str:
    """Describe the sampler, and its limits in a search of `samples` trials."""
    limits = []
    if name in ("cmaes", "gp") and stopping:
        limits.append("learns only from trials that ASHA does not stop")
    if name in ("tpe", "gp") and 0 < samples <= RANDOM_TRIALS:
        limits.append(f"in effect a random search, because the first {RANDOM_TRIALS} trials are random")
    if name == "cmaes":
        limits.append("draws categorical fields at random")
    return f"{name} ({'; '.join(limits)})" if limits else name


def read_select_by(text: str) -> str | UnsetType:
    """Convert a selection rule for plans: `at:6.0` becomes `at:6`, and `score` becomes UNSET.

    Raises:
        ValueError: the text is not a selection rule.
    """
    if text == "score":
        return UNSET
    try:
        layers = float(text.removeprefix(AT_LAYERS)) if text.startswith(AT_LAYERS) else 0.0
    except ValueError:
        layers = 0.0
    if text != AREA and not 1 <= layers < float("inf"):
        raise ValueError(f"--select-by is {text!r}; allowed: {SELECT_FORMS} with LAYERS at least 1, such as at:6")
    return AREA if text == AREA else f"{AT_LAYERS}{layers:g}"


def describe_select_by(select_by: str) -> str:
    """Describe a selection rule for captions and dry runs."""
    last = "models without early exits are selected by their score"
    layers = read_most_layers(select_by)
    if layers is None:
        return f"selected by the mean score over the front of exit settings and single layers ({last})"
    return (
        f"selected by the best score within {layers:g} mean layers (by the score of layer {int(layers)} if "
        f"every exit setting runs more layers; {last})"
    )
