"""What study.doctor finds, and what it says to do: pytest tests/study/test_doctor.py"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.messages import shown
from helpers.places import ROOT, free_port
from syrupy.assertion import SnapshotAssertion

from study import doctor
from study.doctor import Finding


def test_versions_of_packages_are_listed() -> None:
    assert re.match(r"python 3\.\d+\.\d+, ray \d\S+, torch \d", doctor.list_packages().text)


def test_missing_ray_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (finding,) = doctor.check_cluster(None, data="mini", storage="runs")
    assert finding.is_fault and finding.text.endswith("read the logs of Ray, or reinstall the project")


def test_a_gpu_under_a_cpu_build_of_torch_is_a_fault() -> None:
    import torch

    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA")
    finding = doctor.check_gpus(1.0)
    assert finding.is_fault and "CPU build" in finding.text


def test_gpu_without_the_driver_s_folder_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    finding = doctor.check_gpus(1.0)
    assert not finding.is_fault and finding.text.startswith("1, torch for CUDA 12.8")


def test_tasks_of_folder_are_listed_with_absent_ones(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    for split in ("train", "dev"):
        rows = "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n"
        (tmp_path / "RTE" / f"{split}.tsv").write_text(rows)
    finding = doctor.check_data(str(tmp_path))
    assert not finding.is_fault
    assert " rte; these tasks are missing: " in finding.text and "cola" in finding.text


def test_data_without_a_task_is_a_fault(tmp_path: Path) -> None:
    finding = doctor.check_data(str(tmp_path))
    assert finding.is_fault and "has no task" in finding.text


def test_broken_data_is_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "RTE" / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tmaybe\n")
    finding = doctor.check_data(str(tmp_path))
    assert finding.is_fault and "dev.tsv, line 2" in finding.text


def test_storage_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    assert not doctor.check_storage(str(tmp_path / "runs"), None).is_fault
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("free", "is_fault"), [(0.9, True), (1.1, False)])
def test_nearly_full_storage_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, free: float, is_fault: bool
) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=free * 1e9))
    finding = doctor.check_storage(str(tmp_path), None)
    assert finding.is_fault == is_fault and f"{free:.1f} GB of free space" in finding.text


def test_storage_that_cannot_be_written_is_a_fault() -> None:
    finding = doctor.check_storage("/proc/runs", None)
    assert finding.is_fault and "choose another --storage" in finding.text


def test_storage_that_other_nodes_do_not_see_is_a_fault(tmp_path: Path) -> None:
    finding = doctor.check_storage(str(tmp_path), str(tmp_path / "marker of the driver"))
    assert finding.is_fault and "shared folder" in finding.text


@pytest.mark.slow
def test_unreachable_tracking_server_hides_password() -> None:
    finding = doctor.check_tracking(f"http://anna:secret@127.0.0.1:{free_port()}")
    assert finding.is_fault and "refused" in finding.text and "secret" not in finding.text


def test_an_address_with_a_password_is_refused_before_anything_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--tracking-uri", "http://anna:secret@127.0.0.1"]) == 2
    answer = capsys.readouterr()
    assert answer.out == "" and "--tracking-uri holds a password" in answer.err and "secret" not in answer.err


def test_a_check_that_breaks_is_a_finding_too() -> None:
    def broken() -> list[Finding]:
        raise ImportError("libcudart.so not found")

    finding = doctor._run_check("GPUs", broken)
    assert finding.is_fault and "libcudart.so" in finding.text


@pytest.mark.long
@pytest.mark.slow
def test_every_node_of_a_cluster_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        assert doctor.main(["--address", cluster.address, "--storage", str(tmp_path)]) == 0
    finally:
        cluster.shutdown()
    answer = capsys.readouterr().out
    assert "2 nodes" in answer and answer.count("storage on") == 2 and answer.endswith("ready\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--address", f"127.0.0.1:{free_port()}", "--storage", str(tmp_path)]) == 1
    answer = capsys.readouterr().out
    assert answer.count("FAULT") == 1 and "ray status" in answer


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        (
            "cluster.yaml",
            [
                "provider.region",
                "available_node_types.head.node_config.ImageId",
                "available_node_types.gpu_worker.node_config.ImageId",
                "initialization_commands[2]",
            ],
        ),
        (
            "kubernetes/results.yaml",
            ["spec.containers[0].image", "spec.volumes[0].persistentVolumeClaim.claimName"],
        ),
    ],
)
def test_unfilled_fields_of_a_cluster_are_named(
    file: str, fields: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "check_cluster", lambda *_, **__: pytest.fail("Ray was started"))
    assert doctor.main(["--cluster", str(ROOT / file)]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert [re.findall(r": (\S+) contains FILL_IN", line) for line in lines] == [[field] for field in fields]
    assert last == f"{len(fields)} faults"
    filled = tmp_path / "filled.yaml"
    filled.write_text((ROOT / file).read_text().replace("FILL_IN", "filled"))
    assert doctor.main(["--cluster", str(filled)]) == 0


def test_options_that_a_check_of_a_file_would_ignore_are_refused(
    capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert doctor.main(["--cluster", str(ROOT / "cluster.yaml"), "--data", "hub", "--wait-minutes", "2"]) == 2
    assert shown(capsys.readouterr().err, ROOT) == snapshot


@pytest.mark.parametrize(("content", "message"), [(None, "cannot be read: "), ("a: [", "is not YAML: ")])
def test_an_unreadable_file_of_a_cluster_is_one_line(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    if content is not None:
        file.write_text(content)
    assert doctor.main(["--cluster", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"study.doctor: --cluster {file} {message}") and error.count("\n") == 1
