"""The compiled attention against equations in float64, and torch's in its place where there is no compiler."""

import shutil
import sys
from itertools import pairwise

import pytest
import torch

from rerank.models import packed_attention
from rerank.models.cpu import attention, library
from rerank.models.cpu.attention import attend_compiled, fits, missing_kernel
from rerank.models.encoder_inputs import Passages
from rerank.models.packed_attention import attend
from tests.models.tiny import assert_same_gradients, open_tiny, scores_and_gradients
from tests.support.small_world import make_texts

HEADS = 3
LENGTHS = [70, 33, 1, 24, 7]
STARTS = torch.tensor([0, 70, 103, 104, 128, 135], dtype=torch.int32)
TYPES = [torch.float32, torch.bfloat16]
BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 0.01}
"""The largest difference from float64, relative to the largest value."""

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture(params=TYPES, ids=["float32", "bf16"])
def dtype(request):
    reason = missing_kernel(request.param)
    if "need AVX512_BF16" in reason:
        pytest.skip(reason)
    assert not reason
    return request.param


def made(size, dtype):
    """Queries, keys and values as one linear layer leaves them, and a gradient that is not contiguous."""
    torch.manual_seed(size)
    tokens = sum(LENGTHS)
    three = torch.randn(tokens, 3, HEADS, size).to(dtype).requires_grad_()
    return three, torch.randn(HEADS, tokens, size).to(dtype).transpose(0, 1)


def by_equations(three, scale, window=(-1, -1)):
    """softmax(scale · q kᵀ) v of each passage, in float64."""
    parts = [three[first:stop].double().unbind(1) for first, stop in pairwise(STARTS)]
    outs = []
    for query, key, value in parts:
        apart = torch.arange(len(query))[:, None] - torch.arange(len(query))
        before, after = (len(query) if side < 0 else side for side in window)
        scores = torch.einsum("ihd,jhd->hij", query, key) * scale
        weights = scores.where((apart <= before) & (-apart <= after), -torch.inf).softmax(-1)
        outs.append(torch.einsum("hij,jhd->ihd", weights, value))
    return torch.cat(outs)


def assert_close(found, expected, dtype):
    assert found.dtype == dtype
    assert (found.double() - expected).abs().max() <= BOUNDS[dtype] * expected.abs().max()


@needs_compiler
@pytest.mark.parametrize("size", [32, 64, 96])
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (3, 0), (20, 20), (0, 40)])
def test_values_and_gradients_are_those_of_the_equations(size, window, dtype):
    three, direction = made(size, dtype)
    found, expected = (
        attend_compiled(*three.unbind(1), STARTS, STARTS, 70, 0.4, window),
        by_equations(three, 0.4, window),
    )
    assert_close(found, expected, dtype)
    theirs = torch.autograd.grad(expected, three, direction.double())[0]
    for ours, exact in zip(torch.autograd.grad(found, three, direction)[0].unbind(1), theirs.unbind(1), strict=True):
        assert_close(ours, exact.to(torch.float64), dtype)


@needs_compiler
def test_a_value_depends_on_its_passage_alone_and_not_on_threads(dtype):
    three, direction = made(32, dtype)
    alone, alone_direction = three[103:128].detach().requires_grad_(), direction[103:128]
    starts = torch.tensor([0, 1, 25], dtype=torch.int32)
    found = attend_compiled(*three.unbind(1), STARTS, STARTS, 70, 0.2)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        other = attend_compiled(*alone.unbind(1), starts, starts, 24, 0.2)
        others = torch.autograd.grad(other, alone, alone_direction)[0]
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(other, found[103:128])
    assert torch.equal(others, torch.autograd.grad(found, three, direction)[0][103:128])


@needs_compiler
def test_queries_of_some_tokens_have_the_values_of_these(dtype):
    three, direction = made(32, dtype)
    query, key, value = three.unbind(1)
    firsts, ones = STARTS[:-1], torch.arange(len(STARTS), dtype=torch.int32)
    found = attend_compiled(query[firsts], key, value, ones, STARTS, 70, 0.2)
    whole = attend_compiled(query, key, value, STARTS, STARTS, 70, 0.2)
    assert torch.equal(found, whole[firsts])
    expected = torch.zeros_like(direction).index_copy(0, firsts.long(), direction[firsts])
    for one, other in zip(
        torch.autograd.grad(found, three, direction[firsts])[0].unbind(1),
        torch.autograd.grad(whole, three, expected)[0].unbind(1),
        strict=True,
    ):
        assert_close(one, other.double(), dtype)


@needs_compiler
def test_scores_that_exponentials_cannot_hold_are_those_of_the_equations(dtype):
    three, _ = made(32, dtype)
    with torch.no_grad():
        three[:, :2] *= 30  # differences of thousands
    assert_close(attend_compiled(*three.unbind(1), STARTS, STARTS, 70, 1.0), by_equations(three, 1.0), dtype)
    with torch.no_grad():
        three[40, 0] = float("nan")
    found = attend_compiled(*three.unbind(1), STARTS, STARTS, 70, 1.0)
    assert found.isnan().any(2).any(1).nonzero().flatten().tolist() == [40]


@needs_compiler
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_model_has_the_scores_and_gradients_that_it_has_with_sdpa(kind, tmp_path, monkeypatch):
    texts = make_texts({"short": 3, "one": 20, "two": 60, "many": 600})
    model, _, inputs_of = open_tiny(tmp_path, texts, kind, num_attention_heads=1, larger=True)
    inputs, calls = inputs_of([("q", doc_id) for doc_id in texts]), []

    def counted(queries, *others):
        calls.append(len(queries))
        return attend_compiled(queries, *others)

    monkeypatch.setattr(packed_attention, "attend_compiled", counted)
    scores, gradients = scores_and_gradients(model.eval(), inputs)
    tokens = len(inputs.input_ids)
    assert calls == [tokens, len(inputs.lengths()) if kind == "bert" else tokens]
    monkeypatch.setattr(packed_attention, "fits", lambda query, value: False)
    expected, expected_gradients = scores_and_gradients(model, inputs)
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)
    assert_same_gradients(gradients, expected_gradients)


def test_it_takes_heads_of_some_sizes_on_a_cpu_in_two_types(monkeypatch):
    monkeypatch.setattr(attention, "missing_kernel", lambda dtype: "")

    def taken(size=32, dtype=torch.float32, device="cpu", query_size=None):
        value = torch.empty(5, size, dtype=dtype, device=device)
        return fits(torch.empty(5, query_size or size, dtype=dtype, device=device), value)

    assert (taken(), taken(64), taken(32, torch.bfloat16)) == (True, True, True)
    others = taken(48), taken(64, query_size=32), taken(dtype=torch.float64), taken(device="meta")
    assert others == (False, False, False, False)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A machine where nothing is compiled yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for function in (missing_kernel, library.load):
        function.cache_clear()
    yield tmp_path
    for function in (missing_kernel, library.load):
        function.cache_clear()


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-cc -x", "there is no C compiler no-such-cc; install one"),
        (f"{sys.executable} -c 'raise SystemExit(1)'", "cannot compile it"),
    ],
)
def test_without_a_compiler_torch_computes_it_and_a_line_says_so_once(compiler, reason, elsewhere, monkeypatch, caplog):
    monkeypatch.setenv("CC", compiler)
    query, key, value = torch.randn(3, 1, 2, 9, 32, generator=torch.Generator().manual_seed(0))
    passages = Passages([5, 4], torch.tensor([0, 5, 9], dtype=torch.int32))
    with caplog.at_level("INFO", "rerank"):
        found = [
            attend(torch.nn.Module(), query, key, value, None, passages=passages, first_only=True)[0] for _ in range(2)
        ]
    assert [line for line in caplog.messages if reason in line] == caplog.messages
    assert len(caplog.messages) == 1
    for first, stop in ((0, 5), (5, 9)):
        part = (x[0, :, first:stop] for x in (query, key, value))
        expected = torch.nn.functional.scaled_dot_product_attention(*part).transpose(0, 1)
        torch.testing.assert_close(found[0][0, first:stop], expected)
    assert not [*elsewhere.rglob("*.so")]


@needs_compiler
def test_it_is_compiled_and_compared_once_for_a_processor(elsewhere, monkeypatch):
    assert missing_kernel(torch.float32) == ""
    (made_once,) = (elsewhere / "rerank" / "kernels").glob("*.so")
    monkeypatch.setattr(attention, "_difference", lambda dtype: 1.0)
    for function in (missing_kernel, library.load):
        function.cache_clear()
    assert missing_kernel(torch.float32) == ""
    library.load.cache_clear()
    monkeypatch.setenv("CC", "no-such-cc")
    assert library.load("attention", torch.float32)
    monkeypatch.setattr(library, "processor", lambda: "another")
    library.load.cache_clear()
    missing_kernel.cache_clear()
    assert "there is no C compiler" in missing_kernel(torch.float32)
    assert [*made_once.parent.glob("*.so")] == [made_once]


@pytest.mark.parametrize(("flags", "missing"), [("avx2", True), ("avx512_bf16 amx_bf16", True)])
def test_bf16_is_for_processors_with_its_instructions_and_without_amx(flags, missing, monkeypatch):
    monkeypatch.setattr(attention, "processor", lambda: f"flags\t: fpu {flags}")
    assert bool(missing_kernel.__wrapped__(torch.bfloat16)) == missing


@needs_compiler
def test_a_kernel_with_other_values_is_not_taken(elsewhere, monkeypatch):
    monkeypatch.setattr(attention, "AGREES", {torch.float32: 1e-12})
    for _ in range(2):
        missing_kernel.cache_clear()
        assert "its values differ from torch's by" in missing_kernel(torch.float32)
