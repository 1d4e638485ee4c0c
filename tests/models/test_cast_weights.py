"""Weights that are cast once for scoring: the scores are the same bits, as the autocast of a CPU shows."""

import pytest
import torch

from rerank.models.cast_weights import cast_weights
from rerank.models.checkpoints import open_cross_encoder
from tests.support.small_world import WORDS, make_inputs, make_lists, scores_of
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

QUERIES, TEXTS, LISTS = make_lists(queries=2, documents=8, longest=80)
PAIRS = [(c.query_id, doc_id) for c in LISTS for doc_id in c.doc_ids]
CPU = torch.device("cpu")


def opened(tmp_path, kind, make=make_encoder):
    make(kind, tmp_path / kind, WORDS, max_positions=48)
    model, tokenizer, max_length = open_cross_encoder(str(tmp_path / kind), "mean", 0)
    return model.eval(), make_inputs(tmp_path / "tokens", tokenizer, max_length, QUERIES, TEXTS)(PAIRS)


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize(
    ("kind", "make"), [("bert", make_encoder), ("deberta-v2", make_encoder), ("bert", make_cross_encoder)]
)
def test_scores_are_the_same_bits_and_the_weights_come_back(kind, make, tmp_path):
    model, inputs = opened(tmp_path, kind, make)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad(), autocast():
        expected = scores_of(model, inputs)
    with cast_weights(model, CPU, autocast), torch.inference_mode(), autocast():
        types = {value.dtype for value in model.state_dict().values()}
        found = scores_of(model, inputs)
    assert types == {torch.float32, torch.bfloat16}
    assert torch.equal(found, expected)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_error_puts_the_weights_back(tmp_path):
    model, _ = opened(tmp_path, "bert")
    places = [parameter.data_ptr() for parameter in model.parameters()]

    def work():
        with cast_weights(model, CPU, autocast):
            assert model.head.weight.dtype == torch.float32
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert [parameter.data_ptr() for parameter in model.parameters()] == places


def test_float32_changes_nothing(tmp_path):
    model, _ = opened(tmp_path, "bert")
    for model.in_float32, context in ((True, autocast), (False, lambda: torch.autocast("cpu", enabled=False))):
        with cast_weights(model, CPU, context):
            assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
