"""The peers do the same work: same scores, same learning, same loss, the same count of operations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from sentence_transformers import CrossEncoder
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel

from rerank.losses import smoothi
from scripts.benchmarks.baselines import Cedr, smoothi_graph
from scripts.benchmarks.flops import FORWARDS_OF_A_STEP, forward_flops
from scripts.benchmarks.losses import inputs
from scripts.benchmarks.scoring import our_scores, predictions, text_pairs
from scripts.benchmarks.workload import make_encoder, make_workload
from tests.support.small_world import WORDS, scores_of
from tests.support.tiny_encoders import make_encoder as make_tiny_encoder

CPU = torch.device("cpu")
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT with a head of one output; narrow, it needs weights larger than BERT's."""
    return make_encoder(tmp_path_factory.mktemp("encoder"), True, 1000, initializer_range=0.2, **SHAPE)


@pytest.fixture
def workload(tmp_path):
    return make_workload(make_encoder(tmp_path, False, 1000, initializer_range=0.2, **SHAPE), 9, 4)


@pytest.fixture
def cedr(workload):
    """The peer with the weights of the workload's model."""
    builder = workload.builder
    model = Cedr(AutoModel.from_pretrained(workload.folder), builder.template, builder.max_length, 0)
    model.head.load_state_dict(workload.model.head.state_dict())
    return model


@pytest.mark.parametrize("length", [1, 508, 700])
def test_cedr_scores_documents_of_equal_length_as_rerank_does(workload, cedr, length):
    tokens = np.random.default_rng(0).integers(5, 900, size=(4, length)).astype(np.int32)
    doc_ids = workload.candidates[0].doc_ids
    rows = {doc_id: row for row, doc_id in enumerate(doc_ids)}
    store = replace(workload.builder.documents, tokens=tokens.ravel(), offsets=np.arange(5) * length, rows=rows)
    builder = replace(workload.builder, documents=store)
    workload.model.eval()
    cedr.eval()
    with torch.no_grad():
        ours = scores_of(workload.model, builder([("q0", doc_id) for doc_id in doc_ids]))
        theirs = cedr([builder.query("q0")] * 4, tokens.tolist())
    assert ours.std() > 1e-3
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


def test_smoothi_with_a_graph_is_smoothi():
    scores, labels = inputs(4, 30, CPU)
    again = scores.detach().clone().requires_grad_()
    values, expected = smoothi_graph(scores, labels), smoothi(again, labels)
    torch.testing.assert_close(values, expected)
    values.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(scores.grad, again.grad)


def test_sentence_transformers_gives_the_same_scores(folder):
    workload, accelerator = make_workload(folder, 2, 4, one_passage=True), Accelerator(cpu=True)
    assert workload.passage_lengths().max() <= 512
    run = our_scores(workload.model, workload, accelerator)
    ours = [value for of_query in run.values() for value in of_query.values()]
    peer = CrossEncoder(str(folder), device="cpu")
    assert predictions(peer, text_pairs(workload), 3, accelerator).tolist() == pytest.approx(ours, abs=1e-5)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_forward_and_a_backward_pass_are_what_torch_counts(kind, tmp_path):
    settings = {"add_pooling_layer": False} if kind == "bert" else {}
    folder, lengths = make_tiny_encoder(kind, tmp_path, WORDS), np.array([5, 48, 17])
    encoder = AutoModel.from_pretrained(folder, attn_implementation="eager", **settings)  # every product is seen
    with FlopCounterMode(display=False) as both:
        for length in lengths:
            encoder(input_ids=torch.ones(1, int(length), dtype=torch.long)).last_hidden_state.sum().backward()
    assert both.get_total_flops() == pytest.approx(FORWARDS_OF_A_STEP * forward_flops(encoder, lengths), rel=1e-6)
    packed = forward_flops(encoder, lengths, packed=True)
    assert (packed < forward_flops(encoder, lengths)) == (kind == "bert")  # its last layer ends with first tokens
