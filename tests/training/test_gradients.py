"""A step's gradient is exact whatever fits into memory at a time, with dropout, mixed precision and checkpointing."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from rerank.batches.batch import make_batch, make_microbatches, restore_order
from rerank.losses import hinge, smoothi
from rerank.models.checkpoints import open_cross_encoder
from rerank.models.memory import TokenBudget
from rerank.training.gradients import accumulate_gradient
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS, make_inputs, make_lists, scores_of
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

QUERIES, TEXTS, LISTS = make_lists(queries=3, documents=8, longest=90)
PLAIN = SimpleNamespace(device=torch.device("cpu"), autocast=lambda: torch.autocast("cpu", enabled=False))
BF16 = SimpleNamespace(device=torch.device("cpu"), autocast=lambda: torch.autocast("cpu", torch.bfloat16))
EVERYTHING = 10**6


def opened(tmp_path, kind="bert", make=make_encoder, pooling="mean"):
    folder = tmp_path / kind
    if not folder.is_dir():
        make(kind, folder, WORDS, max_positions=48)
    model = open_cross_encoder(str(folder), pooling, 0)
    with torch.no_grad():  # fresh weights are so small that the scores hardly differ
        for parameter in model.parameters():
            parameter.mul_(5 if parameter.dim() > 1 else 1)
    inputs_of = make_inputs(tmp_path / "tokens", model.tokenizer, model.max_length, QUERIES, TEXTS)
    return model.train(), make_batch(LISTS, inputs_of)


def gradients_of(model):
    """A copy of the gradient of each parameter that has one."""
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def gradient(model, batch, tokens, loss=smoothi, accelerator=PLAIN):
    torch.manual_seed(3)
    measured = accumulate_gradient(model, batch, loss, 1 / len(LISTS), accelerator, TokenBudget(tokens))
    return measured, gradients_of(model)


def gradient_in_one_graph(model, batch, tokens, loss=smoothi, accelerator=PLAIN):
    """Of a list whose passages go through the model in micro-batches of `tokens`, with the same dropout."""
    model.zero_grad()
    torch.manual_seed(3)
    groups = make_microbatches(batch.inputs.lengths(), tokens, model.is_padded)
    parts = []
    for group in groups:
        with accelerator.autocast():
            parts.append(model(batch.inputs.take(group)))
    flat = model.pool(restore_order(torch.cat(parts), groups), batch.inputs.documents)
    if batch.first_scores is not None:
        flat = flat + model.first_stage_weight * batch.first_scores
    (loss(batch.grid(flat), batch.labels, batch.mask).sum() / len(LISTS)).backward()
    return len(groups), gradients_of(model)


def first_list(batch):
    """The batch of one list, which is long for the budgets of the tests."""
    passages = (batch.inputs.documents < 8).nonzero()[:, 0].tolist()
    return batch._replace(
        inputs=batch.inputs.take(passages),
        labels=batch.labels[:1],
        mask=batch.mask[:1],
        query_ids=batch.query_ids[:1],
        first_scores=None if batch.first_scores is None else batch.first_scores[:8],
    )


def assert_same(found, expected, tolerance=1e-5):
    """The difference of the gradients of all parameters is that small, over their size."""
    one, other = (torch.cat([gradient.flatten() for gradient in all_of]) for all_of in (found, expected))
    assert other.norm() > 1e-3
    assert (one - other).norm() < tolerance * other.norm()


@pytest.mark.parametrize(
    ("loss", "pooling"), [(partial(smoothi, metric="ap", alpha=5.0), "mean"), (hinge, "max")], ids=["ap", "hinge"]
)
def test_it_is_the_gradient_of_the_mean_loss_of_all_lists_in_one_graph(loss, pooling, tmp_path):
    model, batch = opened(tmp_path, pooling=pooling)
    model.eval()
    loss(batch.grid(scores_of(model, batch.inputs)), batch.labels, batch.mask).mean().backward()
    expected = gradients_of(model)
    for tokens in (1, 700, EVERYTHING):
        assert_same(gradient(model, batch, tokens, loss)[1], expected)


def test_the_gradient_of_a_long_list_is_exact_in_float64_with_dropout(tmp_path):
    """Both passes of a micro-batch drop the same values; another seed drops others."""
    model, batch = opened(tmp_path)
    model, batch = model.double(), first_list(batch)
    found = gradient(model, batch, 100)[1]
    parts, expected = gradient_in_one_graph(model, batch, 100)
    assert parts > 3
    assert found[0].dtype == torch.float64
    assert_same(found, expected, tolerance=1e-12)
    torch.manual_seed(4)
    accumulate_gradient(model, batch, smoothi, 1 / len(LISTS), PLAIN, TokenBudget(100))
    with pytest.raises(AssertionError):
        assert_same(gradients_of(model), expected, tolerance=1e-3)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("bert", make_encoder),
        ("deberta-v2", make_encoder),
        ("modernbert", make_encoder),
        ("roberta", make_cross_encoder),
    ],
)
def test_gradient_caching_is_exact_with_every_kind_of_encoder(make, kind, tmp_path):
    """Of token types, padding, windows, and heads of their own."""
    model, batch = opened(tmp_path, kind, make)
    one = first_list(batch)
    parts, expected = gradient_in_one_graph(model, one, 100)
    assert parts > 3
    assert_same(gradient(model, one, 100)[1], expected)
    model.eval()
    measured, expected = gradient(model, batch, EVERYTHING)
    cached_measured, cached = gradient(model, batch, 200)
    assert_same(cached, expected)
    torch.testing.assert_close(cached_measured, measured, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["bert", "deberta-v2"])
def test_gradient_checkpointing_changes_nothing(kind, tmp_path):
    """DeBERTa takes its passages in groups of similar length, whose layers are all recomputed at the end."""
    model, batch = opened(tmp_path, kind)
    expected = {tokens: gradient(model, batch, tokens)[1] for tokens in (200, EVERYTHING)}
    model.checkpoint_activations()
    for tokens, one in expected.items():
        assert_same(gradient(model, batch, tokens)[1], one)


def test_bf16_is_rounded_alike(tmp_path):
    model, batch = opened(tmp_path)
    one = first_list(batch)
    parts, expected = gradient_in_one_graph(model, one, 100, accelerator=BF16)
    assert parts > 3
    assert_same(gradient(model, one, 100, accelerator=BF16)[1], expected, tolerance=0.03)


def test_each_list_is_measured(tmp_path):
    model, batch = opened(tmp_path)
    model.eval()
    with torch.no_grad():
        values = smoothi(batch.grid(scores_of(model, batch.inputs)), batch.labels, batch.mask)
    for tokens in (200, EVERYTHING):
        measured, _ = gradient(model, batch, tokens)
        torch.testing.assert_close(measured[:, 0].float(), values, atol=1e-5, rtol=0)
        assert ((measured[:, 1] > 0) & (measured[:, 1] <= 1)).all()


class Saved:
    """A tensor that a graph keeps; counts the bytes of those alive."""

    alive = most = 0

    def __init__(self, tensor):
        self.tensor = tensor
        Saved.alive += tensor.nbytes
        Saved.most = max(Saved.most, Saved.alive)

    def __del__(self):
        Saved.alive -= self.tensor.nbytes


def peak(work):
    Saved.alive = Saved.most = 0
    with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
        work()
    return Saved.most


def test_a_long_list_needs_the_memory_of_one_micro_batch(tmp_path):
    queries, texts, lists = make_lists(queries=1, documents=60, longest=200)
    make_encoder("bert", tmp_path / "bert", WORDS, max_positions=48)
    model = open_cross_encoder(str(tmp_path / "bert"), "mean", 0)
    inputs_of = make_inputs(tmp_path / "tokens", model.tokenizer, model.max_length, queries, texts)
    batch = make_batch(lists, inputs_of)
    model.train()
    some = range(600 // max(batch.inputs.lengths()))
    one = peak(lambda: model(batch.inputs.take(list(some))).sum().backward())
    whole = peak(lambda: accumulate_gradient(model, batch, smoothi, 1.0, PLAIN, TokenBudget(EVERYTHING)))
    cached = peak(lambda: accumulate_gradient(model, batch, smoothi, 1.0, PLAIN, TokenBudget(600)))
    assert one > 0
    assert whole > 5 * one
    assert cached < 1.5 * one


def test_out_of_memory_in_a_step_halves_the_budget_and_repeats_the_step(tmp_path, monkeypatch):
    model, batch = opened(tmp_path)
    expected = gradient(model, batch, 250)[1]
    plain = type(model).forward

    def forward(self, inputs):
        if torch.is_grad_enabled() and len(inputs.input_ids) > 300:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return plain(self, inputs)

    monkeypatch.setattr(type(model), "forward", forward)
    budget = TokenBudget(4000)
    torch.manual_seed(3)
    accumulate_gradient(model, batch, smoothi, 1 / len(LISTS), PLAIN, budget)
    assert budget.tokens == 250
    assert_same(gradients_of(model), expected)


def test_a_list_whose_loss_does_not_fit_is_one_clear_line(tmp_path):
    def greedy(scores, labels, mask):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    model, batch = opened(tmp_path)
    with pytest.raises(UserError, match=r"query q\d: out of memory in the loss of 1 lists of 8 documents"):
        gradient(model, batch, EVERYTHING, greedy)


def test_a_loss_that_fits_beside_fewer_passages_halves_the_budget(tmp_path):
    def large(scores, labels, mask):
        if len(scores) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return smoothi(scores, labels, mask)

    model, batch = opened(tmp_path)
    budget = TokenBudget(4000)
    torch.manual_seed(3)
    accumulate_gradient(model, batch, large, 1 / len(LISTS), PLAIN, budget)
    found = gradients_of(model)
    assert budget.tokens < 4000
    assert_same(found, gradient(model, batch, budget.tokens)[1])


def test_first_stage_scores_are_added_whatever_fits_into_memory(tmp_path):
    model, batch = opened(tmp_path, pooling="max")
    first = torch.randn(int(batch.mask.sum()), generator=torch.Generator().manual_seed(0))
    batch, model.first_stage_weight = batch._replace(first_scores=first), 2.0
    model.eval()
    grid = batch.grid(scores_of(model, batch.inputs) + 2 * first)
    smoothi(grid, batch.labels, batch.mask).mean().backward()
    expected = gradients_of(model)
    for tokens in (EVERYTHING, 700, 60):
        assert_same(gradient(model, batch, tokens)[1], expected)
    model.first_stage_weight = 0.0
    with pytest.raises(AssertionError):
        assert_same(gradient(model, batch, EVERYTHING)[1], expected)
