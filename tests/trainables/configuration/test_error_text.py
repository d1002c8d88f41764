"""One line of an error: pytest tests/trainables/configuration/test_error_text.py"""

from __future__ import annotations

import pytest

from trainables.configuration.error_text import take_first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n one \n"), "one"),
        (OSError(), "OSError"),
        (RuntimeError(" \n"), "RuntimeError"),
    ],
)
def test_first_line_is_the_name_of_the_class_if_there_is_no_message(error, line):
    assert take_first_line(error) == line
