"""Methods from a folder of one's own, as docs/own_method.md has them: pytest tests/study/test_own_methods.py"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import launched_studies
from helpers.edited_files import replace_in
from helpers.launched_studies import PROVENANCE, launched_study, mini_plan
from helpers.launches import ONE_AT_A_TIME, WITHOUT_RAY
from helpers.messages import says
from helpers.own_methods import write_methods
from helpers.places import ROOT
from helpers.trained_studies import trained_study
from msgspec.structs import replace

import search_spaces
import trainables
from analysis import explain, report, tables, verify
from study import check_method, export, launch, predict, status
from study.facts.plan_file import require_plan, write_plan
from study.facts.provenance import code_of_method, read_provenance
from study.facts.study_facts import read_facts
from study.stored_models import predict_dev, time_models
from study.stored_models.own_methods import include_methods, include_unchanged_methods
from trainables.data.glue import load_split
from trainables.data.tasks import TASKS
from trainables.files import method_files
from trainables.models.exit_rules import read_setting
from trainables.runs.trained_model import load_trained

pytestmark = pytest.mark.slow


def dry_run(methods: Path | None, *options: str, out: Path) -> int:
    own = ["--include", str(methods)] if methods else []
    return launch.main([*own, "--method", "entropy", "--task", "rte", "--dry-run", "--out", str(out), *options])


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: replace_in(folder / "entropy_space.py", f"\n{name}", f"\nNO_{name}")


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def changed(name: str, old: str, new: str) -> Callable[[Path], None]:
    return lambda folder: replace_in(folder / name, old, new)


MISTAKES = {
    "no grid": (without("PAPER_GRID"), "{0}/entropy_space.py has no PAPER_GRID; a search space has SPACE, "),
    "neither": (
        changed("entropy_space.py", ' | {"threshold": FloatDistribution(0.05, 0.6)}', ""),
        "{0}/entropy_space.py:8: threshold of Config is not in SPACE, POST_HOC or FIXED",
    ),
    "no such field": (
        changed("entropy_space.py", "FIXED = paper.FIXED", 'FIXED = paper.FIXED | {"patience": 3}'),
        "{0}/entropy_space.py:8: FIXED has patience, which Config in {0}/entropy.py:13 lacks",
    ),
    "field": (
        changed("entropy_space.py", '"threshold": F', '"treshold": F'),
        "{0}/entropy_space.py:7: SPACE has treshold, which Config in {0}/entropy.py:13 lacks; did you mean threshold?",
    ),
    "annotation": (
        changed("entropy.py", "threshold: Positive ", "threshold: Positiv "),
        "{0}/entropy.py:13: NameError: name 'Positiv' is not defined; did you mean Positive?",
    ),
    "check": (
        changed("entropy.py", "task.is_regression", "task.is_regresion"),
        "{0}/entropy.py:17: AttributeError: 'Task' object has no attribute 'is_regresion'; did you mean is_regression?",
    ),
    "no space": (
        removed("entropy_space.py"),
        "method 'entropy' needs two files: {0}/entropy.py exists, {0}/entropy_space.py is missing",
    ),
    "no code": (
        removed("entropy.py"),
        "method 'entropy' needs two files: {0}/entropy_space.py exists, {0}/entropy.py is missing",
    ),
    "syntax": (changed("entropy.py", "def build(", "def build("[:-1]), "{0}/entropy.py:44: SyntaxError: "),
    "name": (
        changed("entropy_space.py", "paper.GRID", "paper.GIRD"),
        "{0}/entropy_space.py:9: AttributeError: module 'search_spaces._palbert_paper' has no attribute 'GIRD'; did "
        "you mean GRID?",
    ),
    "type": (
        changed("entropy_space.py", "FloatDistribution(0.05, 0.6)", "0.3"),
        "{0}/entropy_space.py:7: SPACE['threshold'] is 0.3; allowed: an Optuna distribution",
    ),
    "package": (
        changed("entropy.py", "from dataclasses", "import no_such_package\nfrom dataclasses"),
        "{0}/entropy.py:5: ModuleNotFoundError: No module named 'no_such_package'",
    ),
    "no build": (
        changed("entropy.py", "def build(", "def make("),
        "{0}/entropy.py does not define build; a method must define DEPARTURES, Config and build",
    ),
    "seeds": (
        changed("entropy_space.py", "FIXED = paper.FIXED", "SEEDS = (1, 2)\nFIXED = paper.FIXED"),
        "{0}/entropy_space.py:8: SEEDS has no effect in a search space; allowed: --seeds of a launch",
    ),
    "plural": (
        changed("entropy_space.py", "FIXED = paper.FIXED", "FIXED_BY_TASKS = {}\nFIXED = paper.FIXED"),
        "{0}/entropy_space.py:8: FIXED_BY_TASKS has no effect in a search space; did you mean FIXED_BY_TASK?",
    ),
    "family": (
        changed("entropy_space.py", "FIXED = paper.FIXED", "FIXED_BY_FAMILY = {'brt': {}}\nFIXED = paper.FIXED"),
        "{0}/entropy_space.py:8: FIXED_BY_FAMILY has 'brt'; allowed: albert, bert, ",
    ),
    "value": (
        changed("entropy_space.py", "[0.1, 0.3, 0.5]", "[0.1, 0.3, 5.0]"),
        "{0}/entropy_space.py:9: PAPER_GRID has threshold 5.0, which is outside of 0.05 to 0.6",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(methods: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], mistake: str) -> None:
    make, line = MISTAKES[mistake]
    make(methods)
    assert dry_run(methods, out=tmp_path / "runs") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"study.launch: {line.format(methods)}") and said.count("\n") == 1
    assert check_method.main([str(methods)]) == 1
    told = capsys.readouterr().out
    assert f"FAULT entropy: {line.format(methods)}" in told and told.count("FAULT") == 1


@pytest.mark.parametrize("mistake", ["no grid", "neither", "no space", "no code", "syntax", "type"])
def test_a_mistake_in_the_package_is_the_same_line(
    methods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mistake: str
) -> None:
    make, line = MISTAKES[mistake]
    make(methods)
    for package, name in ((trainables, "entropy.py"), (search_spaces, "entropy_space.py")):
        folder = tmp_path / "package" / package.__name__
        folder.mkdir(parents=True)
        if (methods / name).exists():
            shutil.copy(methods / name, folder / "entropy.py")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.entropy", raising=False)
    assert dry_run(None, out=tmp_path / "runs") == 2
    wanted = line.replace("{0}/entropy_space.py", "search_spaces/entropy.py").replace("{0}/", "trainables/")
    said = capsys.readouterr().err
    assert re.sub(rf"{tmp_path}/package/", "", said).startswith(f"study.launch: {wanted}") and said.count("\n") == 1
    for package in (trainables, search_spaces):
        sys.modules.pop(f"{package.__name__}.entropy", None)


def test_a_name_of_the_package_is_refused(methods: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("entropy", "entropy_space"):
        (methods / f"{name}.py").rename(methods / f"{name.replace('entropy', 'albert')}.py")
    assert dry_run(methods, out=tmp_path / "runs") == 2
    assert says(capsys.readouterr().err, f"{methods}/albert.py: ", "a method 'albert'; choose another")


@pytest.mark.parametrize("folder", ["none", "empty"])
def test_a_folder_without_methods_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str) -> None:
    (tmp_path / "empty").mkdir()
    assert dry_run(tmp_path / folder, out=tmp_path / "runs") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"study.launch: --include {tmp_path / folder}: ") and said.count("\n") == 1
    assert check_method.main([str(tmp_path / folder)]) == 2
    assert capsys.readouterr().err.startswith(f"study.check_method: FOLDER {tmp_path / folder}: ")


def test_method_folder_is_named_beside_given_one(methods: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (methods.parent, methods / "entropy.py"):
        assert check_method.main([str(given)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"study.check_method: FOLDER {given}: ") and said.endswith(
            f"; did you mean {methods}?\n"
        )
        assert dry_run(given, out=methods.parent / "runs") == 2
        said = capsys.readouterr().err
        assert said.startswith(f"study.launch: --include {given}: ") and said.endswith(f"; did you mean {methods}?\n")


def test_a_file_that_begins_with_an_underscore_is_shared(methods: Path, tmp_path: Path) -> None:
    (methods / "_shared.py").write_text("LOW, HIGH = 0.05, 0.6\n")
    replace_in(methods / "entropy_space.py", "\nSPACE", "\nfrom included_methods._shared import HIGH, LOW\nSPACE")
    replace_in(methods / "entropy_space.py", "FloatDistribution(0.05, 0.6)", "FloatDistribution(LOW, HIGH)")
    assert dry_run(methods, out=tmp_path / "runs") == 0
    assert search_spaces.load_space("entropy").space["threshold"].high == 0.6


def test_folder_content_counts_for_its_method_only(methods: Path, tmp_path: Path) -> None:
    before = read_provenance()
    trainables.include(methods)
    included = code_of_method(read_provenance(), "entropy").code_digest
    shutil.copytree(methods, tmp_path / "elsewhere")
    trainables.include(tmp_path / "elsewhere")
    assert code_of_method(read_provenance(), "entropy").code_digest == included != before.code_digest
    replace_in(methods / "entropy.py", "draws = 1", "draws = 1 ")
    trainables.include(methods)
    assert code_of_method(read_provenance(), "entropy").code_digest not in (included, before.code_digest)
    assert code_of_method(read_provenance(), "albert") == before == code_of_method(before, "albert")


def test_a_worker_has_the_methods_from_its_assignment_alone(methods: Path, tmp_path: Path) -> None:
    trainables.include(methods)
    sent, before = method_files.included(), read_provenance()
    assert sent is not None
    shutil.rmtree(methods)
    method_files.include(None)
    assert "entropy" not in trainables.list_methods()
    method_files.include(sent)
    assert read_setting(trainables.load_method("entropy").Entropy(0.3)) == 0.3
    assert read_provenance() == before and "entropy" in before.included


@pytest.fixture(scope="module")
def whole_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A whole study of the page's method, with its report, and the folder of the method, which has gone since."""
    place = tmp_path_factory.mktemp("own")
    methods, folder = write_methods(place / "methods"), place / "runs" / "own"
    trainables.include(methods)
    launched_study(folder, mini_plan(methods=("albert", "entropy"), tasks=("rte",), include=str(methods)))
    assert report.main([str(folder)]) == 0
    shutil.rmtree(methods)
    method_files.include(None)
    return folder, methods


@pytest.fixture
def study_of_a_gone_method(whole_study: tuple[Path, Path], tmp_path: Path) -> Iterator[Path]:
    """A copy of it."""
    yield shutil.copytree(whole_study[0], tmp_path / "runs" / "own")
    method_files.include(None)


@pytest.mark.long
def test_what_needs_no_method_goes_on_without_its_folder(
    study_of_a_gone_method: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study_of_a_gone_method
    for done in (
        status.main([str(folder)]),
        tables.main([str(folder)]),
        explain.main([str(folder), "entropy/rte"]),
        report.main([str(folder)]),
    ):
        assert done == 0
    assert "entropy" in capsys.readouterr().out
    assert verify.verify(folder) == []


def test_moved_include_folder_is_asked_for_again(
    methods: Path,
    whole_study: tuple[Path, Path],
    study_of_a_gone_method: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, (_, gone) = study_of_a_gone_method, whole_study
    assert require_plan(folder).plan.request.include == str(gone)
    again = ["--name", "own", "--out", str(folder.parent), "--dry-run", "--task", "rte", "--sampler", "random"]
    again += ["--samples", "3", "--seeds", "2", "--epochs", "4", "--method", "albert"]
    capsys.readouterr()
    assert launch.main(again) == 2
    said = capsys.readouterr().err
    assert says(said, f"folder {gone} ", "entropy is missing; ", "--include ", "all methods of the study\n")
    assert time_models.main([str(folder)]) == 2  # a command without this option
    assert "; allowed: study.launch --continue with --include " in capsys.readouterr().err
    assert launch.main([*again, "--include", str(methods)]) == 0


def test_a_method_in_another_folder_than_the_studys_is_refused(
    tmp_path: Path, whole_study: tuple[Path, Path], study_of_a_gone_method: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_methods(tmp_path / "other")
    for file in sorted(other.iterdir()):
        file.rename(other / file.name.replace("entropy", "confidence"))
    again = ["--continue", str(study_of_a_gone_method), "--include", str(other), "--dry-run"]
    capsys.readouterr()
    for methods in ([], ["--method", "confidence"]):
        assert launch.main([*again, *methods]) == 2
        said = capsys.readouterr().err
        assert says(said, f"folder {other} does not contain ", "entropy; ", "--include ", "all methods of the study\n")


def test_study_of_removed_method_stays_readable(
    study_of_a_gone_method: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study_of_a_gone_method
    file = require_plan(folder)
    asked = replace(file.plan.request, include=mini_plan().request.include)
    write_plan(folder, replace(file, plan=replace(file.plan, request=asked)))  # as if it had been the package's
    capsys.readouterr()
    assert status.main([str(folder)]) == 0 and tables.main([str(folder)]) == 0
    assert explain.main([str(folder), "entropy/rte"]) == 0
    assert launch.main(["--name", "own", "--out", str(folder.parent), "--method", "entropy", "--task", "rte"]) == 2
    assert "no method named 'entropy'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def exported_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model of the page's method, exported; its folder is gone since."""
    place = tmp_path_factory.mktemp("exported")
    methods = write_methods(place / "methods")
    (methods / "_shared.py").write_text("LOW, HIGH = 0.05, 0.6\n")
    (methods / "other.py").write_text((methods / "entropy.py").read_text())
    replace_in(methods / "entropy_space.py", "\nSPACE", "\nfrom included_methods._shared import HIGH, LOW\nSPACE")
    trainables.include(methods)
    trained_study(place / "study", "entropy", "rte", config={"epochs": 1})
    assert export.main([str(place / "study"), "--include", str(methods), "--to", str(place / "exported")]) == 0
    shutil.rmtree(methods)
    method_files.include(None)
    return place / "exported"


@pytest.fixture
def exported(exported_once: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it."""
    yield shutil.copytree(exported_once, tmp_path / "exported")
    method_files.include(None)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study of a trained model of the page's method, and the method's folder, which its plan names."""
    place = tmp_path_factory.mktemp("trained")
    methods, folder = write_methods(place / "methods"), place / "study"
    trainables.include(methods)
    trained_study(folder, "entropy", "rte", config={"epochs": 1})
    file = require_plan(folder)
    request = replace(file.plan.request, include=str(methods))
    write_plan(folder, replace(file, plan=replace(file.plan, request=request)))
    method_files.include(None)
    return place


@pytest.fixture
def trained(trained_once: Path) -> Iterator[Path]:
    files = {path: path.read_text() for path in (trained_once / "methods").iterdir() if path.is_file()}
    yield trained_once
    method_files.include(None)
    for path, text in files.items():
        path.write_text(text)


def test_commands_run_no_files_that_never_ran_here(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, methods, ran = trained / "study", trained / "methods", tmp_path / "ran"
    with (methods / "entropy.py").open("a") as file:
        file.write(f"open({str(ran)!r}, 'w').close()\n")
    (key,) = (record.key for record in read_facts(folder).records if record.model != "/gone")
    capsys.readouterr()
    for refused in (
        lambda: predict.main([str(folder), str(input_file(tmp_path))]),
        lambda: export.main([str(folder), "--to", str(tmp_path / "exported")]),
    ):
        assert refused() == 2
        assert says(capsys.readouterr().err, f"entropy from {methods}, ", "not run on this machine", "add --include ")
    assert predict_dev.main([str(folder), key, "--to", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert says(said, "not run on this machine", f"--continue {folder} --include {methods} --dry-run\n")
    assert not ran.exists()
    assert export.main([str(folder), "--to", str(tmp_path / "exported"), "--include", str(methods)]) == 0
    method_files.include(None)
    assert ran.exists() and predict_dev.main([str(folder), key, "--to", str(tmp_path)]) == 0


def test_edited_files_are_told_or_refused_for_trained_models(
    methods: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "own"
    trainables.include(methods)
    plan = mini_plan(methods=("entropy",), tasks=("rte",), include=str(methods))
    launched_studies.launch(folder, plan, code=replace(PROVENANCE, included=method_files.included().digests))
    records = read_facts(folder).records
    for include in (include_methods, include_unchanged_methods):
        include(folder, records, [str(methods)])
    assert capsys.readouterr().err == ""
    replace_in(methods / "entropy.py", "draws = 1", "draws = 2")
    include_methods(folder, records, [str(methods)])
    edited = f"the files of entropy in {methods} have changed since they trained "
    assert says(capsys.readouterr().err, f"warning: {edited}")
    with pytest.raises(ValueError, match=f"^{re.escape(edited)}.*; allowed: --include with "):
        include_unchanged_methods(folder, records, [str(methods)])


def input_file(folder: Path) -> Path:
    rows = load_split(TASKS["rte"], "test", "mini").texts[:8]
    lines = ["sentence1\tsentence2", *("\t".join(row) for row in rows)]
    (folder / "input.tsv").write_text("\n".join(lines) + "\n")
    return folder / "input.tsv"


def test_export_contains_method_files_and_readme(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(path.name for path in (exported / "methods").iterdir()) == [
        "_shared.py",
        "entropy.py",
        "entropy_space.py",
    ]
    (command,) = re.findall(r"^python -m study\.predict (.*)$", (exported / "README.md").read_text(), re.MULTILINE)
    monkeypatch.chdir(exported)
    input_file(exported)
    assert predict.main(command.split()) == 0
    assert (exported / "answers.tsv").read_text().count("\n") == 9


def test_nothing_of_an_exported_folder_is_run_without_being_told_so(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (exported / "methods" / "entropy.py").write_text("raise SystemExit('run')\n")
    capsys.readouterr()
    assert predict.main([str(exported), str(input_file(exported))]) == 2
    said = capsys.readouterr().err
    assert says(said, f"study.predict: {exported} ", "method 'entropy', ", f"--include {exported}/methods, ")
    assert said.count("\n") == 1


@pytest.mark.long
def test_a_study_from_a_folder_is_like_any_other(
    methods: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "own"
    command = [sys.executable, "-m", "study.launch", "--include", str(methods), "--method", "albert,entropy"]
    command += ["--task", "rte", "--samples", "1", "--seeds", "1", "--epochs", "2", "--profile", "mini"]
    command += ["--name", "own", "--out", str(folder.parent), "--tracking-uri", "none", *WITHOUT_RAY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "\nwaiting for the trials to start\n" in done.stderr  # that takes long, and nobody sees a terminal
    assert re.search(r"^\| entropy/rte +\| +\d\d\.\d°? +\|", done.stdout, re.MULTILINE)
    trainables.include(methods)
    for record in read_facts(folder).records:
        assert record.code_digest == code_of_method(read_provenance(), record.method).code_digest
    method_files.include(None)
    assert verify.main([str(folder)]) == 0

    assert export.main([str(folder), "--method", "entropy", "--to", str(tmp_path / "exported")]) == 0
    asked = [str(input_file(tmp_path)), "--to"]
    assert predict.main([str(folder), *asked, str(tmp_path / "a.tsv"), "--method", "entropy"]) == 0
    method_files.include(None)
    capsys.readouterr()
    assert predict.main([str(tmp_path / "exported"), *asked, str(tmp_path / "b.tsv")]) == 2
    assert says(capsys.readouterr().err, "method 'entropy', ", "unknown here; include the folder")
    again = [str(tmp_path / "exported"), *asked, str(tmp_path / "b.tsv"), "--include", str(methods)]
    assert predict.main(again) == 0
    assert (tmp_path / "a.tsv").read_text() == (tmp_path / "b.tsv").read_text()
    assert load_trained(str(tmp_path / "exported")).spec.method == "entropy"


@pytest.mark.long
@pytest.mark.parametrize("driver", ["ray", "local"])
def test_prints_of_a_method_are_in_one_file_of_the_study(methods: Path, tmp_path: Path, driver: str) -> None:
    replace_in(methods / "entropy.py", "    rules = [", '    print("built by", encoder.num_layers)\n    rules = [')
    command = [sys.executable, "-m", "study.launch", "--include", str(methods), "--method", "entropy", "--task", "rte"]
    command += ["--profile", "mini", "--samples", "1", "--seeds", "1", "--epochs", "1", "--tracking-uri", "none"]
    command += ["--driver", driver, *ONE_AT_A_TIME, "--out", str(tmp_path), "--name", "study"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "study" / "workers.log"
    assert f"the trials write their output to {log}\n" in done.stderr
    assert log.read_text().splitlines().count("built by 6") == 3  # a step before all trials, and two of these
