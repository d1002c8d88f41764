"""No password is kept: pytest tests/study/storage/test_secrets.py"""

import sys

import pytest

from study.drivers.causes import build_failure, lost_process
from study.launching.planned_study import command_line
from study.storage.addresses import check_tracking_address
from study.terminal.text import masked


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("http://anna:SECRET@host/x is away", "http://anna:***@host/x is away"),
        ("ProxyError('http://anna:SEC/RET@proxy:3128')", "ProxyError('http://anna:***@proxy:3128')"),
        ("postgresql+psycopg2://:SEC@RET@host/db", "postgresql+psycopg2://:***@host/db"),
        ("'s3://b/p?region=x&secret_key=SECRET'", "'s3://b/p?region=x&secret_key=***'"),
        ("https://host/?access_token=SECRET&x=1", "https://host/?access_token=***&x=1"),
        ("https://SECRET@host/x", "https://***@host/x"),
        ("https://host/?api-key=SECRET&monkey=1&sig=SECRET", "https://host/?api-key=***&monkey=1&sig=***"),
        ("mysql://anna@host/db?pw=SECRET;AccountKey=SECRET", "mysql://anna@host/db?pw=***;AccountKey=***"),
        (
            "https://host/?X-Amz-Credential=SECRET&X-Amz-Signature=SECRET&sharedKey=SECRET&access_key=SECRET",
            "https://host/?X-Amz-Credential=***&X-Amz-Signature=***&sharedKey=***&access_key=***",
        ),
        ("https://host/?key=SECRET&auth=SECRET&pwd=SECRET", "https://host/?key=***&auth=***&pwd=***"),
        ("postgresql://anna@host/db?sslkey=/home/anna/key", "postgresql://anna@host/db?sslkey=/home/anna/key"),
        ("sqlite:////home/a:b/mlflow.db", "sqlite:////home/a:b/mlflow.db"),
        (
            "http://127.0.0.1:5000/a and s3://bucket/path?region=eu",
            "http://127.0.0.1:5000/a and s3://bucket/path?region=eu",
        ),
    ],
)
def test_a_password_is_hidden_and_all_else_stays(text, hidden):
    assert masked(text) == hidden


@pytest.mark.parametrize("query", ["password=SECRET", "sslpassword=SECRET", "odbc_connect=UID%3Da%3BPWD%3DSECRET"])
def test_a_password_among_the_parameters_of_a_tracking_address_is_refused(query):
    with pytest.raises(ValueError, match=r"^--tracking-uri holds a password") as refused:
        check_tracking_address(f"mssql+pyodbc://host/db?{query}")
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    "address", ["https://SECRET@host", "https://host/?api-key=SECRET", "mysql://host/db?pw=SECRET"]
)
def test_a_token_in_a_tracking_address_is_refused_too(address):
    with pytest.raises(ValueError, match=r"^--tracking-uri holds a password") as refused:
        check_tracking_address(address)
    assert "SECRET" not in str(refused.value)


def test_the_command_in_plan_journal_and_report_has_none(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["launch", "--data", "https://anna:SECRET@host/glue"])
    assert command_line() == "python -m study.launch --data https://anna:***@host/glue"


@pytest.mark.parametrize("then", [["--then", "curl https://host/SECRET"], ["--then=curl https://host/SECRET"]])
def test_the_command_to_run_at_the_end_is_not_kept(then, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["launch", "--task", "rte", *then, "--seeds", "3"])
    assert "SECRET" not in command_line() and "--then" in command_line()
    assert command_line().endswith(" --seeds 3")


def test_the_failure_of_a_trial_has_none():
    text = "cannot reach http://anna:SECRET@proxy:3128"
    for failure in (build_failure(OSError(text), node=None), lost_process(text, is_preempted=False, node=None)):
        assert "http://anna:***@proxy:3128" in failure.error and "SECRET" not in repr(failure)
