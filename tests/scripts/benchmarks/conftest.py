import pytest

from scripts.benchmarks.workload import make_encoder
from tests.scripts.benchmarks.small_encoder import SHAPE, VOCABULARY


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A tiny BERT without a head."""
    return make_encoder(tmp_path_factory.mktemp("body"), own_head=False, vocabulary=VOCABULARY, **SHAPE)


@pytest.fixture(scope="session")
def cross_encoder_folder(tmp_path_factory):
    """A tiny BERT with a head of one output."""
    return make_encoder(tmp_path_factory.mktemp("whole"), own_head=True, vocabulary=VOCABULARY, **SHAPE)
