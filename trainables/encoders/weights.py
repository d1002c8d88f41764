"""Names and shapes of weights: reads them from files without torch, and describes how two sets of weights differ.

Of a file, only the part that describes the weights is read: the header of a safetensors file, or the pickle of a .bin
file. No code in a pickle runs.
"""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import ZipFile, is_zipfile

if TYPE_CHECKING:
    from torch import Tensor, nn

Shape = tuple[int, ...]
FLOATS = ("F32", "F16", "BF16", "F64")  # number types that are converted to float32 without a change of meaning
_STORAGES = {"FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16", "DoubleStorage": "F64"}
_NO_WEIGHT = "no weight"  # number type of an entry of a .bin file that is not a weight


class Weight(NamedTuple):
    """The shape and the number type of a weight."""

    shape: Shape
    dtype: str  # as in safetensors: F32, I8, ...


def read_header(file: Path) -> dict[str, Weight]:
    """Read the names, shapes and number types of all weights in a file, or in the files that an index names.

    Raises:
        Exception: if a file is missing or damaged; the type depends on the library that reads it.
    """
    if not file.name.endswith(".index.json"):
        status = file.stat()
        return _read_file(file, status.st_size, status.st_mtime_ns)
    return {name: weight for shard in list_shards(file) for name, weight in read_header(shard).items()}


def list_shards(index: Path) -> list[Path]:
    """List the weights files that an index names.

    Raises:
        ValueError: if the index names no files, or a file is missing.
    """
    content = json.loads(index.read_text(encoding="utf-8"))
    shards = sorted({*content["weight_map"].values()}) if "weight_map" in content else []
    missing = [name for name in shards if not (index.parent / name).is_file()]
    if missing:
        raise ValueError(f"{len(missing)} of the {len(shards)} files in the index are missing, including {missing[0]}")
    if not shards:
        raise ValueError("the index names no files")
    return [index.parent / name for name in shards]


@lru_cache(maxsize=64)
def _read_file(file: Path, size: int, modified: int) -> dict[str, Weight]:
    """Read one file. The result is cached until the file's size or date changes."""
    if file.suffix != ".safetensors":
        return _read_pickle(file)
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as content:
        slices = {name: content.get_slice(name) for name in content.keys()}  # noqa: SIM118 - not a mapping
        return {name: Weight(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def _read_pickle(file: Path) -> dict[str, Weight]:
    """Read the pickle in a file of `torch.save`, in its present or its former format."""
    try:
        with file.open("rb") as stream:
            if is_zipfile(stream):
                with ZipFile(stream) as archive:
                    name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
                    with archive.open(name) as member:
                        content = _Headers(member).load()
            else:
                stream.seek(0)
                *_, content = (_Headers(stream).load() for _ in range(4))  # number, version and machine come first
        weights = {str(name): value for name, value in content.items()}
    except Exception as error:
        if isinstance(error, OSError):
            raise
        raise ValueError("the file does not contain only weights") from error
    return {name: value if isinstance(value, Weight) else Weight((), _NO_WEIGHT) for name, value in weights.items()}


class _Headers(pickle.Unpickler):
    """Unpickles the descriptions of tensors, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _describe_tensor,
            ("torch._utils", "_rebuild_parameter"): _describe_parameter,
        }
        if module == "torch" and name.endswith("Storage"):
            return _STORAGES.get(name, name)
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return known[module, name]

    def persistent_load(self, pid: Any) -> Any:
        _, dtype, *_ = pid
        return dtype


def _describe_tensor(storage: str, offset: int, shape: Shape, *others: object) -> Weight:
    return Weight(tuple(shape), storage)


def _describe_parameter(weight: Weight, *others: object) -> Weight:
    return weight


def describe_difference(
    needed: Mapping[str, Shape], present: Mapping[str, Shape], *, needs: str, has: str, surplus: Iterable[str] = ()
) -> str | None:
    """Describe in one line how the weights that are present differ from those that are needed; None if they fit.

    Args:
        needs: what needs the weights, such as `config.json`.
        has: what has the present weights, such as `model.safetensors`.
        surplus: names of present weights that would be ignored, but must not be.
    """
    whole = f"{needs} needs {len(needed)} weights"
    if missing := [name for name in needed if name not in present]:
        if prefix := _find_prefix(missing, present):
            whole += f", {has} has {_count(len(needed) - len(missing))} of them: its names begin with `{prefix}`"
            return f"{whole}; save the weights without this prefix"
        other = next((name for name in present if name not in needed), None)
        whole += f", {has} has {_count(len(needed) - len(missing))} of them; first missing: {missing[0]}"
        return whole + (f"; first that is not needed: {other}" if other else "")
    if wrong := [name for name, shape in needed.items() if present[name] != shape]:
        first = f"{wrong[0]} is {_format(present[wrong[0]])}, but should be {_format(needed[wrong[0]])}"
        return f"{whole}, {has} has {len(wrong)} of them in another shape; first: {first}"
    if unused := list(surplus):
        return f"{whole}, {has} has {len(unused)} more in the same place; first: {unused[0]}"
    return None


def check_fit(module: nn.Module, weights: Mapping[str, Tensor], *, has: str) -> None:
    """Check that weights have the names and shapes of a module's state.

    Args:
        has: what has the weights, for the message, such as `model.safetensors`.

    Raises:
        ValueError: if a name or a shape differs.
    """
    needed, present = (
        {name: tuple(value.shape) for name, value in state.items()} for state in (module.state_dict(), weights)
    )
    surplus = [name for name in present if name not in needed]
    if fault := describe_difference(needed, present, needs="the model", has=has, surplus=surplus):
        raise ValueError(fault)


def _find_prefix(missing: list[str], present: Iterable[str]) -> str | None:
    """Find the prefix under which all missing names are present."""
    names = set(present)
    for name in names:
        prefix = name.removesuffix(missing[0])
        if prefix != name and prefix.endswith(".") and all(f"{prefix}{wanted}" in names for wanted in missing):
            return prefix
    return None


def _count(number: int) -> str:
    return str(number) if number else "none"


def _format(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "a single number"
