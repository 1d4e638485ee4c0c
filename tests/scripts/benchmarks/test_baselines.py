"""The peers do the same work: same scores, same learning, same losses."""

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModel

from rerank.losses import hinge, smoothi
from scripts.benchmarks.baselines import Cedr, cedr_step, open_sentence_cross_encoder, smoothi_graph
from scripts.benchmarks.losses import inputs
from scripts.benchmarks.scoring import our_scores, predictions, text_pairs
from scripts.benchmarks.workload import make_workload
from tests.support.small_world import scores_of

CPU = torch.device("cpu")


@pytest.fixture
def workload(folder):
    return make_workload(folder, 2, 4)


@pytest.fixture
def cedr(folder, workload):
    """The peer with the weights of the workload's model."""
    builder = workload.builder
    model = Cedr(AutoModel.from_pretrained(folder), builder.template, builder.max_length, 0)
    model.head.load_state_dict(workload.model.head.state_dict())
    return model


@pytest.mark.parametrize("length", [1, 300, 508, 700])
def test_cedr_scores_documents_of_equal_length_as_rerank_does(workload, cedr, length):
    from dataclasses import replace

    import numpy as np

    tokens = np.random.default_rng(0).integers(5, 900, size=(4, length)).astype(np.int32)
    doc_ids = workload.candidates[0].doc_ids
    store = replace(
        workload.builder.documents,
        tokens=tokens.ravel(),
        offsets=np.arange(5) * length,
        rows={doc_id: row for row, doc_id in enumerate(doc_ids)},
    )
    builder = replace(workload.builder, documents=store)
    workload.model.eval()
    cedr.eval()
    with torch.no_grad():
        ours = scores_of(workload.model, builder([("q0", doc_id) for doc_id in doc_ids]))
        theirs = cedr([builder.query("q0")] * 4, tokens.tolist())
    assert ours.std() > 1e-3
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


def test_cedr_cuts_all_documents_into_as_many_parts_as_the_longest_needs(workload, cedr):
    seen = []
    cedr.encoder.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    cedr.eval()
    with torch.no_grad():
        cedr([[7, 8, 9]] * 3, [[10] * 700, [11] * 5, [12] * 400])
    (given,) = seen
    assert given["input_ids"].shape == (2 * 3, 350 + 3 + 3)
    assert given["attention_mask"].sum(1).tolist() == [356, 11, 356, 356, 6, 56]
    assert given["token_type_ids"][0].tolist() == [0] * 5 + [1] * 351
    assert given["input_ids"][4].tolist() == [2, 7, 8, 9, 3, *[0] * 350, 3]


def test_cedr_learns_its_documents(workload, cedr):
    lists = [
        (
            workload.builder.query(c.query_id),
            [workload.builder.documents[d].tolist()[:60] for d in c.doc_ids],
            c.labels,
        )
        for c in workload.candidates
    ]

    def value():
        cedr.eval()
        with torch.no_grad():
            scores = [cedr([query] * len(documents), documents) for query, documents, _ in lists]
        labels = [torch.tensor([labels], dtype=torch.float32) for _, _, labels in lists]
        return sum(float(hinge(s[None], y)) for s, y in zip(scores, labels, strict=True))

    before = value()
    optimizer = torch.optim.Adam(cedr.parameters(), lr=1e-3)
    torch.manual_seed(0)
    for _ in range(40):
        cedr.train()
        cedr_step(cedr, optimizer, lists, hinge)
    assert value() < 0.5 * before


def test_smoothi_with_a_graph_is_smoothi():
    scores, labels = inputs(4, 30, CPU)
    again = scores.detach().clone().requires_grad_()
    values, expected = smoothi_graph(scores, labels), smoothi(again, labels)
    torch.testing.assert_close(values, expected)
    values.sum().backward()
    expected.sum().backward()
    assert again.grad.abs().max() > 0
    torch.testing.assert_close(scores.grad, again.grad)


def test_sentence_transformers_gives_the_same_scores(cross_encoder_folder):
    workload = make_workload(cross_encoder_folder, 2, 4, one_passage=True)
    accelerator = Accelerator(cpu=True)
    run = our_scores(workload.model, workload, accelerator)
    ours = [value for of_query in run.values() for value in of_query.values()]
    peer = open_sentence_cross_encoder(str(cross_encoder_folder), CPU)
    assert predictions(peer, text_pairs(workload), 3, accelerator).tolist() == pytest.approx(ours, abs=1e-5)
