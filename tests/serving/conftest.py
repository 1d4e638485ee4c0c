"""A model that the tests of the server share."""

import pytest

from rerank import Reranker
from tests.support.servers import served
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_cross_encoder


@pytest.fixture(scope="package")
def reranker(tmp_path_factory):
    """A cross-encoder that takes 24 tokens, so that long documents have many passages."""
    folder = tmp_path_factory.mktemp("served") / "bert"
    reranker = Reranker.load(make_cross_encoder("bert", folder, WORDS, max_positions=24), device="cpu")
    for name, weight in reranker.model.named_parameters():
        if name.endswith("weight") and "LayerNorm" not in name and "embeddings" not in name:
            weight.data *= 12  # so that scores differ
    return reranker


@pytest.fixture(scope="module")
def server(reranker):
    with served(reranker) as server:
        yield server
