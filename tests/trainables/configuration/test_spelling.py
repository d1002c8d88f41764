import pytest

from trainables.configuration.spelling import is_same_name, resolve_name
from trainables.data.tasks import TASKS


@pytest.mark.parametrize(
    ("written", "name"), [("RTE", "rte"), ("SST-2", "sst2"), ("STS-B", "stsb"), ("s_s_t 2", "sst2")]
)
def test_a_name_is_known_however_it_is_written(written, name):
    assert resolve_name(written, TASKS, what="task") == name
    assert is_same_name(written, name)


def test_every_title_in_a_table_is_a_name():
    assert [resolve_name(task.title, TASKS, what="task") for task in TASKS.values()] == [*TASKS]


@pytest.mark.parametrize(
    ("what", "written", "menu", "known"),
    [
        ("task", "RTEE", ["sst2", "rte"], []),
        ("method", "PABEE", ["palbert"], ["palbert", "pabee"]),  # a known name is no slip of another one
        ("method", "pabert", ["palbert"], ["palbert", "pabee"]),
        ("task", "squad", ["sst2", "rte"], []),
        ("variant of pabee", "pabee:a", [], []),
        ("cell", "PALBERT", ["palbert/rte", "palbert/cola", "pabee/cola"], []),
        ("cell", "cola", ["palbert/rte", "palbert/cola", "pabee/cola"], []),
    ],
    ids=str,
)
def test_unknown_name_is_answered_with_the_menu_and_the_nearest(what, written, menu, known, snapshot):
    with pytest.raises(ValueError) as raised:
        resolve_name(written, menu, what=what, known=known)
    assert str(raised.value) == snapshot
