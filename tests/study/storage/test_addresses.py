"""Which addresses are refused: pytest tests/study/storage/test_addresses.py"""

from __future__ import annotations

import re
import sys

import pytest
from helpers.messages import says
from helpers.storages import files_under

from study import doctor, launch, mirror
from study.storage.addresses import check_tracking_address, small_object


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("ftp://host/path", "--storage is ftp://host/path; allowed: a folder, file:///PATH, "),
        ("ftp://anna:SECRET@host/path", "--storage is ftp://anna:***@host/path; allowed: a folder, file:///PATH"),
        ("s3://AKIA:SECRET@bucket/path", "a password or a port; allowed: s3://BUCKET/PATH"),
        ("s3://AKIA:SEC/RET@bucket/path", "a password or a port; allowed: s3://BUCKET/PATH"),
        ("s3://AKIA#:SECRET@bucket/path", "a password or a port; allowed: s3://BUCKET/PATH"),
        ("s3://bucket/path?endpoint_override=a:SECRET@host", "--storage holds a user, a password or a port"),
        (
            "s3://bucket/path?access_key=A&secret_key=SECRET",
            "--storage has the parameter 'access_key'; allowed parameters:",
        ),
        (
            "s3://bucket?scheme=http&secret_key=SECRET",
            "'secret_key'; allowed parameters: endpoint_override, region, scheme; cred",
        ),
        ("file:///path?x=1", "--storage has the parameter 'x'; allowed parameters: none"),
        ("file://runs/here", "--storage is file://runs/here; allowed: file:///PATH, from the root"),
        ("s3:///path", "--storage is s3:///path; allowed: s3://BUCKET/PATH"),
        ("file:///proc/nowhere", "file:///proc/nowhere cannot be written: "),
    ],
)
def test_impossible_storage_is_refused_without_traces(tmp_path, capsys, storage, message):
    out = tmp_path / "runs"
    assert launch.main(["--task", "rte", "--storage", storage, "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert "SECRET" not in printed.err and "RET@" not in printed.err and not out.exists()


@pytest.mark.parametrize(
    "uri",
    [
        "https://anna:SECRET@mlflow.example.org",
        "postgresql://anna:SECRET@host/db",
        "postgresql+psycopg2://anna:SEC/RET@host/db",
        "postgresql+psycopg2://anna:SEC?RET@host/db",
        "postgresql+psycopg2://anna:SEC#RET@host/db",
        "https://SEC?RET@mlflow.example.org",
        "https://anna:12#RET@mlflow.example.org",
        "https://mlflow.example.org/?token=SECRET",
    ],
)
def test_a_password_in_the_address_of_the_tracking_server_is_refused(tmp_path, capsys, uri):
    """It would stand in the plan, the journal, the report and the list of processes."""
    out = tmp_path / "runs"
    assert launch.main(["--task", "rte", "--tracking-uri", uri, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "--tracking-uri holds a password; " in error and error.count("\n") == 1
    assert "SECRET" not in error and "RET@" not in error and not out.exists()
    assert doctor.main(["--tracking-uri", uri]) == 2


@pytest.mark.parametrize("uri", ["databricks", "sqlite:////home/a:b@c/mlflow.db", "http://127.0.0.1:5000"])
def test_other_addresses_of_a_tracking_server_are_taken(uri):
    assert check_tracking_address(uri) == uri


@pytest.mark.parametrize("option", ["--tracking-uri", "--storage"])
def test_address_that_is_no_url_names_its_option(capsys, option):
    uri = "http://[::1"
    assert launch.main(["--task", "rte", "--dry-run", option, uri]) == 2
    error = capsys.readouterr().err
    assert f"{option} is {uri}: Invalid IPv6 URL; allowed: " in error and error.count("\n") == 1


@pytest.mark.parametrize("uri", ["foo", "runs/mlflow", "./mlruns", "file:///mlruns", "sqlite"])
def test_a_folder_of_mlflow_is_refused_with_what_is_allowed(tmp_path, capsys, uri):
    said = f"--tracking-uri is {uri}; allowed: sqlite:///FILE, a server's URL such as http://HOST:PORT, a database's"
    for command in (launch, mirror, doctor):
        others = {launch: ["--dry-run"], mirror: [str(tmp_path)]}.get(command, [])
        assert command.main([*others, "--tracking-uri", uri]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:relative.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://folder/mlflow.db",
        "sqlite:///:memory:",
        "mssql+foo://h/d",
    ],
)
def test_tracking_database_without_a_file_is_refused(uri):
    with pytest.raises(ValueError, match=rf"^--tracking-uri is {re.escape(uri)}.*; allowed: sqlite:///FILE, "):
        check_tracking_address(uri)


def test_tracking_database_without_its_driver_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg2", None)  # an import of it fails
    uri = "postgresql+psycopg2://anna@host/db"
    for command in (launch, mirror, doctor):
        others = {launch: ["--dry-run"], mirror: [str(tmp_path)]}.get(command, [])
        assert command.main([*others, "--tracking-uri", uri]) == 2
        error = capsys.readouterr().err
        assert says(error, uri, "psycopg2", "allowed: ", "'.[postgresql]'") and error.count("\n") == 1


def test_a_launch_may_have_no_tracking_and_a_mirror_may_not(tmp_path, capsys):
    assert launch.main(["--tracking-uri", "none", "--dry-run", "--out", str(tmp_path)]) == 0
    assert mirror.main([str(tmp_path), "--tracking-uri", "none"]) == 2
    assert "--tracking-uri is none; allowed: sqlite:///FILE" in capsys.readouterr().err


def test_the_doctor_refuses_the_same_in_one_line(capsys):
    assert doctor.main(["--storage", "s3://AKIA:SECRET@bucket"]) == 2
    error = capsys.readouterr().err
    assert "--storage holds a user" in error and error.count("\n") == 1 and "SECRET" not in error


def test_doctor_writes_under_uri_and_seeks_marker(tmp_path):
    uri = f"file://{tmp_path}/bucket"
    seen = doctor.check_storage(uri, None)
    assert not seen.is_fault and files_under(tmp_path) == []
    with small_object(uri) as marker:
        assert not doctor.check_storage(uri, marker).is_fault
    unseen = doctor.check_storage(uri, marker)
    assert unseen.is_fault and "files of the other nodes" in unseen.text
    refused = doctor.check_storage("file:///proc/nowhere", None)
    assert refused.is_fault and "cannot be written" in refused.text
