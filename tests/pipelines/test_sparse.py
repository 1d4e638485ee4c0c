"""The stage `sparse`: dot products of the weights of word pieces, by SPLADE and by an inference-free encoder."""

from pathlib import Path

import numpy as np
import pytest
import torch

import rerank
from rerank.cli.main import main
from rerank.config import Config
from rerank.data.trec import ranked
from rerank.models.sparse_encoder import open_sparse_encoder
from rerank.pipelines.record import read_evidence
from rerank.pipelines.stages import SparseStage
from rerank.pipelines.stages.world import World
from tests.support.small_collection import failed
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_sparse_encoder

QUERIES = {"a": "alpha0 good", "b": f"{WORDS[0]} {WORDS[1]}"}


@pytest.mark.parametrize("inference_free", [False, True], ids=["splade", "inference-free"])
def test_the_ranking_is_that_of_the_dot_products_of_sentence_transformers(here, inference_free):
    from sentence_transformers import SparseEncoder

    folder = make_sparse_encoder(Path("sparse"), [*WORDS, "good", "bad"], inference_free)
    run = SparseStage("sparse", depth=10).fit(World.open(Config("towns")), None, [], Path()).rank(QUERIES, [])
    model = SparseEncoder(str(folder), device="cpu")
    documents = list(rerank.open_collection("towns").documents())
    with torch.no_grad():
        texts = model.encode_document([document.text for document in documents]).to_dense()
        asked = model.encode_query(list(QUERIES.values())).to_dense()
    expected = (asked @ texts.T).numpy()
    for query_id, scores in zip(QUERIES, expected, strict=True):
        best = np.sort(scores[scores > 0])[::-1][:10]
        assert list(run[query_id].values()) == pytest.approx(best.tolist(), rel=1e-4)
        by_id = {document.doc_id: float(score) for document, score in zip(documents, scores, strict=True)}
        assert all(by_id[doc_id] == pytest.approx(score, rel=1e-4) for doc_id, score in run[query_id].items())
        assert ranked(run[query_id]) == list(run[query_id])


def test_a_weight_of_a_long_document_is_the_highest_of_its_passages(here):
    make_sparse_encoder(Path("sparse"), [*WORDS, "good", "bad"])
    encoder = open_sparse_encoder("sparse", "cpu", "float32")
    text = " ".join(WORDS * 10)
    passages = encoder.encoder.split(text)
    assert len(passages) > 1
    whole, parts = (encoder.encode_documents(texts).toarray() for texts in ([text], passages))
    np.testing.assert_allclose(whole[0], parts.max(axis=0), rtol=1e-5)


def test_fit_tries_a_sparse_encoder_and_a_portable_folder_has_it(here, capsys):
    make_sparse_encoder(Path("sparse"), [*WORDS, "good", "bad"], inference_free=True)
    words = ["--encoder", "none", "--sparse-encoder", "sparse", "--out", "p", "--portable"]
    main(["fit", "towns", *words])
    assert [row["name"] for row in read_evidence(Path("p"))["stages"]] == ["bm25", "sparse", "fused", "neighbours"]
    before = rerank.Pipeline.load("p").rank_all(QUERIES)
    for path in ("sparse", "runs"):
        Path(path).rename(f"{path}-moved")
    assert rerank.Pipeline.load("p").rank_all(QUERIES) == before
    assert "encoder encoder: is no sparse encoder" in failed(
        capsys, "fit", "towns", "--encoder", "none", "--sparse-encoder", "encoder"
    )
