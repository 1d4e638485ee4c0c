"""The cross-encoder: scores packed (query, passage) pairs and pools them into document scores."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from rerank.batches.batch import Packed, restore_order
from rerank.config import EncoderSettings
from rerank.data.splitting import EVEN
from rerank.models.encoder import LoadedEncoder
from rerank.models.encoder_inputs import bucket_by_length, device_offsets, packed, padded
from rerank.models.gpu import FARTHEST, SMALL, Autocast, has_flash_attention
from rerank.models.heads import Float32Linear
from rerank.models.hub import Recorded
from rerank.models.packing import (
    PROBE_LENGTHS,
    TOLERANCE,
    evaluating,
    keep_first_tokens,
    layers_of,
    probe_passages,
    relative_difference,
    set_packed_attention,
)
from rerank.models.pooling import POOLINGS
from rerank.models.products import full_float32

COMPARED = "padded, to be compared with packed passages"
"""The `padding_reason` of a model while it is compared."""

ROUNDINGS = 4
"""Allowed error of packed passages over that of padded ones, both relative to float32, in the precision of a run."""

LARGEST_ROUNDING = 0.2
"""Most error that rounding explains, relative to the largest value; attention to other passages gives more."""


class CrossEncoder(nn.Module):
    """A Hugging Face encoder with a linear layer on its [CLS] vector, or a cross-encoder with its own head.

    The paper averages a document's [CLS] vectors and applies the linear layer to the mean. This equals the mean of the
    passages' scores, as the layer is linear; every pooling here works on passage scores.

    max_length: tokens of a passage.
    max_doc_tokens: tokens kept of a document.
    cut: how a document is cut into passages.
    template: the text that query and passage are put into; "" for the tokenizer's own format of a pair.
    first_stage_weight: weight of the first-stage score; callers add it.
    padding_reason: why passages are padded; "" if they are packed.
    own_attention: transformers' name of the attention that padded passages have.
    in_float32: whether the model computes in float32 whatever the precision of the run.
    compiled: whether the layers are compiled (see `rerank.models.compiled`).
    """

    def __init__(self, loaded: LoadedEncoder, head: Float32Linear | None, pooling: str) -> None:
        super().__init__()
        self.encoder = loaded.model
        self.head = head
        self.pooling = pooling
        self.template = ""
        self.first_stage_weight = 0.0
        self.max_doc_tokens, self.cut = EncoderSettings.max_doc_tokens, EVEN
        self.tokenizer = loaded.tokenizer
        self.pad_id: int = loaded.tokenizer.pad_token_id
        self.first_position = loaded.first_position
        self.max_length = loaded.max_length
        self.last_token = loaded.last_token
        self.flash = True
        self.in_float32 = self.compiled = False
        self.own_attention: str = self.encoder.config._attn_implementation
        self.padding_reason = self._pack()

    def probe(self, lengths: Sequence[int] = PROBE_LENGTHS) -> Packed:
        """A few passages, on the device of the model."""
        vocab_size = self.encoder.config.get_text_config().vocab_size
        passages = probe_passages(self.pad_id, vocab_size, self.max_length, lengths)
        return passages.to(next(self.parameters()).device)

    @torch.no_grad()
    def _pack(self) -> str:
        """Makes the encoder take packed passages; returns "", or the reason why it cannot.

        The last layer then returns only the first token of each passage, (passages, 1, hidden), unless the head reads
        the last token. A check compares vectors; for an encoder with its own head, which may read other tokens, scores.
        """
        encoder, inputs = self.encoder, self.probe()
        own_head = self.head is None and self.last_token is None

        def values(is_packed: bool) -> Tensor:
            self.padding_reason = "" if is_packed else COMPARED
            found: Tensor = (self if own_head else self.vectors)(inputs)
            return found

        layers = layers_of(encoder)
        if self.last_token is None and not layers:
            return f"{type(encoder).__name__} has no list of its layers"
        hooks = keep_first_tokens(layers[-1]) if self.last_token is None else []
        body = encoder if self.last_token is None else encoder.base_model
        with evaluating(encoder):
            reason = set_packed_attention(encoder, body.forward, values)
        for hook in hooks if reason else ():
            hook.remove()
        return reason

    def place(self, device: torch.device, autocast: Autocast, chosen: bool = False) -> list[str]:
        """Moves the model to a device, and checks its attention and its precision there.

        On a CPU, if `auto` chose the precision (`chosen`), a model computes in float32 if it is SMALL or if rounding
        changes its values too much. On a GPU, packed passages are compared with padded ones in the precision of
        `autocast`: first by FlashAttention, where it runs, then by SDPA in groups of passages. If both differ,
        passages are padded. Returns a line for each rejected attempt.
        """
        self.to(device)
        self.in_float32 = False
        if device.type == "cpu":
            return self._place_on_cpu(autocast, chosen)
        lines: list[str] = []
        if self.is_padded:
            return lines
        if has_flash_attention(device):
            self.flash = True
            if not (reason := self._packing_error(autocast)):
                return lines
            lines.append(f"FlashAttention is not used on {device}: {reason}")
        self.flash = False
        if reason := self._packing_error(autocast):
            self.padding_reason = f"packed passages cannot be used on {device}: {reason}"
            lines.append(self.padding_reason)
            self.encoder.set_attn_implementation(self.own_attention)  # which has the dropout that packing leaves out
        return lines

    def _place_on_cpu(self, autocast: Autocast, chosen: bool) -> list[str]:
        with autocast():
            in_half = torch.is_autocast_enabled("cpu")
        if not (in_half and chosen):
            return []
        if sum(parameter.numel() for parameter in self.parameters()) < SMALL:
            self.in_float32 = True
        elif (difference := self._rounding_error(autocast)) > FARTHEST:
            self.in_float32 = True
            return [f"computed in float32: bf16 changes the values of this model by {difference:.1g} of the largest"]
        return []

    def _packing_error(self, autocast: Autocast) -> str:
        """Why packed passages cannot be used on the model's device in this precision; "" if they can.

        The vectors of four passages are computed packed and padded in the precision of the run, and padded in float32.
        Packed vectors may be ROUNDINGS times as far from float32 as padded ones. The backward pass must also run.
        """
        # The lengths make SDPA on a GPU pad two passages together; the longest is first, as in groups.
        inputs, reason = self.probe((160, 130, 33, 7)), self.padding_reason
        try:
            with evaluating(self.encoder):
                self.padding_reason = COMPARED
                with full_float32():
                    exact = self.vectors(inputs)
                with autocast():
                    padded = self.vectors(inputs)
                    self.padding_reason = ""
                    packed = self.vectors(inputs)
                    first = next(weight for weight in layers_of(self.encoder)[0].parameters() if weight.requires_grad)
                    torch.autograd.grad(packed.float().sum(), first, allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as error:  # a kernel refuses its input, or an older torch an argument
            return str(error).strip().partition("\n")[0]
        finally:
            self.padding_reason = reason
        difference = relative_difference(exact, packed)
        allowed = min(LARGEST_ROUNDING, max(TOLERANCE, ROUNDINGS * relative_difference(exact, padded)))
        if not difference <= allowed:
            return f"its values differ from float32's by {difference:.1g}; rounding explains {allowed:.1g}"
        return ""

    @torch.no_grad()
    def _rounding_error(self, autocast: Autocast) -> float:
        """The largest difference of vectors in this precision from float32, relative to the largest value."""
        inputs = self.probe()
        with evaluating(self.encoder):
            exact = self.vectors(inputs)
            with autocast():
                return relative_difference(exact, self.vectors(inputs))

    @property
    def settings(self) -> Recorded:
        """The settings that `save_cross_encoder` recorded in the config; empty for other models."""
        settings: Recorded = {**getattr(self.encoder.config, "rerank", {})}
        return settings

    @property
    def is_padded(self) -> bool:
        """Whether a forward pass pads its passages in groups of similar length, instead of packing them."""
        return bool(self.padding_reason)

    def forward(self, inputs: Packed) -> Tensor:
        """(passages,) float32 scores, in one pass through the encoder."""
        with torch.autocast(inputs.input_ids.device.type, enabled=False) if self.in_float32 else nullcontext():
            return self._in_groups(self._group_scores, inputs)

    def vectors(self, inputs: Packed) -> Tensor:
        """(passages, hidden) vectors of the tokens that the head reads."""
        return self._in_groups(self._group_vectors, inputs)

    def _in_groups(self, compute: Callable[[Packed], Tensor], inputs: Packed) -> Tensor:
        if not self.is_padded:
            return compute(inputs)
        groups = bucket_by_length(inputs.lengths())
        return restore_order(torch.cat([compute(inputs.take(group)) for group in groups]), groups)

    def _group_scores(self, inputs: Packed) -> Tensor:
        if self.last_token is None:
            return self.row_scores(**self._arguments(inputs))
        scores: Tensor = self.last_token(self._group_vectors(inputs)).float()
        return scores[:, 0]

    def _group_vectors(self, inputs: Packed) -> Tensor:
        arguments = self._arguments(inputs)
        if self.last_token is None:
            vectors: Tensor = self.encoder.base_model(**arguments).last_hidden_state[:, 0]
            return vectors
        hidden: Tensor = self.encoder.base_model(**arguments, use_cache=False).last_hidden_state
        offsets = device_offsets(inputs)
        if not self.is_padded:
            return hidden[0, offsets[1:] - 1]
        return hidden[torch.arange(len(hidden), device=hidden.device), offsets.diff() - 1]

    def _arguments(self, inputs: Packed) -> dict[str, Any]:
        """The keyword arguments of the encoder."""
        return padded(inputs, self.pad_id) if self.is_padded else packed(inputs, self.first_position, self.flash)

    def row_scores(self, **arguments: Any) -> Tensor:
        """(rows,) float32 scores of the first token of each row; the arguments are those of the encoder."""
        out = self.encoder(**arguments)
        scores: Tensor = out.logits.float() if self.head is None else self.head(out.last_hidden_state[:, 0])
        return scores[:, 0]

    @property
    def output_bias(self) -> nn.Parameter | None:
        """The bias of the output layer, a constant that is added to the score of every passage."""
        layers = [layer for layer in self.modules() if isinstance(layer, nn.Linear) and layer.out_features == 1]
        return layers[-1].bias if layers else None

    def pool(self, passage_scores: Tensor, documents: Tensor) -> Tensor:
        """(documents,) scores from (passages,) scores and the number of each passage's document, ascending from 0."""
        return POOLINGS[self.pooling](passage_scores, documents)

    def checkpoint_activations(self) -> None:
        """Makes the backward pass recompute activations; raises ValueError if the architecture does not support it."""
        renamed = "activation_checkpointing_enable"  # transformers 5.0 has the older name only
        enable = getattr(self.encoder, renamed, None) or self.encoder.gradient_checkpointing_enable
        enable({"use_reentrant": False})

    def parameter_groups(self, lr: float, head_lr: float) -> list[dict[str, object]]:
        """The trainable parameters: the encoder's with `lr`, the head's with `head_lr`."""
        body = self.encoder if self.head is not None else self.encoder.base_model
        in_body = {id(parameter) for parameter in body.parameters()}
        trainable = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trainable if id(p) in in_body], "lr": lr},
            {"params": [p for p in trainable if id(p) not in in_body], "lr": head_lr},
        ]
