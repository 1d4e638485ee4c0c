"""Model + candidates -> run."""

import pytest
import torch
from accelerate import Accelerator, PartialState

from rerank.models.memory import TokenBudget
from rerank.models.scoring import chunk_by_length, pairs_of, score_candidates
from rerank.utils.errors import UserError
from tests.models.tiny import open_tiny
from tests.support.processes import in_two_processes
from tests.support.small_world import make_lists, scores_of

QUERIES, TEXTS, LISTS = make_lists(queries=4, documents=9, longest=150)


@pytest.fixture
def opened(tmp_path):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, queries=QUERIES, max_positions=48)
    return model, inputs_of


def test_every_candidate_has_its_own_score_whatever_the_budget(opened):
    model, inputs_of = opened
    runs = [
        score_candidates(model, inputs_of, LISTS, Accelerator(cpu=True), TokenBudget(tokens))
        for tokens in (1, 200, 100_000)
    ]
    for found in LISTS:
        assert list(runs[0][found.query_id]) == list(found.doc_ids)
        with torch.no_grad():
            alone = [scores_of(model, inputs_of([(found.query_id, doc_id)])).item() for doc_id in found.doc_ids]
        for run in runs:
            assert list(run[found.query_id].values()) == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 300, 10**6])
def test_every_pair_is_in_one_chunk_within_the_tokens_the_longest_passages_first(opened, tokens):
    _, inputs_of = opened
    pairs = pairs_of(LISTS)
    chunks = chunk_by_length(pairs, inputs_of, tokens)
    longest, totals = (dict(zip(pairs, sizes.tolist(), strict=True)) for sizes in inputs_of.sizes(pairs))
    taken = [pair for chunk in chunks for pair in chunk]
    assert taken == sorted(pairs, key=lambda pair: (-longest[pair], -totals[pair]))
    filled = [sum(totals[pair] for pair in chunk) for chunk in chunks]
    assert all(len(chunk) == 1 or sum_of <= tokens for chunk, sum_of in zip(chunks, filled, strict=True))
    assert all(sum_of + totals[chunk[0]] > tokens for sum_of, chunk in zip(filled, chunks[1:], strict=False))
    assert chunk_by_length([], inputs_of, tokens) == []


def test_a_score_that_is_not_finite_is_an_error(opened):
    model, inputs_of = opened
    torch.nn.init.constant_(model.head.bias, float("nan"))
    with pytest.raises(UserError, match=r"query q0, document d0-0: the model's score is nan"):
        score_candidates(model, inputs_of, LISTS, Accelerator(cpu=True), TokenBudget(1000))


def score_twice_with_little_memory_in_one_process(model, inputs_of):
    """The runs and the budgets of this process; the other one runs out of memory with more than 300 tokens."""
    forward = model.forward

    def limited(inputs):
        if PartialState().process_index == 1 and len(inputs.input_ids) > 300:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return forward(inputs)

    model.forward = limited
    accelerator, budget = Accelerator(cpu=True), TokenBudget(1000)
    runs = [score_candidates(model, inputs_of, LISTS, accelerator, budget) for _ in range(2)]
    return runs, budget.tokens


def test_no_document_is_lost_when_one_process_runs_out_of_memory(opened, tmp_path):
    model, inputs_of = opened
    alone = score_candidates(model, inputs_of, LISTS, Accelerator(cpu=True), TokenBudget(1000))
    results = in_two_processes(tmp_path, score_twice_with_little_memory_in_one_process, model, inputs_of)
    for runs, tokens in results:
        assert tokens == 250
        for run in runs:
            assert {query_id: list(found) for query_id, found in run.items()} == {
                query_id: list(found) for query_id, found in alone.items()
            }
            for query_id, found in run.items():
                assert found == pytest.approx(alone[query_id], abs=1e-5)
    assert "another process ran out of memory: 250 tokens" in (tmp_path / "log0").read_text()
