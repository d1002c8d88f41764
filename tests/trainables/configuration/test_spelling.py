import pytest

from trainables.configuration.spelling import is_same_name, resolve_name, unknown_name_error
from trainables.data.tasks import TASKS


@pytest.mark.parametrize(
    ("written", "name"), [("RTE", "rte"), ("SST-2", "sst2"), ("STS-B", "stsb"), ("s_s_t 2", "sst2")]
)
def test_a_name_is_known_however_it_is_written(written, name):
    assert resolve_name(written, TASKS, what="task") == name
    assert is_same_name(written, name)


def test_every_title_in_a_table_is_a_name():
    assert [resolve_name(task.title, TASKS, what="task") for task in TASKS.values()] == [*TASKS]


def test_a_name_that_is_none_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"^no task named 'RTEE'; available: sst2, rte; did you mean rte\?$"):
        resolve_name("RTEE", ["sst2", "rte"], what="task")


def test_a_known_name_is_no_slip_of_another_one():
    known = ["palbert", "pabee"]
    with pytest.raises(ValueError, match=r"^'PABEE' is not a method; available: palbert$"):
        resolve_name("PABEE", ["palbert"], what="method", known=known)
    with pytest.raises(ValueError, match=r"; available: palbert; did you mean palbert\?$"):
        resolve_name("pabert", ["palbert"], what="method", known=known)


def test_every_name_with_the_given_half_is_suggested():
    menu = ["palbert/rte", "palbert/cola", "pabee/cola"]
    for half, names in {"PALBERT": "palbert/rte or palbert/cola", "cola": "palbert/cola or pabee/cola"}.items():
        with pytest.raises(ValueError, match=f"; did you mean {names}\\?$"):
            resolve_name(half, menu, what="cell")


def test_nothing_is_offered_where_nothing_is_near():
    assert str(unknown_name_error("task", "squad", ["sst2", "rte"])) == "no task named 'squad'; available: sst2, rte"
    assert (
        str(unknown_name_error("variant of pabee", "pabee:a", []))
        == "no variant of pabee named 'pabee:a'; available: none"
    )
