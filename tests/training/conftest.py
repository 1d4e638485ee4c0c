"""An encoder that the tests of training share."""

import pytest

from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_encoder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A tiny BERT that takes 48 tokens."""
    return make_encoder("bert", tmp_path_factory.mktemp("training") / "bert", WORDS, max_positions=48)
