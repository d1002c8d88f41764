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
    """The one line with which a command was refused; nothing may have been made or lost."""
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()}
    status = main(arguments)
    printed = capsys.readouterr()
    assert status in (1, 2) and printed.out == "" and printed.err.count("\n") == 1, printed.err
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()} == before
    return printed.err.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("launch --out= --dry-run", "--out is empty; "),
        ("launch --profile= --dry-run", "--profile is empty; "),
        ("launch --tracking-uri= --dry-run", "--tracking-uri is empty; "),
        ("launch --set= --dry-run", "--set is empty; give some text, or leave"),
        ("status ", "runs/NAME is empty; give some text"),
        ("launch --samples 99999999999999999999 --dry-run", "--samples is 99999999999999999999; allowed: a whole numb"),
        ("launch --max-failures 9999999999 --dry-run", "; allowed: a whole number >= 0 and <= 1000000000"),
        ("launch --set q=2 --dry-run", "--set q is 2; allowed: a number >= 0 and <= 1"),
        ("launch --set learning_rte=1 --dry-run", "; did you mean learning_rate?"),
        ("pretrain mlm --corpus mini --to there --set stepz=3", "; did you mean steps?"),
        ("launch --data Mini --dry-run", "did you mean mini?"),
        (
            "launch --data gone --task rte --dry-run",
            "no folder gone; data must be mini, ",
        ),
        (
            "launch --seeds 42,43 --dry-run",
            "'42,43'; allowed: a whole number, not a list; ",
        ),
        ("launch --seeds null --dry-run", "--seeds is 'null'; allowed: a whole number"),
        ("launch --seeds true --dry-run", "--seeds is 'true'; allowed: a whole number"),
        (
            "launch --name new --retry-failed",
            "none; name a study with --continue",
        ),
        ("launch --task rte --dry-run --explain pabee/mnli", "'pabee/mnli' is not an arm "),
        (
            "explain runs/first albert/sst2",
            "cell of runs/first; available: albert/rte",
        ),
        (
            "explain runs/first palbert/rte",
            "'palbert/rte' is not a cell ",
        ),
        ("explain runs/first albrt/rte", "'albrt/rte'; available: albert/rte; did you mean albert/rte?"),
        (
            "submit runs/first --method pabee",
            "'pabee' is not a method with ",
        ),
        ("launch --data hubb --task rte --dry-run", "did you mean hub?"),
        ("launch --toml --json --dry-run", "--toml and --json print different outputs"),
        ("launch --toml --probe --dry-run", "costs, which --toml does not print; "),
        (
            "launch --explain palbert/rte --toml --dry-run",
            "--explain and --toml print different outputs",
        ),
        ("launch --samples 0 --first-from runs/x --dry-run", "--samples 0 searches nothing; leave out one"),
        (f"launch --name {'x' * 300} --dry-run", "has 300 bytes; allowed: at most 200 bytes"),
        ("launch --name s --out file", "--out file cannot be written: "),
        (
            "launch --out file --dry-run",
            "/file is not a folder; allowed: ",
        ),
        ("launch --out loop --dry-run", "--out loop cannot be written: "),
        ("launch --out /proc/foo --dry-run", "--out /proc/foo cannot be written: /proc "),
        ("launch --storage /proc/foo --dry-run", "--storage /proc/foo cannot be written: /proc "),
        ("launch --address 127.0.0.1:abc", "--address 127.0.0.1:abc is not the address"),
        ("launch --address ray://", "a cluster; allowed: auto, HOST:PORT"),
        (
            "doctor --address 127.0.0.1:70000",
            "--address 127.0.0.1:70000 is not the address",
        ),
        ("launch --storage s3:/bucket/x --dry-run", "s3:/bucket/x; did you mean s3://bucket/x?"),
        ("launch --tracking-uri http://127.0.0.1:99999 --dry-run", "allowed: http://HOST:PORT with a port from 1 to"),
        ("mirror runs/first --tracking-uri https://", "--tracking-uri is https://; allowed: https://HOST:PORT"),
        (
            "launch --plan nowhere.toml",
            "--plan nowhere.toml cannot be read: No such file",
        ),
        (
            "launch --plan loop",
            "symbolic links; allowed: a TOML file",
        ),
        ("tables runs", "runs has no plan.json; "),
        ("tables loop", "loop/plan.json cannot be read: "),
        ("status file", "file/plan.json cannot be read: "),
        ("export runs/first --to loop", "--to loop exists; "),
        ("export runs/first --to file/x", "--to file/x cannot be written: "),
        ("export runs/first --to /proc/x", "/proc is not writable; allowed: a new folder"),
        (
            "tables runs/first --out file",
            "/file is not a folder; allowed: ",
        ),
        ("tables runs/first --out /proc/x", "--out /proc/x cannot be written: /proc "),
        ("submit runs/first --out runs", "--out runs is not a file; allowed: "),
        ("submit runs/first --out /proc/x.zip", "--out /proc/x.zip cannot be written: "),
        ("predict runs/first file --to /proc/x.tsv", "--to /proc/x.tsv cannot be written: "),
        ("verify runs/first --tables nowhere", "--tables nowhere is not a folder; "),
        ("launch --epochs x", "--epochs is 'x'; allowed: a whole number"),
        (
            "predict runs/first nowhere.tsv --to out.tsv",
            "no input file nowhere.tsv; ",
        ),
        (
            "predict runs/first file --to no/where.tsv",
            "--to no/where.tsv is in a folder ",
        ),
    ],
)
def test_one_line_says_the_value_and_what_is_allowed(capsys, here, command, message):
    assert message in refused(capsys, here, *command.split(" "))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"samples = -1", "samples is -1; allowed: a whole number >= 0"),
        (b"seeds = -1", "seeds is -1; allowed: a whole number >= 1"),
        (b"[set]\nepochs = 0", "--plan plan.toml: [set] epochs is 0; "),
        (b'samples = "many"', "'many'; allowed: a whole number or \"none\""),
        (b'early_stopping = "asha"', "early_stopping is 'asha'; allowed: a table or \"none\""),
        ('methods = ["albert"]'.encode("utf-16"), "not UTF-8; allowed: a TOML file, "),
        (b'data = "nowhere"', "no folder nowhere; data must be mini, "),
        (
            b'backbone = "mini-albrt"',
            "'mini-albrt'; allowed: a folder, a hub name, mini-",
        ),
        (b'sampler = "cmae"', "plan.toml: sampler: no sampler named 'cmae'"),
        (b"[early_stopping]\ngrace = 0", "early_stopping.grace is 0; allowed: a whole number >= 1"),
        (b'methods = ["palbret"]', "no method named 'palbret'; available: "),
    ],
)
def test_plan_file_is_checked_like_options(capsys, here, content, message):
    (here / "plan.toml").write_bytes(content)
    assert message in refused(capsys, here, "launch", "--plan", "plan.toml", "--dry-run")


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
    ("file", "command", "message"),
    [
        ("plan.json", "tables runs/first", "plan.json cannot be read: "),
        ("events.jsonl", "status runs/first", "events.jsonl is a folder; allowed: the file"),
        ("events.jsonl", "launch --continue runs/first --samples 9 --dry-run", "events.jsonl is a folder; allowed"),
    ],
)
def test_a_folder_in_the_place_of_a_studys_file_is_named(capsys, here, file, command, message):
    path = here / "runs" / "first" / file
    path.unlink()
    path.mkdir()
    assert message in refused(capsys, here, *command.split())


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
