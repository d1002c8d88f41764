"""Errors of requests to the hub: pytest tests/trainables/files/test_sources.py"""

from __future__ import annotations

import errno
import os

import pytest

from trainables.files.sources import HubUnreachable, hub_errors


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (errno.ENOSPC, OSError),
        (errno.EDQUOT, OSError),
        (errno.EACCES, PermissionError),
        (errno.EROFS, OSError),
        (errno.ENETUNREACH, HubUnreachable),
    ],
)
def test_fault_of_the_cache_folder_is_not_blamed_on_the_hub(number, raised):
    with pytest.raises(raised) as caught, hub_errors("backbone 'a/b'", allowed="a folder", offline="give a folder"):
        raise OSError(number, os.strerror(number))
    assert caught.type is raised
