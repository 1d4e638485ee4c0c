"""`/embed` and `/v1/embeddings`: the vectors of a bi-encoder as TEI and OpenAI give them, field by field."""

import base64

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from rerank.models.bi_encoder import BiEncoder, is_bi_encoder
from rerank.serving.app import Served, make_app
from rerank.serving.dialects import EMBEDDINGS
from rerank.serving.dialects.fields import uses
from rerank.serving.embedder import Embedder
from rerank.serving.limits import Limits
from rerank.serving.metrics import Metrics
from tests.support.servers import serving
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_bi_encoder

TEXTS = ["amber birch", " ".join(WORDS * 9), "fjord"]
LEAD = "cedar "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bi_encoder(tmp_path_factory.mktemp("bi-encoder"), WORDS, 24, prompts={"query": LEAD})


@pytest.fixture(scope="module")
def model(folder):
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def server(folder):
    metrics = Metrics()
    embedder = Embedder(BiEncoder.load(str(folder), device="cpu"), "the encoder", Limits(max_documents=5), metrics)
    with serving(make_app(Served("the encoder", metrics, embedder=embedder))) as server:
        yield server
    embedder.stop()


def test_a_folder_of_a_bi_encoder_is_known(folder):
    assert is_bi_encoder(folder)
    assert not is_bi_encoder(folder.parent / "plain")


def test_tei_embeds_texts_field_by_field(server, model):
    def vectors(**more):
        return np.array(server.ask("/embed", {"inputs": TEXTS, **more}).json)

    def close(found, **settings):
        np.testing.assert_allclose(found, model.encode(TEXTS, **settings), atol=1e-5)

    close(vectors(), normalize_embeddings=True)
    close(vectors(normalize=False))
    close(vectors(prompt_name="query"), normalize_embeddings=True, prompt_name="query")
    close(vectors(dimensions=3), normalize_embeddings=True, truncate_dim=3)
    np.testing.assert_allclose(vectors(inputs="fjord"), vectors()[2:], atol=1e-5)
    close(vectors(truncate=True, truncation_direction="right"), normalize_embeddings=True)
    for more, status in (
        ({"truncate": False}, 413),
        ({"truncation_direction": "left"}, 413),
        ({"prompt_name": "none"}, 422),
        ({"dimensions": 100_000}, 422),
        ({"normalize": "no"}, 422),
        ({"inputs": [[1, 2]]}, 422),
        ({"inputs": []}, 400),
        ({"inputs": TEXTS * 2}, 413),
    ):
        refused = server.ask("/embed", {"inputs": TEXTS, **more})
        assert (refused.status, refused.json.keys()) == (status, {"error", "error_type"})
    assert uses(EMBEDDINGS["/embed"][0].request).keys() == {
        "inputs", "truncate", "truncation_direction", "prompt_name", "normalize", "dimensions",
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings", "/openai/v1/embeddings/"])
def test_openai_embeds_texts_field_by_field(server, model, path):
    expected = model.encode(TEXTS, normalize_embeddings=True)
    answer = server.ask(path, {"input": TEXTS, "model": "any", "user": "me"}).json
    assert (answer["object"], answer["model"]) == ("list", "the encoder")
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] == 4 + 24 + 3
    assert [(item["object"], item["index"]) for item in answer["data"]] == [("embedding", row) for row in range(3)]
    np.testing.assert_allclose([item["embedding"] for item in answer["data"]], expected, atol=1e-5)
    encoded = server.ask(path, {"input": "fjord", "encoding_format": "base64", "dimensions": 3}).json["data"][0]
    found = np.frombuffer(base64.b64decode(encoded["embedding"]), "<f4")
    np.testing.assert_allclose(found, model.encode("fjord", normalize_embeddings=True, truncate_dim=3), atol=1e-5)
    for more in ({"encoding_format": "int8"}, {"dimensions": 100_000}, {"input": 3}):
        refused = server.ask(path, {"input": TEXTS, **more})
        assert refused.status in (400, 422)
        assert next(iter(more)) in refused.json["error"]["message"]
    assert uses(EMBEDDINGS["/embeddings"][0].request).keys() == {
        "input", "model", "encoding_format", "dimensions", "user",
    }  # fmt: skip


def test_a_server_of_a_bi_encoder_says_so_and_ranks_nothing(server):
    assert server.get("/info").json["model_type"] == {"embedding": {"pooling": "mean"}}
    assert server.get("/v1/models").json["data"][0]["capabilities"] == ["embed"]
    assert server.get("/ready").status == 200
    assert server.ask("/rerank", {"query": "amber", "texts": ["birch"]}).status == 404
    assert "/embed" in server.get("/openapi.json").json["paths"]
