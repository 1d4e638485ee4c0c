"""The encoder and the candidates that the benchmarks of text work on."""

import pytest
import torch
from transformers import AutoConfig

from rerank.models.checkpoints import open_cross_encoder
from rerank.utils.errors import UserError
from scripts.benchmarks.workload import SHAPES, encoder, make_encoder, make_workload
from tests.scripts.benchmarks.small_encoder import SHAPE, VOCABULARY


def test_candidates_are_their_own_documents_and_half_of_them_are_relevant(folder):
    workload = make_workload(folder, lists=3, documents=4)
    assert [c.labels for c in workload.candidates] == [(1, 1, 0, 0)] * 3
    names = [doc_id for c in workload.candidates for doc_id in c.doc_ids]
    assert len(set(names)) == 12 == len(workload.texts)
    tokens = [len(workload.builder.documents[name]) for name in names]
    assert tokens == [len(workload.texts[name].split()) for name in names]
    queries = [len(workload.builder.query(c.query_id)) for c in workload.candidates]
    assert set(queries) <= {2, 3, 4}
    passages = [1 + (length > 512 - 3 - queries[i // 4]) for i, length in enumerate(tokens)]
    assert max(passages) == 2
    lengths = workload.passage_lengths()
    assert len(lengths) == sum(passages)
    overhead = [count * (3 + queries[i // 4]) for i, count in enumerate(passages)]
    assert lengths.sum() == sum(tokens) + sum(overhead)


def test_documents_of_one_passage(folder):
    workload = make_workload(folder, lists=4, documents=8, one_passage=True)
    lengths = workload.passage_lengths()
    assert len(lengths) == 32
    assert lengths.max() <= 512


def test_a_seed_makes_the_same_world(folder, tmp_path):
    again = make_encoder(tmp_path, own_head=False, vocabulary=VOCABULARY, **SHAPE)
    one, other = make_workload(folder, 2, 4), make_workload(again, 2, 4)
    assert one.texts == other.texts
    assert one.queries == other.queries
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])


def test_an_encoder_by_shape_by_folder_or_an_error(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(SHAPES, "minilm", SHAPE)
    with encoder("minilm", own_head=True) as made:
        assert AutoConfig.from_pretrained(made).hidden_size == SHAPE["hidden_size"]
        model, _, max_length = open_cross_encoder(str(made), "mean", 0)
        assert model.head is None
        assert max_length == 512
    assert not made.exists()
    with encoder(str(folder)) as found:
        assert found == folder
    with pytest.raises(UserError, match="nowhere"), encoder(str(tmp_path / "nowhere")):
        pass
