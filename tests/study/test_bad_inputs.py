"""What a person can get wrong, command by command, is one line: pytest tests/study/test_bad_inputs.py"""

import json
import shutil
from pathlib import Path

import pytest
from helpers.launched_studies import launched_study, mini_plan
from helpers.messages import says

from study.console import main
from study.plans.resolved_plan import digest


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return launched_study(tmp_path_factory.mktemp("runs") / "first", mini_plan(methods=("albert",), tasks=("rte",)))


@pytest.fixture
def here(tmp_path, monkeypatch, finished) -> Path:
    """A folder to be in, with a study, a file, and a link that leads nowhere."""
    shutil.copytree(finished, tmp_path / "runs" / "first")
    (tmp_path / "file").write_text("x\n")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, here: Path, *arguments: str) -> str:
    """The one line with which a command was refused, the folder as HERE; nothing may have been made or lost."""
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()}
    status = main(arguments)
    printed = capsys.readouterr()
    assert status in (1, 2) and printed.out == "" and printed.err.count("\n") == 1, printed.err
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()} == before
    return printed.err.strip().replace(str(here), "HERE")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "launch --out= --dry-run",
        "launch --profile= --dry-run",
        "launch --tracking-uri= --dry-run",
        "launch --set= --dry-run",
        "status ",
        "launch --samples 99999999999999999999 --dry-run",
        "launch --max-failures 9999999999 --dry-run",
        "launch --set q=2 --dry-run",
        "launch --set learning_rte=1 --dry-run",
        "pretrain mlm --corpus mini --to there --set stepz=3",
        "launch --data Mini --dry-run",
        "launch --data gone --task rte --dry-run",
        "launch --seeds 42,43 --dry-run",
        "launch --seeds null --dry-run",
        "launch --seeds true --dry-run",
        "launch --name new --retry-failed",
        "launch --task rte --dry-run --explain pabee/mnli",
        "explain runs/first albert/sst2",
        "explain runs/first palbert/rte",
        "explain runs/first albrt/rte",
        "submit runs/first --method pabee",
        "launch --data hubb --task rte --dry-run",
        "launch --toml --json --dry-run",
        "launch --toml --probe --dry-run",
        "launch --explain palbert/rte --toml --dry-run",
        "launch --samples 0 --first-from runs/x --dry-run",
        f"launch --name {'x' * 300} --dry-run",
        "launch --name s --out file",
        "launch --out file --dry-run",
        "launch --out loop --dry-run",
        "launch --out /proc/foo --dry-run",
        "launch --storage /proc/foo --dry-run",
        "launch --address 127.0.0.1:abc",
        "launch --address ray://",
        "doctor --address 127.0.0.1:70000",
        "launch --storage s3:/bucket/x --dry-run",
        "launch --tracking-uri http://127.0.0.1:99999 --dry-run",
        "mirror runs/first --tracking-uri https://",
        "launch --plan nowhere.toml",
        "launch --plan loop",
        "tables runs",
        "tables loop",
        "status file",
        "export runs/first --to loop",
        "export runs/first --to file/x",
        "export runs/first --to /proc/x",
        "tables runs/first --out file",
        "tables runs/first --out /proc/x",
        "submit runs/first --out runs",
        "submit runs/first --out /proc/x.zip",
        "predict runs/first file --to /proc/x.tsv",
        "verify runs/first --tables nowhere",
        "launch --epochs x",
        "predict runs/first nowhere.tsv --to out.tsv",
        "predict runs/first file --to no/where.tsv",
    ],
)
def test_one_line_says_the_value_and_what_is_allowed(capsys, here, command, snapshot):
    assert refused(capsys, here, *command.split(" ")) == snapshot


@pytest.mark.parametrize(
    "content",
    [
        b"samples = -1",
        b"seeds = -1",
        b"[set]\nepochs = 0",
        b'samples = "many"',
        b'early_stopping = "asha"',
        'methods = ["albert"]'.encode("utf-16"),
        b'data = "nowhere"',
        b'backbone = "mini-albrt"',
        b'sampler = "cmae"',
        b"[early_stopping]\ngrace = 0",
        b'methods = ["palbret"]',
        b'methods = "palbert"\n[vary.palbert]\nbeta = [0.1, 0.3]',
        b"methods = 5\n[vary.palbert]\nbeta = [0.1, 0.3]",
        b'[first]\n"palbert/rte" = [{origin = "x", values = 3}]',
        b'[first]\n"palbert/rte" = [{origin = "x", values = {beta = [1]}}]',
    ],
)
def test_plan_file_is_checked_like_options(capsys, here, content, snapshot):
    (here / "plan.toml").write_bytes(content)
    assert refused(capsys, here, "launch", "--plan", "plan.toml", "--dry-run") == snapshot


def test_names_in_a_plan_are_taken_as_people_write_them(capsys, here):
    (here / "plan.toml").write_text('methods = ["PALBERT"]\ntasks = ["SST-2"]\n')
    assert main(["launch", "--plan", "plan.toml", "--dry-run"]) == 0
    assert "palbert/sst2" in capsys.readouterr().out


def test_plan_of_other_version_lists_known_fields(capsys, here):
    path = here / "runs" / "first" / "plan.json"
    content = {name: value for name, value in json.loads(path.read_text()).items() if name != "digest"}
    content["plan"]["asked"]["flavour"] = "mint"
    path.write_text(json.dumps({**content, "digest": digest(content)}))
    line = refused(capsys, here, "status", "runs/first")
    assert "plan.asked.flavour; available: profile, methods, tasks" in line
    assert "another version of glue-exit-study" in line


def test_an_option_that_is_needed_cannot_be_left_out(capsys, here):
    assert refused(capsys, here, "export", "runs/first", "--to", "").startswith("study.export: --to is empty; ")


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("plan.json", "tables runs/first"),
        ("events.jsonl", "status runs/first"),
        ("events.jsonl", "launch --continue runs/first --samples 9 --dry-run"),
    ],
)
def test_a_folder_in_the_place_of_a_studys_file_is_named(capsys, here, file, command, snapshot):
    path = here / "runs" / "first" / file
    path.unlink()
    path.mkdir()
    assert refused(capsys, here, *command.split()) == snapshot


@pytest.mark.parametrize("command", ["mirror runs/first", "predict runs/first file --to out.tsv", "tables runs/first"])
def test_truncated_plan_tells_how_to_restore_it(capsys, here, command):
    path = here / "runs" / "first" / "plan.json"
    path.write_bytes(path.read_bytes()[:400])
    assert says(refused(capsys, here, *command.split()), "; delete the file, ", ": python -m study.launch ")


@pytest.mark.parametrize("name", ["Mine", "my-own", "1st"])
def test_a_file_whose_name_is_that_of_no_method_is_refused(capsys, here, name):
    (here / "own").mkdir()
    (here / "own" / f"{name}.py").write_text("class Config: ...\n")
    line = refused(capsys, here, "launch", "--include", "own", "--method", name, "--dry-run")
    assert f"own/{name}.py: {name} is not a valid method name; allowed: a lower-case letter, then lower-case " in line
