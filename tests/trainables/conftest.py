"""What the tests of training and pretraining runs share."""

from collections.abc import Iterator

import pytest
from helpers.trials import training_on_few_rows


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A folder of tokenised data."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def few_rows() -> Iterator[None]:
    with training_on_few_rows():
        yield
