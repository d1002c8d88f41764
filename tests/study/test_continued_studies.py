"""--continue, and launches of some of a study's arms, without Ray: pytest tests/study/test_continued_studies.py"""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from helpers.corpora import word_tokenizer
from helpers.edited_studies import read_event_lines, write_events
from helpers.glue_folders import write_glue
from helpers.launched_studies import PROVENANCE, launched_study, mini_plan
from helpers.launched_studies import launch as run_launch
from helpers.messages import says
from helpers.places import PATIENCE_SECONDS, ROOT
from helpers.plan_files import options_from, write_plan_of_launch
from helpers.simulation import Simulation
from msgspec.structs import replace

from study import launch
from study.facts.events import Execution, PlanRegistered, ScoredOnTest
from study.facts.journal import Journal
from study.facts.plan_file import compare_plans, require_plan
from study.facts.study_facts import StudyFacts, read_facts
from study.facts.study_folder import compute_plan_digest
from study.launching import last_screen
from study.launching.last_screen import extensions
from study.launching.options import keep_execution
from study.launching.planned_study import find_launched_arms, list_plan_notes, plan_file, prepare, resolve_study
from study.launching.reading import plan_from
from study.plans.resolution import resolve
from study.plans.resolved_plan import ResolvedPlan
from study.terminal.text import counted, python

ADVICE = "Choose another --name instead of --continue"


def prepared(*arguments: str) -> ResolvedPlan:
    return resolve_study(options_from(*arguments)).resolved


def launched(*arguments: str) -> set[str]:
    options = options_from(*arguments)
    made = resolve_study(options)
    return {*find_launched_arms(made, options)}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study, which is only read."""
    return launched_study(tmp_path_factory.mktemp("runs") / "s")


def test_what_is_not_said_is_as_it_was_asked_for(study):
    before = require_plan(study).plan
    after = prepared("--continue", str(study), "--method", "pabee", "--samples", "8")
    assert after.request.methods == (*before.request.methods, "pabee") and after.request.samples == 8
    others = {"methods", "samples"}
    rest = set(after.request.__struct_fields__) - others
    assert {name: getattr(after.request, name) for name in rest} == {n: getattr(before.request, n) for n in rest}
    assert after.protocol_hash == before.protocol_hash


def test_more_samples_seeds_tasks_and_methods_extend_the_plan(study):
    before = require_plan(study).plan
    asked = before.request
    more = prepared(
        "--continue", str(study), "--task", "cola", "--method", "pondernet", "--samples", "9", "--seeds", "1"
    )
    names = [
        f"{m}/{t}" for m in dict.fromkeys([*asked.methods, "pondernet"]) for t in dict.fromkeys([*asked.tasks, "cola"])
    ]
    assert [arm.name for arm in more.arms] == names and {arm.samples for arm in more.arms} == {9}
    assert {arm.seeds for arm in more.arms} == {before.arms[0].seeds}


def test_nothing_said_is_the_same_plan(study):
    assert prepared("--continue", str(study)) == require_plan(study).plan


def test_study_in_the_working_directory_keeps_its_name(study, monkeypatch):
    monkeypatch.chdir(study)
    prepared("--continue", ".")
    assert plan_file(Path(), require_plan(study).plan, PROVENANCE).name == require_plan(study).name == study.name


def test_what_would_make_another_study_is_refused_with_both_ways_out(study, capsys):
    asked = require_plan(study).plan.request
    arms = ["--method", ",".join(asked.methods), "--task", ",".join(asked.tasks)]
    again = ["--out", str(study.parent), "--name", study.name, "--epochs", "99"]
    assert launch.main(["--profile", "mini", *arms, *again]) == 2
    error = capsys.readouterr().err
    assert says(error, "epochs", "another --name, or ", f"--continue {study} ")
    assert error.count("\n") == 1


def test_what_was_typed_is_not_offered_as_the_way_out(study, capsys):
    assert launch.main(["--continue", str(study), "--epochs", "99"]) == 2
    assert capsys.readouterr().err.endswith(f". {ADVICE}\n")


def test_other_data_are_refused_before_reading(study, capsys):
    for more in ([], ["--dry-run"]):
        assert launch.main(["--continue", str(study), "--data", "hub", *more]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        assert says(printed.err, f"study {study} does not match ", f"--data mini -> --data hub. {ADVICE}\n")


@pytest.mark.parametrize("name", ["data", "backbone"])
def test_relative_path_from_another_folder_names_where_it_began(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    write_glue(tmp_path / "glue", rows=8)
    (tmp_path / "random").mkdir()
    (tmp_path / "random" / "config.json").write_text('{"model_type": "albert", "num_hidden_layers": 6}')
    word_tokenizer(["ships wait ."]).backend_tokenizer.save(str(tmp_path / "random" / "tokenizer.json"))
    places = {"data": "glue", "backbone": "random"}
    launched_study(Path("s"), mini_plan(tasks=("rte",), seeds=1, samples=1, **places))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = ["--continue", "../s", "--dry-run", "--seeds", "2"]
    others = {other: f"../{place}" for other, place in places.items() if other != name}
    assert launch.main([*command, *(word for other in others for word in (f"--{other}", others[other]))]) == 2
    place = places[name]
    said = capsys.readouterr().err
    assert says(said, f"no folder {place} in {tmp_path / 'elsewhere'}; ", f"{name} is {place} ", f"add --{name} ")
    assert said.count("\n") == 1
    assert launch.main([*command, "--data", "../glue", "--backbone", "../random"]) == 0


def test_a_folder_of_other_data_is_refused_as_it_is_named(study):
    earlier = require_plan(study).plan
    changed = replace(earlier.request, data="other")
    arms = tuple(replace(arm, data_fingerprint="0" * 16) for arm in earlier.arms)
    assert compare_plans(earlier, replace(earlier, request=changed, arms=arms)) == ["--data mini -> --data other"]


def test_other_settings_are_named_once_with_the_arms_that_they_change(study):
    earlier = require_plan(study).plan
    one, *others = earlier.arms
    fixed = {**one.fixed, "learning_rate": 0.001, "epochs": 99}
    space = {name: allowed for name, allowed in one.space.items() if name != "learning_rate"}
    changed = replace(earlier, arms=(replace(one, fixed=fixed, space=space), *others))
    assert compare_plans(earlier, changed) == [f"{one.name}: epochs 4 -> 99, learning_rate 0.001..0.002:log -> 0.001"]
    every = replace(earlier, arms=tuple(replace(arm, fixed={**arm.fixed, "epochs": 99}) for arm in earlier.arms))
    assert compare_plans(earlier, every) == ["epochs 4 -> 99"]


def test_partial_launch_names_untouched_arms(study):
    def note(*arguments: str) -> list[str]:
        options = options_from(*arguments)
        made = resolve_study(options)
        return list_plan_notes(made, options, read_facts(study), launched=find_launched_arms(made, options))

    names = [arm.name for arm in require_plan(study).plan.arms]
    own, others = ([name for name in names if name.endswith("/rte") is wanted] for wanted in (True, False))
    (line,) = note("--continue", str(study), "--task", "rte")
    assert says(line, f"runs only {', '.join(own)}; ", f"not run {', '.join(others)}; ", "leave out --task")
    fewer = ", ".join(f"{name} 2 of 8" for name in others)
    again, lacking = note("--continue", str(study), "--task", "rte", "--seeds", "8")
    assert again == line and says(lacking, "lack seeds, ", "does not run them: ", fewer)


@pytest.mark.parametrize(("grace", "is_noted"), [(50, True), (1, False)])
def test_early_stopping_without_effect_is_noted(tmp_path, grace, is_noted):
    options = options_from("--task", "rte", "--early-stopping", f"asha:grace={grace}", "--out", str(tmp_path))
    made = resolve_study(options)
    notes = list_plan_notes(made, options, StudyFacts(), launched=find_launched_arms(made, options))
    assert any(note.startswith(f"--early-stopping asha:grace={grace} stops no ") for note in notes) is is_noted


@pytest.mark.parametrize(("grace", "epochs", "advice"), [(1, 1, ""), (2, 2, "; to stop some, use a smaller grace")])
def test_smaller_grace_is_advised_where_one_exists(tmp_path, grace, epochs, advice):
    stopping = ["--early-stopping", f"asha:grace={grace}", "--epochs", str(epochs)]
    options = options_from("--task", "rte", *stopping, "--out", str(tmp_path))
    made = resolve_study(options)
    notes = list_plan_notes(made, options, StudyFacts(), launched=find_launched_arms(made, options))
    assert sum(note.endswith(f"at most {counted(epochs, 'epoch')}{advice}") for note in notes) == 1


def test_what_the_study_says_already_is_refused(study, capsys):
    for option, own in {
        "--name": study.name,
        "--out": str(study.parent),
        "--profile": "mini",
    }.items():
        assert launch.main(["--continue", str(study), option, own]) == 2
        said = capsys.readouterr().err
        assert says(said, f"{option} is {own}, ", f"--continue {study} ", f"leave {option} out\n")


def test_a_folder_without_a_study_is_refused(tmp_path, capsys):
    assert launch.main(["--continue", str(tmp_path / "gone"), "--dry-run"]) == 2
    assert says(capsys.readouterr().err, f"no folder {tmp_path / 'gone'}; ", "folder of a study")


def test_a_launch_runs_the_arms_that_it_names_and_no_others(study):
    arms = {arm.name for arm in require_plan(study).plan.arms}
    assert launched("--continue", str(study)) == arms
    assert launched("--continue", str(study), "--task", "RTE") == {name for name in arms if name.endswith("/rte")}
    tasks = require_plan(study).plan.request.tasks
    assert launched("--continue", str(study), "--method", "pabee") == {f"pabee/{task}" for task in tasks}


def test_an_arm_is_launched_with_those_that_it_starts_from(tmp_path):
    asked = ["--method", "palbert", "--task", "rte,mnli", "--start-from", "rte=mnli", "--out", str(tmp_path)]
    options = options_from(*asked)
    made = resolve_study(options)
    again = options_from("--task", "rte", "--start-from", "rte=mnli", "--out", str(tmp_path))
    assert find_launched_arms(made._replace(from_options=plan_from(again)[0]), again) == {
        "palbert/rte",
        "palbert/mnli",
    }


def test_new_starts_leave_those_that_the_study_has(tmp_path):
    asked = ["--profile", "mini", "--method", "albert", "--task", "rte,mnli", "--start-from", "rte=mnli"]
    write_plan_of_launch(tmp_path / "s", prepared(*asked))
    for task, start, source in (("cola", "cola=mnli", "mnli"), ("cola", "rte=cola", None)):
        more = prepared("--continue", str(tmp_path / "s"), "--task", task, "--start-from", start)
        assert more.arm("albert/rte").start_from == f"albert/{'cola' if source is None else source}"
        assert more.arm("albert/cola").start_from == (source and f"albert/{source}")


def test_shared_limit_is_refused_for_some_arms(study):
    options = options_from("--continue", str(study), "--task", "rte", "--max-gpu-hours", "1")
    made = resolve_study(options)
    with pytest.raises(ValueError, match=r"--max-gpu-hours .*all arms .*--method or --task"):
        find_launched_arms(made, options)


def test_unlaunched_arms_wait_unchanged():
    plan, _ = plan_from(options_from("--profile", "mini", "--method", "palbert,pabee", "--task", "rte,cola"))
    resolved, *_ = prepare(plan, options_from("--name", "s", "--out", "/nowhere"))
    whole = Simulation(resolved).launch()
    simulation = Simulation(resolved)
    first = simulation.launch(launched={"pabee/rte"})
    assert {record.arm for record in first.facts.records} == {"pabee/rte"}
    assert first.progress.is_done and not first.progress.is_finished
    assert first.progress.ended_trials == first.progress.total_trials == len(first.facts.records)
    assert [*first.progress.missing] == ["palbert/rte", "palbert/cola", "pabee/cola"]
    second = simulation.launch()
    assert second.progress.is_finished
    assert {record.key for record in second.facts.records if record.phase == "search"} == {
        record.key for record in whole.facts.records if record.phase == "search"
    }


def test_trials_under_way_of_other_arms_are_left_under_way():
    plan, _ = plan_from(options_from("--profile", "mini", "--method", "palbert,pabee", "--task", "rte"))
    resolved, *_ = prepare(plan, options_from("--name", "s", "--out", "/nowhere"))
    simulation = Simulation(resolved)
    assert simulation.launch(kill_at=12) is None
    under_way = {trial.started.arm for trial in simulation.journal.facts.under_way.values()}
    (other,) = {"palbert/rte", "pabee/rte"} - under_way
    scheduler = simulation.launch(launched={other})
    assert scheduler.progress.is_done and not scheduler.progress.under_way
    assert {trial.started.arm for trial in scheduler.facts.under_way.values()} == under_way


def test_the_command_that_extends_a_study_is_one_that_launch_takes(study):
    plan = require_plan(study).plan
    samples, seeds = 2 * plan.request.samples, plan.request.seeds + 5
    assert extensions(plan) == {"more search": f"--samples {samples}", "more seeds": f"--seeds {seeds}"}
    asked = prepared("--continue", str(study), *" ".join(extensions(plan).values()).split()).request
    assert (asked.samples, asked.seeds) == (samples, seeds)


def test_the_command_that_extends_a_study_keeps_its_gpu_limit(study):
    scheduler = Simulation(require_plan(study).plan, max_gpu_hours=1000).launch()
    command = last_screen._format_continuation(scheduler, study, options_from("--profile", "mini"), "--seeds 10")
    assert command == f"{python()} -m study.launch --continue {study} --seeds 10 --max-gpu-hours 1000"


def test_a_study_of_repeated_searches_is_extended_by_more_of_them():
    common = ["--profile", "mini", "--method", "albert,palbert", "--task", "rte"]
    for given, more in ((4, "--compare methods:8"), (5, "--compare methods:9"), (9, "--samples 8")):
        plan, _ = plan_from(options_from(*common, "--compare", f"methods:{given}"))
        assert extensions(resolve(plan))["more search"] == more


def test_a_study_is_not_extended_by_what_adds_no_trial():
    albert = ["--profile", "mini", "--method", "albert", "--task", "rte"]
    for search in (["--set", "learning_rate=1e-3"], ["--sampler", "grid", "--samples", "9"]):
        plan, _ = plan_from(options_from(*albert, *search))
        resolved = resolve(plan)
        assert extensions(resolved) == {"more seeds": "--seeds 10"}
        assert resolve(replace(plan, samples=2 * plan.samples)).arms[0].samples == resolved.arms[0].samples


def test_methods_without_albert_are_compared_with_the_first_of_them():
    def baseline(methods: str, *more: str) -> str | None:
        asked, _ = plan_from(options_from("--profile", "mini", "--task", "rte", "--method", methods, *more))
        return resolve(asked).request.baseline

    assert baseline("palbert,pabee") == "palbert"
    assert baseline("pabee,albert,palbert") == "albert"
    assert baseline("pabee,albert,palbert", "--baseline", "pabee") == "pabee"


def test_a_continued_study_is_named_once(study, capsys):
    assert launch.main(["--continue", f"{study}/", "--dry-run"]) == 0
    _, first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"study {study} (") and first.endswith("), continued")


def kept(*arguments: str, last: Execution, monkeypatch: pytest.MonkeyPatch) -> Execution:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return keep_execution(options_from("--continue", "runs/s", *arguments), last).execution


def test_continue_keeps_driver_address_store_and_resources(monkeypatch):
    here = Execution(driver="local", tracking_uri="none", gpus_per_trial=0.0, cpus_per_trial=1.5)
    there = Execution(driver="ray", address="10.0.0.1:6379", tracking_uri="http://host:5000")
    for last in (here, there):
        assert kept(last=last, monkeypatch=monkeypatch) == last
    assert kept("--cpus-per-trial", "2", last=here, monkeypatch=monkeypatch) == replace(here, cpus_per_trial=2.0)
    assert kept("--address", "auto", last=here, monkeypatch=monkeypatch) == replace(here, driver="ray", address="auto")
    without = kept("--driver", "local", last=there, monkeypatch=monkeypatch)
    assert without == replace(there, driver="local", address=None)


def test_local_means_this_machine_instead_of_the_last_cluster(monkeypatch):
    there = Execution(driver="ray", address="10.0.0.1:6379")
    assert kept("--address", "local", last=there, monkeypatch=monkeypatch).address == "local"
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert keep_execution(options_from("--continue", "runs/s"), there).address is None
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert keep_execution(options_from("--continue", "runs/s"), there).address == "10.0.0.2:6379"


def test_relative_store_is_kept_as_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert options_from("--tracking-uri", "sqlite:///a.db").execution.tracking_uri == f"sqlite:///{tmp_path}/a.db"
    for uri in ("none", "http://host:5000", "sqlite:////data/a.db"):
        assert options_from("--tracking-uri", uri).execution.tracking_uri == uri


@pytest.mark.long
@pytest.mark.slow
def test_continued_launch_runs_as_the_last_one_did(tmp_path):
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "study.launch", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)

    small = ["--method", "albert", "--task", "rte", "--samples", "0", "--seeds", "1", "--epochs", "1"]
    how = ["--driver", "local", "--tracking-uri", "none", "--cpus-per-trial", "1.6"]
    begun = run("--profile", "mini", *small, *how, "--out", str(tmp_path), "--name", "s")
    assert begun.returncode == 0, begun.stderr
    assert f"more seeds:  {python()} -m study.launch --continue {tmp_path / 's'} --seeds 6\n" in begun.stdout
    continued = run("--continue", str(tmp_path / "s"), "--seeds", "2")
    assert continued.returncode == 0, continued.stderr
    told = "as in the last launch: --driver local, --tracking-uri none, --cpus-per-trial 1.6"
    assert told in continued.stderr and "Ray" not in continued.stderr
    launches = read_facts(tmp_path / "s").launches
    assert (
        launches[1].began.execution
        == launches[2].began.execution
        == Execution(driver="local", tracking_uri="none", cpus_per_trial=1.6)
    )
    assert not (tmp_path / "s" / "mlflow.db").exists()


def dry_run(capsys, *arguments: str) -> str:
    """The lines of a dry run that ends well, without line breaks."""
    assert launch.main([*arguments, "--dry-run"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_dry_run_names_failed_trials_that_run_again(tmp_path, monkeypatch, capsys):
    run_launch(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",)), broken={1: "method"})
    folder = ["--continue", str(tmp_path / "s")]
    assert "the launch runs 1 failed trial of albert/rte again, because the code has" in dry_run(capsys, *folder)
    monkeypatch.setattr("study.launching.dry_run.read_provenance", lambda: PROVENANCE)
    assert " again, because " not in dry_run(capsys, *folder)
    asked = dry_run(capsys, *folder, "--retry-failed")
    assert "1 failed trial of albert/rte again, because --retry-failed was given; the time left does not" in asked


@pytest.mark.parametrize("options", [["--register", "--tracking-uri", "sqlite:////nowhere/a.db"], ["--seeds", "3"]])
def test_dry_run_refuses_what_the_launch_refuses(tmp_path, capsys, options):
    folder = launched_study(tmp_path / "s", mini_plan(methods=("albert",), tasks=("rte",)))
    with closing(Journal(folder)) as journal:
        journal.append(ScoredOnTest(time=journal.now(), task="rte", rows=9, labels_digest="beef", models=[]))
    assert launch.main(["--continue", str(folder), *options, "--dry-run"]) == 2
    fault = "already has trials" if "--register" in options else "rte was scored on test labels"
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(("registered", "code"), [("same", 0), ("other plan", 2), ("other store", 2)])
def test_registered_study_continues_with_the_same_command(tmp_path, capsys, registered, code):
    plan, uri = mini_plan(methods=("albert",), tasks=("rte",)), f"sqlite:///{tmp_path}/a.db"
    run_launch(tmp_path / "s", plan, killed_after=3)
    digest = "beef" if registered == "other plan" else compute_plan_digest(tmp_path / "s")
    place = "MLflow http://b" if registered == "other store" else f"MLflow {uri}"
    event = PlanRegistered(time=read_facts(tmp_path / "s").time, digest=digest, place=place)
    first, *rest = read_event_lines(tmp_path / "s")
    write_events(tmp_path / "s", [first, msgspec.json.encode(event), *rest])
    asked = ["--continue", str(tmp_path / "s"), "--register", "--tracking-uri", uri]
    assert launch.main([*asked, "--dry-run"]) == code
    assert code == 0 or f"and MLflow {uri} did not register its plan" in capsys.readouterr().err


def test_preset_that_asks_for_less_than_the_study_has_is_named(tmp_path, capsys):
    folder = launched_study(tmp_path / "s", mini_plan(tasks=("rte",), search_repeats=3))
    notes = dry_run(capsys, "--continue", str(folder), "--compare", "methods:2")
    wanted = "search_repeats 2 of --compare methods:2 is ignored, because the study already has 3 searches per arm"
    assert wanted in notes and "samples 4 of" not in notes
