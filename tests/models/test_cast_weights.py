"""Weights that are cast once for scoring: the scores are the same bits, as the autocast of a CPU shows."""

import contextlib

import pytest
import torch

from rerank.models.cast_weights import cast_weights
from tests.models.tiny import open_tiny
from tests.support.small_world import make_lists, scores_of
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

QUERIES, TEXTS, LISTS = make_lists(queries=2, documents=8, longest=80)
PAIRS = [(c.query_id, doc_id) for c in LISTS for doc_id in c.doc_ids]
CPU = torch.device("cpu")


def opened(tmp_path, kind="bert", make=make_encoder):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, kind, make, QUERIES, max_positions=48)
    return model.eval(), inputs_of(PAIRS)


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


def test_an_error_puts_the_weights_back_and_float32_changes_nothing(tmp_path):
    model, _ = opened(tmp_path)
    places = [parameter.data_ptr() for parameter in model.parameters()]
    with contextlib.suppress(KeyError), cast_weights(model, CPU, autocast):
        assert model.head.weight.dtype == torch.float32
        raise KeyError
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    for model.in_float32, context in ((True, autocast), (False, lambda: torch.autocast("cpu", enabled=False))):
        with cast_weights(model, CPU, context):
            assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
