"""--pretrain on the command line, without Ray: pytest tests/study/test_launch_pretraining.py"""

from pathlib import Path

import pytest
from helpers.simulation import NO_PROVENANCE

from study import launch
from study.launch_options import LaunchOptions, build_parser
from study.launch_stages import plan_file
from study.plans.plan import Plan
from study.plans.plan_file import write_plan
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.schema import to_plain


def plan_from(*arguments: str) -> Plan:
    plan, _ = launch.plan_from(build_parser().options(LaunchOptions, arguments))
    return plan


def write(folder: Path, resolved: ResolvedPlan) -> None:
    """The plan.json of a launch."""
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(folder, plan_file(folder, resolved, NO_PROVENANCE))


def refused(capsys, tmp_path: Path, *arguments: str) -> str:
    """The one line with which the launch was refused; nothing may have been created."""
    out = tmp_path / "runs"
    assert launch.main([*arguments, "--profile", "mini", "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and not out.exists()
    assert printed.err.count("\n") == 1, printed.err
    return printed.err.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pretrain", "xlnet"], "no objective named 'xlnet'; available: albert-mlm, alectra-rtd, electra-rtd, mlm"),
        (
            ["--pretrain", "mlm", "--corpus", "/nowhere"],
            "corpus '/nowhere' is not a folder; allowed: mini, mini-shuffl",
        ),
        (["--pretrain", "mlm", "--corpus", "hub:"], "corpus 'hub:' names no data set; write hub:NAME"),
        (["--pretrain", "mlm", "--pretrain-set", "depth=3"], "--pretrain-set depth: mlm has no such field; it has "),
        (["--pretrain", "mlm", "--pretrain-set", "depth"], "--pretrain-set depth: allowed: FIELD=VALUE"),
        (["--pretrain", "electra-rtd", "--backbone", "mini-albert"], "no model of family 'albert'; available: electra"),
        (["--pretrain", "mlm", "--data", "hub"], "--pretrain mlm needs --corpus; allowed: mini, mini-shuffled, hub:NA"),
        (["--corpus", "mini"], "--corpus is of a pretraining and is ignored without --pretrain; add --pretrain NAME"),
        (["--pretrain-processes", "2"], "--pretrain-processes is of a pretraining and is ignored without --pretrain"),
        (["--pretrain", "mlm", "--pretrain-processes", "0"], "--pretrain-processes is 0; allowed: a whole"),
        (
            ["--pretrain", "mlm", "--pretrain-processes", "3", "--cpus-per-trial", "0.001"],
            "3 processes cannot share 32 examples evenly (batch_size 32 in gradient_accumulation 1 parts); allowed: a ",
        ),
        (["--pretrain-set", "steps=3"], "--pretrain-set is of a pretraining and is ignored without --pretrain"),
    ],
)
def test_bad_input_is_answered_in_one_line_with_what_is_allowed(capsys, tmp_path, arguments, message):
    assert message in refused(capsys, tmp_path, *arguments)


def test_processes_that_this_machine_has_no_room_for_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("study.launch_options.os.sched_getaffinity", lambda pid: set(range(8)))
    asked = ["--pretrain", "mlm", "--pretrain-processes", "16"]
    message = "--pretrain-processes is 16; allowed: at most 8 on this machine, for each holds 1 CPUs"
    assert refused(capsys, tmp_path, *asked).endswith(message)
    assert "at most 4 on" in refused(capsys, tmp_path, *asked, "--cpus-per-trial", "2")
    monkeypatch.setattr("study.launch_options.local_gpus", lambda: 2)
    assert "at most 2 on this machine, for each holds 1 CPUs and a GPU" in refused(capsys, tmp_path, *asked)
    assert "at most 8 on" in refused(capsys, tmp_path, *asked, "--gpus-per-trial", "0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "has 0 document(s); allowed: at least 2, for one is held out; a blank line ends a document"),
        (b"one document\nof two lines\n", "has 1 document(s); allowed: at least 2"),
        (b"one\n\ncaf\xe9\n", "text.txt, line 3: not UTF-8, byte 0xe9"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_refused(capsys, tmp_path, text, message):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_bytes(text)
    assert message in refused(capsys, tmp_path, "--pretrain", "mlm", "--corpus", str(tmp_path / "corpus"))


def test_a_pretraining_is_explained_and_told_of_by_a_dry_run(capsys, tmp_path):
    asked = ["--task", "rte", "--pretrain", "albert-mlm", "--pretrain-set", "steps=40", "--dry-run"]
    assert launch.main([*asked, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "albert-mlm/pretraining   40 steps of 32 examples of corpus mini" in told
    assert "a pretraining, then 1 arms" in told and "  albert-mlm: no pair crosses documents" in told
    assert launch.main([*asked, "--out", str(tmp_path), "--explain", "albert-mlm/pretraining"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["steps", "40", "--pretrain-set"] in lines and ["corpus", "mini", "--corpus"] in lines
    assert launch.main([*asked, "--out", str(tmp_path), "--explain", "palbert/rte"]) == 0
    assert (
        "--pretrain albert-mlm, from search_spaces/objectives/albert_mlm.py BACKBONE['mini']" in capsys.readouterr().out
    )


def test_a_plan_without_a_pretraining_says_nothing_of_one():
    """So keys, hashes and names of studies stay what they were."""
    plain = to_plain(resolve(plan_from("--task", "rte")))
    assert plain.keys() == {"asked", "arms", "protocol", "departures"} and "pretraining" not in plain["asked"]
    assert not {"corpus", "pretrained_by"} & plain["arms"][0].keys()


def test_another_corpus_under_the_same_name_is_refused(capsys, tmp_path):
    asked = ["--task", "rte", "--pretrain", "mlm", "--corpus"]
    write(tmp_path / "mine", resolve(plan_from(*asked, "mini")))
    where = ["--out", str(tmp_path), "--name", "mine"]
    assert launch.main([*asked, "mini-shuffled", *where]) == 2
    error = capsys.readouterr().err
    assert "data_fingerprint of mlm/pretraining" in error and "backbone_fingerprint of palbert/rte" in error
    assert launch.main(["--task", "rte", *where]) == 2
    assert 'pretrained_by of palbert/rte "mlm/pretraining" against null' in capsys.readouterr().err
