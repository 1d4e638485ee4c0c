"""Makes the transformer of a sentence-transformers model compute packed texts, without padding."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.models.encoder import positions
from rerank.models.encoder_inputs import packed, padded
from rerank.models.gpu import (
    AUTOCAST,
    FARTHEST,
    SMALL,
    Autocast,
    Precision,
    autocast_of,
    choose_precision,
    has_flash_attention,
)
from rerank.models.packed_attention import Passages
from rerank.models.packing import PROBE_LENGTHS, probe_passages, relative_difference, set_packed_attention

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXT = {"input_ids", "attention_mask", "token_type_ids"}
"""The tensors of a batch of texts; a batch with other tensors stays padded."""

OUTPUT = "token_embeddings"


@dataclass(frozen=True, eq=False)
class PaddedTexts(Passages):
    """The texts of a batch as passages; `features` is the batch as sentence-transformers padded it."""

    features: dict[str, Any] = field(default_factory=dict)


def pack_texts(model: "SentenceTransformer", precision: Precision, *, trained: bool = False) -> Autocast:
    """Packs the texts of a sentence-transformers model, and chooses its precision; returns the autocast for its calls.

    A transformer stays padded if its attention cannot be replaced or if packing changes its vectors. `auto` takes half
    precision if the model is not SMALL and its vectors change only by rounding. A model to be `trained` keeps its
    weights in float32. Raises UserError for a precision that the device does not support.
    """
    device: torch.device = model.device
    chosen = choose_precision(precision, device, "precision")
    transformers = [module for module in model.modules() if _gives_tokens(module)]
    autocast, half = autocast_of(chosen, device), AUTOCAST.get(chosen)
    if not transformers or (device.type != "cpu" and half is None):
        return autocast
    exact = [_vectors(transformer) for transformer in transformers]
    for transformer in transformers:
        _pack(transformer)
    if half is None:
        return autocast
    if precision == "auto":
        with autocast():
            errors = map(relative_difference, exact, map(_vectors, transformers))
            small = sum(weight.numel() for weight in model.parameters()) < SMALL
            if small or max(errors) > FARTHEST:
                return autocast_of("float32", device)
    if trained:
        return autocast
    for transformer in transformers:
        for module in transformer.modules():
            if type(module) is nn.Linear:
                module.to(half)  # otherwise autocast casts the weights in each call
    return autocast


def _gives_tokens(module: nn.Module) -> bool:
    """Whether a module is a transformer that returns a vector for each token."""
    body, output = getattr(module, "auto_model", None), getattr(module, "module_output_name", OUTPUT)
    return isinstance(body, nn.Module) and output == OUTPUT


def _pack(transformer: Any) -> None:
    body, hooks = transformer.auto_model, []
    if getattr(body.config, "output_hidden_states", False):
        return
    pre_hook = functools.partial(_pack_features, positions(body)[1])

    def values(is_packed: bool) -> Tensor:
        if is_packed:
            hooks.append(transformer.register_forward_pre_hook(pre_hook, with_kwargs=True))
            hooks.append(transformer.register_forward_hook(_unpack_features, with_kwargs=True))
        return _vectors(transformer)

    if set_packed_attention(body, body.forward, values):
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def _vectors(transformer: Any) -> Tensor:
    """(tokens, hidden) vectors of the real tokens of a few texts."""
    body = transformer.auto_model
    vocabulary, pad_id = body.get_input_embeddings().num_embeddings, body.config.get_text_config().pad_token_id or 0
    probe = padded(probe_passages(pad_id, vocabulary, positions(body)[0], PROBE_LENGTHS).to(body.device), pad_id)
    vectors: Tensor = transformer(dict(probe))[OUTPUT]
    return vectors[probe["attention_mask"].bool()].float()


def _pack_features(
    first_position: int, module: nn.Module, args: tuple[dict[str, Any], ...], kwargs: dict[str, Any]
) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]] | None:
    """Hook before a transformer: the batch without padding, (1, tokens), and the boundaries of its texts."""
    features = args[0]
    tensors = {name for name, value in features.items() if isinstance(value, Tensor)}
    if not {"input_ids", "attention_mask"} <= tensors <= TEXT:
        return None
    ids, real, types = features["input_ids"], features["attention_mask"].bool(), features.get("token_type_ids")
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), real.sum(1).cpu().cumsum(0)])
    inputs = Packed(ids[real], None if types is None else types[real], offsets, torch.arange(len(real)))
    given = packed(inputs, first_position, has_flash_attention(ids.device))
    passages: Passages = given["passages"]
    others = {name: value for name, value in features.items() if name not in TEXT}
    rows = {name: given[name] for name in TEXT if name in given}
    texts = PaddedTexts(passages.lengths, passages.offsets, passages.longest, passages.flash, features)
    return (others | rows, *args[1:]), {**kwargs, "position_ids": given["position_ids"], "passages": texts}


def _unpack_features(
    module: nn.Module, args: object, kwargs: Mapping[str, object], output: Mapping[str, Tensor]
) -> dict[str, Any] | None:
    """Hook after a transformer: the padded batch and its vectors, (texts, longest, hidden), 0 on padding."""
    texts = kwargs.get("passages")
    if not isinstance(texts, PaddedTexts):
        return None
    real, hidden = texts.features["attention_mask"].bool(), output[OUTPUT][0]
    grid = hidden.new_zeros(*real.shape, hidden.shape[-1])
    grid[real] = hidden
    return texts.features | {OUTPUT: grid}
