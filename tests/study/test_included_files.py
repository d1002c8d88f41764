"""Files that a user's own methods read and import: pytest tests/study/test_included_files.py"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from helpers.edited_files import replace_in
from helpers.faulty_methods import write_drawing, write_method, write_reading
from helpers.launched_studies import launch as run_launch
from helpers.launched_studies import mini_plan
from helpers.messages import says
from helpers.trained_studies import trained_study
from helpers.trials import spec_of

import trainables
from study import export, launch
from study.drivers.causes import build_failure
from study.drivers.messages import ASSIGNMENTS, Assignment
from study.facts.provenance import code_of_method, read_provenance
from trainables.files import method_files
from trainables.files.method_files import MOST_MEGABYTES, read_methods
from trainables.runs.training import TrainingRun
from trainables.runs.trial import UnreadableState


@pytest.fixture
def methods(tmp_path: Path) -> Iterator[Path]:
    yield write_reading(tmp_path / "methods")
    method_files.include(None)


def digest_of(folder: Path, method: str) -> str:
    trainables.include(folder)
    return code_of_method(read_provenance(), method).code_digest


# ---- what belongs to a method


def test_all_visible_files_beside_a_method_belong_to_it(methods: Path) -> None:
    (methods / "helper.py").write_text("FACTOR = 2\n")
    (methods / "table.bin").write_bytes(b"\xff\x00")
    (methods / ".hidden").write_text("x")
    for folder in ("__pycache__", "data"):
        (methods / folder).mkdir()
        (methods / folder / "file").write_text("x")
    names = ["factor.json", "helper.py", "reading.py", "reading_space.py", "table.bin"]
    assert sorted(read_methods(methods).for_method("reading")) == names


@pytest.mark.parametrize("name", ["factor.json", "helper.py", "_shared.py"])
def test_an_edited_file_gives_other_code(methods: Path, name: str) -> None:
    (methods / name).write_text("1.0\n")
    before = digest_of(methods, "reading")
    (methods / name).write_text("2.0\n")
    assert digest_of(methods, "reading") != before


def test_files_of_other_method_count_only_if_imported(methods: Path) -> None:
    before = digest_of(methods, "reading")
    write_drawing(methods)
    assert digest_of(methods, "reading") == before
    for statement in ("from included_methods.drawing import Config", "from included_methods import drawing"):
        replace_in(methods / "reading.py", "import json", f"{statement}\nimport json")
        assert "drawing.py" in read_methods(methods).for_method("reading")
        replace_in(methods / "reading.py", statement, "")
    (methods / "_shared.py").write_text("from . import drawing_space\nimport included_methods.drawing\n")
    used = read_methods(methods).for_method("reading")
    assert {"_shared.py", "drawing.py", "drawing_space.py"} <= set(used)


def test_large_files_are_refused_in_one_line(methods: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (methods / "model.bin").write_bytes(bytes((MOST_MEGABYTES + 1) * 10**6))
    assert launch.main(["--include", str(methods), "--method", "reading", "--task", "rte", "--dry-run"]) == 2
    printed = capsys.readouterr().err
    assert says(printed, f"--include {methods}: ", "3.0 MB (model.bin has 3.0 MB); allowed: ")
    assert printed.count("\n") == 1


# ---- what a process finds


def test_a_worker_reads_the_files_as_the_launch_read_them(methods: Path) -> None:
    sent = Assignment(included=read_methods(methods), device="cpu", cpus=1, gpus=0, threads=1)
    received = ASSIGNMENTS.read(msgspec.json.encode(sent), where="an assignment")
    (methods / "factor.json").write_text("2.0\n")
    method_files.include(received.included)
    assert trainables.load_method("reading").FACTOR == 1.0
    method_files.include(None)
    shutil.rmtree(methods)
    method_files.include(received.included)
    assert trainables.load_method("reading").FACTOR == 1.0


def test_a_changed_copy_in_the_cache_is_written_again(methods: Path) -> None:
    trainables.include(methods)
    (copy := Path(trainables.load_method("reading").__file__).with_name("factor.json")).write_text("3.0\n")
    method_files.include(None)
    trainables.include(methods)
    assert trainables.load_method("reading").FACTOR == 1.0 and copy.read_text() == "1.0\n"


def test_an_error_names_the_user_s_file_and_not_the_copy(methods: Path) -> None:
    replace_in(
        methods / "reading.py", "def build(config, encoder, task):", "def build(config, encoder, task):\n    1 / 0"
    )
    trainables.include(methods)
    module = trainables.load_method("reading")
    with pytest.raises(ZeroDivisionError) as raised:
        module.build(None, None, None)
    failure = build_failure(raised.value, node=None, module="included_methods.reading")
    assert failure.error.startswith("ZeroDivisionError: division by zero (methods/reading.py, line ")
    assert f'File "{methods}/reading.py"' in failure.traceback


def test_missing_file_in_subfolder_is_method_fault(methods: Path) -> None:
    (methods / "data").mkdir()
    (methods / "factor.json").rename(methods / "data" / "factor.json")
    replace_in(
        methods / "reading.py",
        "Path(__file__).with_name('factor.json')",
        "(Path(__file__).parent / 'data/factor.json')",
    )
    trainables.include(methods)
    with pytest.raises(ValueError, match=r"reading.py:\d+: FileNotFoundError: .*; .*but not those in subfolders"):
        trainables.load_method("reading")
    missing = FileNotFoundError(2, "No such file or directory", str(method_files._copy / "data" / "factor.json"))
    failure = build_failure(missing, node=None)
    assert failure.cause == "method" and failure.error.endswith("but not those in subfolders")


def test_an_import_of_a_file_beside_gets_the_name_that_holds(methods: Path) -> None:
    (methods / "helper.py").write_text("x = 1\n")
    replace_in(methods / "reading.py", "import json", "from helper import x\nimport json")
    trainables.include(methods)
    expected = r"reading.py:\d+: ModuleNotFoundError: No module named 'helper'; did you mean included_methods.helper\?$"
    with pytest.raises(ValueError, match=expected):
        trainables.load_method("reading")
    replace_in(methods / "reading.py", "from helper", "from included_methods.helper")
    trainables.include(methods)
    assert trainables.load_method("reading").x == 1


# ---- edits between two launches


def test_an_interrupted_trial_does_not_continue_with_other_files(methods: Path, tmp_path: Path) -> None:
    trainables.include(methods)
    cache = tmp_path / "cache"
    run = TrainingRun(spec_of("reading"), cache=cache)
    run.run_epoch()
    run.save(tmp_path / "state")
    assert len(TrainingRun.resume(tmp_path / "state", cache=cache).history) == 1
    (methods / "factor.json").write_text("2.0\n")
    trainables.include(methods)
    with pytest.raises(UnreadableState, match="files of its method have changed"):
        TrainingRun.resume(tmp_path / "state", cache=cache)


def test_a_launch_notes_that_files_have_changed(
    methods: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainables.include(methods)
    plan = mini_plan(methods=("albert", "reading"), tasks=("rte",), include=str(methods))
    run_launch(tmp_path / "runs" / "study", plan, killed_after=30, code=read_provenance())
    again = ["--continue", str(tmp_path / "runs" / "study"), "--dry-run"]
    note = f"the files of reading in {methods} have changed since earlier trials: completed trials stay, "
    method_files.include(None)
    assert launch.main(again) == 0
    assert note not in capsys.readouterr().out
    (methods / "factor.json").write_text("2.0\n")
    method_files.include(None)
    assert launch.main(again) == 0
    assert note in capsys.readouterr().out


@pytest.mark.slow
def test_an_export_contains_the_files(methods: Path, tmp_path: Path) -> None:
    (methods / "helper.py").write_text("x = 1\n")
    write_drawing(methods)
    trainables.include(methods)
    trained_study(tmp_path / "study", "reading", "rte", config={"epochs": 1})
    exported = tmp_path / "exported"
    assert export.main([str(tmp_path / "study"), "--include", str(methods), "--to", str(exported)]) == 0
    names = ["factor.json", "helper.py", "reading.py", "reading_space.py"]
    assert sorted(path.name for path in (exported / "methods").iterdir()) == names
    own = read_methods(methods).digests["reading"]
    assert read_methods(exported / "methods").digests["reading"] == own
    shutil.rmtree(methods)
    trainables.include(exported / "methods")
    assert trainables.load_method("reading").FACTOR == 1.0


def test_a_folder_of_tasks_alone_may_hold_large_files(tmp_path: Path) -> None:
    (tmp_path / "notes.bin").write_bytes(bytes((MOST_MEGABYTES + 1) * 10**6))
    assert read_methods(tmp_path, may_lack_methods=True).files == {}


def test_methods_without_other_files_keep_their_digests(tmp_path: Path) -> None:
    """Kept studies name these digests."""
    methods = write_method(tmp_path / "methods", "plain")
    (methods / "_shared.py").write_text("x = 1\n")
    lines = [
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode() for path in sorted(methods.iterdir())
    ]
    assert len(lines) == 3
    assert read_methods(methods).digests["plain"] == hashlib.sha256(b"".join(lines)).hexdigest()[:16]
