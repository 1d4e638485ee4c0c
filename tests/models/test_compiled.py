"""Compiled layers give the gradients of the layers as they are, with one graph for any number of tokens.

On a CPU the attention of any lengths is a stand-in, because the kernel needs a GPU.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

from rerank.batches.batch import make_batch
from rerank.losses import smoothi
from rerank.models import packed_attention
from rerank.models.compiled import compile_if_useful, compile_layers, compile_parts
from rerank.models.dropout import seed_dropout, token_keys
from rerank.models.memory import TokenBudget
from rerank.training.gradients import accumulate_gradient
from tests.models.tiny import open_tiny
from tests.support.small_world import make_lists, scores_of
from tests.support.tiny_decoders import make_decoder
from tests.support.tiny_encoders import make_encoder

CPU = torch.device("cpu")
QUERIES, TEXTS, LISTS = make_lists(queries=2, documents=4, longest=40)
KINDS = {"bert": make_encoder, "qwen3": make_decoder}
EVERYTHING = 10**6


@pytest.fixture(autouse=True)
def one_kernel(monkeypatch):
    """Attention within passages of any lengths, by their offsets alone."""

    def attend_any_lengths(queries, keys, values, passages, scaling, window):
        places = torch.arange(len(queries), dtype=torch.int32)
        owners = torch.bucketize(places, passages.offsets[1:], right=True)
        seen = owners[:, None] == owners
        apart = places[:, None] - places
        for side, distance in zip(window, (apart, -apart), strict=True):
            seen = seen if side < 0 else seen & (distance <= side)
        grids = (x.to(values.dtype).transpose(0, 1)[None] for x in (queries, keys, values))
        return F.scaled_dot_product_attention(*grids, attn_mask=seen, scale=scaling)[0].transpose(0, 1)

    monkeypatch.setattr(packed_attention, "_fits_flash", lambda query, value: True)
    monkeypatch.setattr(packed_attention, "_attend_any_lengths", attend_any_lengths)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def autocast(dtype=None):
    return torch.autocast("cpu", dtype, enabled=dtype is not None)


def opened(kind, tmp_path, rank=0, layers=2):
    sizes = {"max_positions": 48, "num_hidden_layers": layers}
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, kind, KINDS[kind], QUERIES, rank=rank, larger=True, **sizes)
    batch = make_batch(LISTS, inputs_of)
    seeds = torch.arange(int(batch.mask.sum())) + 2**33
    return model.train(), batch._replace(inputs=batch.inputs.seeded(seeds))


def gradient(model, batch, tokens=EVERYTHING, dtype=None):
    accelerator = SimpleNamespace(device=CPU, autocast=lambda: autocast(dtype))
    accumulate_gradient(model, batch, smoothi, 0.5, accelerator, TokenBudget(tokens))
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def compiled(model, batch, backend="eager", dtype=None):
    """Compiles the model, which has to work, and returns the counter of graphs."""
    counter = CompileCounterWithBackend(backend)
    types = batch.inputs.token_types is not None
    assert compile_layers(model, types, CPU, lambda: autocast(dtype), counter) == ""
    assert model.compiled
    return counter


def assert_same(found, expected, tolerance=1e-5):
    assert expected.norm() > 1e-3
    assert (found - expected).norm() < tolerance * expected.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_share_a_graph_for_any_number_of_tokens_and_for_every_model(kind, tmp_path):
    model, batch = opened(kind, tmp_path)
    expected = gradient(model, batch)
    counter = compiled(model, batch)
    for tokens in (EVERYTHING, 100):  # the second scores passages without a graph, too
        assert_same(gradient(model, batch, tokens), expected)
    model.eval()
    with torch.inference_mode():
        scores = scores_of(model, batch.inputs)
    graphs = counter.frame_count
    assert graphs <= 9  # layers, the last one, the embeddings: with gradients, without, in evaluation
    for tokens in (150, 200, EVERYTHING):
        assert_same(gradient(model.train(), batch, tokens), expected)
    with torch.inference_mode():
        assert len(scores_of(model.eval(), batch.inputs)) == len(scores)
    another, _ = opened(kind, tmp_path)
    compile_parts(another, counter)
    assert_same(gradient(another.train(), batch), expected)
    assert counter.frame_count == graphs


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_low_rank_matrices_and_checkpointed_activations_may_be_compiled(dtype, tmp_path):
    """The matrices in float32; the activations in half precision, which is rounded alike."""
    model, batch = opened("bert", tmp_path, rank=0 if dtype else 2, layers=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.01)
    expected = gradient(model, batch, dtype=dtype)
    if dtype:
        model.checkpoint_activations()
    compiled(model, batch, "aot_eager", dtype)
    assert_same(gradient(model, batch, dtype=dtype), expected, 0.01 if dtype else 1e-5)


@pytest.mark.skipif(" " in torch.__file__, reason="inductor does not quote the folder of torch for g++")
def test_masks_of_dropout_are_the_same_bits_from_one_graph():
    layers = torch.nn.ModuleList([torch.nn.Dropout(0.3) for _ in range(3)])
    keys = seed_dropout(layers)
    counter = CompileCounterWithBackend("inductor")
    together = torch.compile(lambda layer, x: layer(x), dynamic=True, fullgraph=True, backend=counter)
    for tokens in (5, 37):
        positions = torch.arange(tokens)[None]
        keys.tokens = token_keys(torch.full_like(positions, 2**40 + tokens), positions)
        keys.firsts = keys.tokens[0, :1]
        x = torch.randn(1, tokens, 48, generator=torch.Generator().manual_seed(tokens))
        for layer in layers:
            assert torch.equal(together(layer, x), layer(x))
    assert counter.frame_count == 1


def no_compiler(graph, inputs):
    raise RuntimeError("Failed to find C compiler\nPlease set CC")


def halves(graph, inputs):
    return lambda *args: tuple(x / 2 for x in graph(*args))


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (no_compiler, "Failed to find C compiler Please set CC"),
        (halves, "its gradients differ"),
        ("eager", "Unsupported"),
    ],
)
def test_what_cannot_be_compiled_is_named_and_the_layers_stay_as_they_were(backend, reason, tmp_path, monkeypatch):
    """Kernels that compute something else, and attention that takes a call for each length, too."""
    model, batch = opened("bert", tmp_path, layers=1)
    if backend == "eager":
        monkeypatch.setattr(packed_attention, "_fits_flash", lambda query, value: False)
    expected = gradient(model, batch)
    assert reason in compile_layers(model, True, CPU, autocast, backend)
    assert not model.compiled
    assert not any("forward" in vars(module) for module in model.modules())
    assert torch.equal(gradient(model, batch), expected)


def test_a_cpu_compiles_nothing(tmp_path):
    model, _ = opened("bert", tmp_path)
    assert compile_if_useful(model, True, CPU, lambda: autocast(torch.bfloat16)) == ""
    assert not any("forward" in vars(module) for module in model.modules())
