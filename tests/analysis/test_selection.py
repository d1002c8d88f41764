"""A dev table of chosen rows, columns and names: pytest tests/analysis/test_selection.py"""

import pytest
from helpers.made_studies import arm, write_study

from analysis import tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    records = [
        *(row for task, up in {"rte": 0.0, "mrpc": 0.1}.items() for row in arm("albert", task, [0.7 + up] * 5)),
        *(row for task, up in {"rte": 0.05, "mrpc": 0.0}.items() for row in arm("palbert", task, [0.7 + up] * 5)),
    ]
    return write_study(tmp_path_factory.mktemp("runs"), records)


def printed(capsys, folder, *arguments):
    assert tables.main([str(folder), *arguments]) == 0
    return capsys.readouterr().out


def test_rows_and_columns_follow_request(folder, capsys):
    text = printed(capsys, folder, "--rows", "palbert,ALBERT,palbert", "--tasks", "mrpc,RTE", "--format", "csv")
    header, *lines = [line.split(",") for line in text.splitlines()]
    assert header.index("mrpc") < header.index("rte")
    assert [line[0] for line in lines if line[1] == "ours"] == ["palbert", "albert"]
    assert not (folder / "tables").exists()


def test_row_has_another_name_and_the_best_median_is_bold(folder, capsys):
    text = printed(capsys, folder, "--names", "palbert=PALBERT (ours)", "--bold", "best")
    ours = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert "**75.0**" in ours["PALBERT (ours)"] and "**80.0**" in ours["albert"]
    assert text.count("**") == 4 and "palbert" not in "".join(ours)


def test_latex_has_the_table_and_notes_as_comments_alone(folder, capsys):
    text = printed(capsys, folder, "--rows", "palbert", "--tasks", "rte", "--bold", "best", "--format", "tex")
    assert r"\textbf{75.0}" in text and "albert &" not in text.replace("palbert &", "")
    assert text.split(r"\end{table}")[1].strip().startswith("% Scores are in points") and str(folder) not in text


@pytest.mark.parametrize(
    ("value", "row", "name"),
    [
        ("palbert:beta=0.1=PALBERT", "palbert:beta=0.1", "PALBERT"),
        ("palbert:beta=0.1=beta=0.1", "palbert:beta=0.1", "beta=0.1"),
        ("PALBERT=beta=0.1", "PALBERT", "beta=0.1"),
        ("palbert:beta=0.3=x", "palbert:beta", "0.3=x"),
    ],
)
def test_rows_of_varied_values_can_be_renamed(value, row, name):
    assert tables._read_name(value, ["palbert", "palbert:beta=0.1"]) == (row, name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "palbret"], "no row named 'palbret'; available: albert, palbert; did you mean palbert?"),
        (["--tasks", "rtee"], "did you mean rte?"),
        (["--names", "palbert"], "--names is 'palbert'; allowed: ROW=NAME"),
        (["--rows", "palbert", "--out", "mine"], "--out mine: a table of chosen rows or columns is only printed"),
        (["--names", "pabee=x"], "no row named 'pabee'"),
        (
            ["--names", "palbert=albert"],
            "with --names, the rows are called 'albert', 'albert'; allowed: a different name for each row",
        ),
        (
            ["--names", "palbert="],
            "with --names, the rows are called 'albert', ''; allowed: a different name for each row",
        ),
        (["--tasks", "qqp"], "no column named 'qqp'"),
    ],
)
def test_unknown_row_or_column_is_answered_in_one_line(folder, capsys, arguments, message):
    assert tables.main([str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_strict_refuses_a_cut_table_with_missing_seeds(tmp_path, capsys):
    folder = write_study(tmp_path, arm("palbert", "rte", [0.7, 0.71, None, 0.72, 0.75]))
    assert tables.main([str(folder), "--rows", "palbert", "--strict"]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("analysis.tables: --strict: ") and error.count("\n") == 1
