"""--pretrain on the command line, without Ray: pytest tests/study/test_launch_pretraining.py"""

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.corpora import write_corpus
from helpers.made_studies import record
from helpers.simulation import NO_PROVENANCE
from msgspec import UNSET
from msgspec.structs import replace

from study import launch
from study.decisions.scheduler import Scheduler
from study.facts.journal import Journal
from study.facts.study_facts import StudyFacts
from study.launch_options import LaunchOptions, build_parser
from study.launch_stages import check_pretrained, plan_file
from study.plans.plan import Plan
from study.plans.plan_file import write_plan
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from trainables.schema import to_plain


def options(*arguments: str) -> LaunchOptions:
    return build_parser().options(arguments)


def plan_from(*arguments: str) -> Plan:
    plan, _ = launch.plan_from(options(*arguments))
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


NO_NYSTROM = "a 'sharebert' model; available for: albert, bert, electra"
PRETRAINED_WITH_NYSTROM = [
    part
    for setting in ("attention=nystrom", "num_landmarks=8", "conv_kernel_size=3")
    for part in ("--pretrain-set", setting)
]


@pytest.mark.slow
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
        (["--pretrain", "mlm", "--corpus", "wikipedia"], "corpus 'wikipedia' is not a folder; allowed: mini, mini-shu"),
        (
            ["--pretrain", "mlm", "--corpus", "hub:owner/name"],
            "corpus 'hub:owner/name' is not in the local cache",
        ),
        (
            ["--pretrain", "mlm", "--backbone", "owner/name"],
            "backbone 'owner/name' is not in the local cache",
        ),
        (["--pretrain", "mlm", "--pretrain-set", "steps=0"], "mlm: steps is 0; allowed: a whole number >= 1"),
        (["--pretrain", "mlm", "--pretrain-set", "steps=1.5"], "mlm: steps is 1.5; allowed: a whole number"),
        (["--pretrain", "mlm", "--pretrain-set", "steps=many"], "mlm: steps is 'many'; allowed: a whole number"),
        (["--pretrain", "mlm", "--pretrain-set", "steps=1e"], "mlm: steps is '1e'; allowed: a whole number"),
        (["--pretrain", "mlm", "--pretrain-set", "steps=1e999"], "mlm: steps is '1e999'; allowed: a whole number"),
        (
            ["--pretrain", "mlm", "--pretrain-set", "mask_probability=1e0"],
            "_probability is 1; allowed: a number > 0 and < 1",
        ),
        (
            ["--pretrain", "mlm", "--pretrain-set", "mask_probability=nan"],
            "_probability is 'nan'; allowed: a number",
        ),
        (
            ["--pretrain", "mlm", "--pretrain-set", "masking=word"],
            "masking is 'word'; allowed: bernoulli, token",
        ),
        (["--pretrain", "mlm", "--pretrain-set", "gradient_accumulation=5"], "allowed: a divisor of batch_size (32)"),
        (["--attention", "linear"], "--attention is 'linear'; allowed: softmax, nystrom"),
        (["--attention", "nystrom", "--backbone", "mini-sharebert"], f"'mini-sharebert' is {NO_NYSTROM}"),
        (["--pretrain", "mlm", "--method", "sharebert", "--attention", "nystrom"], f"'mini-sharebert' is {NO_NYSTROM}"),
        (
            ["--pretrain", "mlm", "--method", "sharebert", "--backbone", "mini-albert"],
            "sharebert is for backbones of family sharebert; backbone 'mini-albert' is of family 'albert'; allowed: "
            "--backbone with mini-sharebert, sharebert-small, sharebert-base, sharebert-large, a folder or a hub name",
        ),
        (
            ["--method", "sharebert", "--backbone", "mini-bert"],
            "sharebert is for backbones of family sharebert; backbone 'mini-bert' is of family 'bert'",
        ),
        (
            ["--pretrain", "mlm", "--method", "sharebert,electra-small"],
            "electra-small is for backbones of family electra or bert; backbone 'mini-sharebert' is of family",
        ),
        (
            ["--pretrain", "albert-mlm", "--method", "sharebert"],
            "objective albert-mlm has no model of family 'sharebert'; available: albert",
        ),
        (
            ["--attention", "nystrom", "--backbone", "mini-roberta"],
            "'mini-roberta' is a 'roberta' model; available",
        ),
        (
            ["--pretrain", "mlm", "--backbone", "mini-sharebert", *PRETRAINED_WITH_NYSTROM],
            f"'mini-sharebert' is {NO_NYSTROM}",
        ),
        (
            ["--pretrain", "mlm", *PRETRAINED_WITH_NYSTROM],
            "attention is softmax, conv_kernel_size None; the backbone of palbert/sst2 was pretrained with nystrom",
        ),
        (["--attention", "nystrom", "--set", "max_length=16"], "num_landmarks is 32; allowed: at most max_length, 16"),
        (
            ["--pretrain", "mlm", "--pretrain-set", "attention=nystrom"],
            "mlm: num_landmarks must be set when attention is nystrom",
        ),
        (
            ["--pretrain", "mlm", "--attention", "nystrom", "--set", "conv_kernel_size=5"],
            "conv_kernel_size 5; the backbone of palbert/sst2 was pretrained with nystrom and conv_kernel_size 33",
        ),
        (["--start-from", "sst2=cola", "--start-from", "cola=sst2"], "arms start from each other: palbert/sst2 from p"),
        (["--start-from", "sst2=sst2"], "arms start from each other: palbert/sst2 from palbert/sst2"),
        (
            ["--start-from", "colla=sst2"],
            "--start-from colla=sst2: no task named 'colla'; available: sst2",
        ),
        (["--start-from", "albert/cola=sst2"], "--start-from albert/cola=sst2: albert/cola is not studied; allowed: "),
        (["--start-from", "cola=nope"], "--start-from cola=nope: no task named 'nope'; available: "),
        (
            ["--pretrain", "mlm", "--pretrain-set", "steps=50"],
            "mlm: warmup_steps is 100; allowed: fewer than steps (50)",
        ),
        (["--start-from", "CoLA=MNLI"], "palbert/cola starts from palbert/mnli, which is not studied; add --task mnli"),
        (["--pretrain", "mlm", "--start-from", "sst2=cola", "--start-from", "cola=sst2"], "arms start from each other"),
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


def test_a_folder_without_text_is_no_corpus(capsys, tmp_path):
    (tmp_path / "corpus").mkdir()
    told = refused(capsys, tmp_path, "--pretrain", "mlm", "--corpus", str(tmp_path / "corpus"))
    assert "has no .txt file; allowed: UTF-8 text, a blank line between documents" in told


@pytest.mark.parametrize("objective", ["albert-mlm", "alectra-rtd"])
def test_a_document_shorter_than_a_pair_is_refused_where_pairs_are_made(capsys, tmp_path, objective):
    corpus = write_corpus(tmp_path / "corpus", [["one", "two"], ["three"]])
    backbone = ["--pretrain-set", "packing=random_lines"] if objective == "alectra-rtd" else []
    told = refused(capsys, tmp_path, "--pretrain", objective, "--corpus", corpus, *backbone)
    assert "document 2, 'three', has one sentence; " in told and told.endswith("needs two in each")


@pytest.mark.parametrize("arguments", [[], ["--pretrain", "mlm"]])
def test_sizes_whose_slices_do_not_fit_are_refused(capsys, tmp_path, arguments):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 288}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "sharebert", **sizes}))
    for file in ("model.safetensors", "vocab.txt"):
        (tmp_path / file).write_text("")
    told = refused(capsys, tmp_path, "--backbone", str(tmp_path), *arguments)
    assert told.endswith(
        "ShareBERT with hidden_size 32, intermediate_size 64 and vocab_size 288 cuts 36 columns out of the "
        "embeddings; allowed: 32"
    )


def test_the_attention_is_that_of_the_pretraining_and_of_all_that_starts_from_it():
    plan = resolve(
        plan_from("--task", "rte", "--pretrain", "mlm", "--attention", "nystrom", "--set", "num_landmarks=8")
    )
    (arm,), first = plan.arms, plan.pretraining
    assert first is not UNSET
    fields = ("attention", "num_landmarks", "conv_kernel_size")
    assert [arm.fixed[field] for field in fields] == ["nystrom", 8, 33]
    assert [first.fixed[field] for field in fields] == ["nystrom", 32, 33]
    softmax = plan_from("--task", "rte", "--attention", "softmax")
    assert resolve(softmax).arms[0].fixed == resolve(plan_from("--task", "rte")).arms[0].fixed


def test_a_softmax_backbone_can_be_pretrained_and_then_given_nystrom_attention():
    softmax = ["--pretrain-set", "attention=softmax", "--pretrain-set", "num_landmarks=null"]
    asked = ["--pretrain", "mlm", "--attention", "nystrom", *softmax, "--pretrain-set", "conv_kernel_size=null"]
    assert resolve(plan_from("--task", "rte", *asked)).arms[0].fixed["attention"] == "nystrom"


def test_a_study_keeps_the_commit_of_the_corpus_that_it_began_with(tmp_path, monkeypatch):
    def at(commit: str) -> ResolvedPlan:
        info = SimpleNamespace(sha=commit * 40)
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: info)
        asked = plan_from("--task", "rte", "--pretrain", "mlm", "--corpus", "hub:owner/name:part")
        resolved, folder = launch.prepare(asked, options("--name", "mine", "--out", str(tmp_path)))
        write(folder, resolved)
        return resolved

    first = at("a")
    assert first.pretraining is not UNSET and first.pretraining.pinned_corpus == f"hub:owner/name@{'a' * 40}:part"
    assert at("b") == first


def test_a_pretraining_is_explained_and_told_of_by_a_dry_run(capsys, tmp_path):
    settings = [word for text in ("steps=40", "warmup_steps=4") for word in ("--pretrain-set", text)]
    asked = ["--task", "rte", "--pretrain", "albert-mlm", *settings, "--dry-run"]
    assert launch.main([*asked, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "albert-mlm/pretraining   40 steps of 32 examples of corpus mini" in told
    assert "a pretraining, then 1 arm" in told and "  albert-mlm: steps, packing and optimiser are for a tiny" in told
    assert launch.main([*asked, "--out", str(tmp_path), "--explain", "albert-mlm/pretraining"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["steps", "40", "--pretrain-set"] in lines and ["corpus", "mini", "--corpus"] in lines
    assert launch.main([*asked, "--out", str(tmp_path), "--explain", "palbert/rte"]) == 0
    assert (
        "--pretrain albert-mlm, from search_spaces/objectives/albert_mlm.py BACKBONE['mini']" in capsys.readouterr().out
    )


def test_numbers_may_be_written_as_numbers_are():
    written = ("steps=1e3", "warmup_steps=+1_0", "max_length=64.0", "mask_probability=.9", "weight_decay=0")
    settings = [word for text in (*written, "learning_rate=1e-3") for word in ("--pretrain-set", text)]
    asked = ["--task", "rte", "--pretrain", "mlm", *settings, "--set", "weight_decay=0", "--set", "max_length=64"]
    plan = resolve(plan_from(*asked))
    (arm,), first = plan.arms, plan.pretraining
    assert first is not UNSET
    fields = ("steps", "warmup_steps", "max_length", "mask_probability", "weight_decay", "learning_rate")
    assert repr([first.fixed[field] for field in fields]) == "[1000, 10, 64, 0.9, 0.0, 0.001]"
    assert repr(arm.fixed["weight_decay"]) == "0.0"


def test_what_an_arm_starts_from_is_told_by_a_dry_run_and_explained(capsys, tmp_path):
    asked = ["--task", "rte,mnli", "--pretrain", "albert-mlm", "--start-from", "RTE=MNLI", "--dry-run"]
    asked += ["--profile", "mini", "--out", str(tmp_path)]
    assert launch.main(asked) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    pretrained = "  on mini-albert pretrained by albert-mlm/pretraining"
    assert lines["palbert/mnli"].endswith(pretrained)
    assert lines["palbert/rte"].endswith(f"{pretrained}, from the best model of palbert/mnli")
    assert lines["albert-mlm/pretraining"].endswith("  on mini-albert")

    def explained(arm: str) -> list[str]:
        assert launch.main([*asked, "--explain", arm]) == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    assert "starts from the best model of palbert/mnli --start-from" in explained("palbert/rte")
    mnli = explained("palbert/mnli")
    assert "pretrained by albert-mlm/pretraining --pretrain" in mnli
    assert not [line for line in mnli if line.startswith("starts from")]


def test_a_plan_without_a_pretraining_says_nothing_of_one():
    """So keys, hashes and names of studies stay what they were."""
    plain = to_plain(resolve(plan_from("--task", "rte")))
    assert plain.keys() == {"asked", "arms", "protocol", "departures"} and "pretraining" not in plain["asked"]
    assert not {"corpus", "pretrained_by"} & plain["arms"][0].keys()


@pytest.mark.slow
def test_another_corpus_under_the_same_name_is_refused(capsys, tmp_path):
    asked = ["--task", "rte", "--pretrain", "mlm", "--corpus"]
    resolved = resolve(plan_from(*asked, "mini"))
    write(tmp_path / "mine", resolved)
    with closing(Journal(tmp_path / "mine")) as journal:
        scheduler = Scheduler("mine", resolved, journal, NO_PROVENANCE)
        scheduler.begin_launch(command="", host="", pid=0)
        assert scheduler.next_trial().phase == "pretrain"
    where = ["--out", str(tmp_path), "--name", "mine"]
    assert launch.main([*asked, "mini-shuffled", *where]) == 2
    error = capsys.readouterr().err
    assert "data_fingerprint of mlm/pretraining" in error and "backbone_fingerprint of palbert/rte" in error
    assert launch.main(["--task", "rte", *where]) == 2
    assert 'pretrained_by of palbert/rte "mlm/pretraining" against null' in capsys.readouterr().err


def test_a_launch_does_not_begin_where_what_was_pretrained_is_gone(tmp_path):
    facts = StudyFacts()
    made = record("albert", "rte", 0.25, seed=1, phase="pretrain", model=str(tmp_path / "model-epoch-2"))
    facts.records = [replace(made, method="albert-mlm", task="pretraining")]
    with pytest.raises(ValueError, match="albert-mlm/pretraining has pretrained, is gone"):
        check_pretrained(tmp_path / "study", facts)
    (tmp_path / "study" / "trials" / made.key / "model-epoch-2").mkdir(parents=True)  # moved with its study
    check_pretrained(tmp_path / "study", facts)
