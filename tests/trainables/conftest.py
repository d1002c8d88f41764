"""What the tests of training and pretraining runs share."""

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A folder of tokenised data."""
    return tmp_path_factory.mktemp("cache")
