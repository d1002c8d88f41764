"""What the tests of training and pretraining runs share."""

import pytest
from helpers.corpora import random_documents, write_corpus


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A folder of tokenised data."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> str:
    """A folder of random text to pretrain on."""
    return write_corpus(tmp_path_factory.mktemp("text"), random_documents())
