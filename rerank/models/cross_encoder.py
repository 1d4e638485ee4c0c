"""The cross-encoder: packed passages of query and document -> one score a document."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.batches.microbatches import restore_order
from rerank.errors import UserError
from rerank.models.dropout import seed_dropout, token_keys
from rerank.models.encoder import Loaded, load_encoder
from rerank.models.packed_attention import Passages, pack
from rerank.models.padding import bucket_by_length, pad
from rerank.models.pooling import pool

HEAD_FILE = "head.safetensors"


class Float32Linear(nn.Linear):
    """A dense layer that works in float32 under autocast: in bf16, 150 scores would fall on a dozen values."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


class CrossEncoder(nn.Module):
    """Any Hugging Face encoder with a dense layer on its [CLS] vector, or a cross-encoder with its own head.

    The paper averages a document's [CLS] vectors and puts the dense layer on the mean. That layer is linear, so the
    score is the mean of the passages' scores; every pooling is one of passage scores here. `padding_reason` is ""
    where the encoder takes packed passages, and else says why it does not.
    """

    def __init__(self, loaded: Loaded, head: Float32Linear | None, pooling: str) -> None:
        super().__init__()
        self.encoder: Any = loaded.model
        self.head = head
        self.pooling = pooling
        self.pad_id = loaded.tokenizer.pad_token_id
        self.first_position = loaded.first_position
        self.dropout_keys = seed_dropout(self)
        self.padding_reason = pack(self.encoder, loaded.first_position, self.pad_id, loaded.max_length)

    @property
    def is_padded(self) -> bool:
        """Whether passages of a forward pass are padded to the longest of like length."""
        return bool(self.padding_reason)

    def forward(self, inputs: Packed) -> Tensor:
        """(passages,) float32 scores, in one pass through the encoder. In training the inputs have seeds."""
        if not self.is_padded:
            return self._packed_scores(inputs)
        groups = bucket_by_length(inputs.lengths())
        scores = torch.cat([self._padded_scores(inputs.take(group)) for group in groups])
        return restore_order(scores, groups)

    def _packed_scores(self, inputs: Packed) -> Tensor:
        ids = inputs.input_ids[None]
        lengths = inputs.lengths()
        offsets = inputs.offsets.to(ids.device, torch.int32)
        starts = torch.repeat_interleave(offsets[:-1], offsets.diff(), output_size=len(inputs.input_ids))
        positions = (torch.arange(len(starts), device=ids.device) - starts)[None]
        arguments = {"input_ids": ids, "position_ids": positions + self.first_position}
        if inputs.token_types is not None:
            arguments["token_type_ids"] = inputs.token_types[None]
        if inputs.seeds is not None:
            seeds = torch.repeat_interleave(inputs.seeds, offsets.diff(), output_size=len(starts))
            self.dropout_keys.tokens = token_keys(seeds[None], positions)
            self.dropout_keys.firsts = self.dropout_keys.tokens[0, offsets[:-1]]
        return self._scores(**arguments, passages=Passages(lengths, offsets))

    def _padded_scores(self, inputs: Packed) -> Tensor:
        arguments, positions = pad(inputs, self.pad_id)
        if inputs.seeds is not None:
            self.dropout_keys.tokens = token_keys(inputs.seeds[:, None].expand_as(positions), positions)
            self.dropout_keys.firsts = self.dropout_keys.tokens[:, 0]
            torch.manual_seed(int(inputs.seeds[0]))  # for attention that drops by a function, not a module
        return self._scores(**arguments)

    def _scores(self, **arguments: Any) -> Tensor:
        out = self.encoder(**arguments)
        scores: Tensor = out.logits.float() if self.head is None else self.head(out.last_hidden_state[:, 0])
        return scores[:, 0]

    def pool(self, passage_scores: Tensor, documents: Tensor) -> Tensor:
        """(passages,) scores and the number of each one's document, ascending -> (documents,) scores."""
        return pool(passage_scores, documents, self.pooling)

    def checkpoint_activations(self) -> None:
        """From here on a layer's activations are computed again in the backward pass instead of kept."""
        self.encoder.activation_checkpointing_enable()

    def attention_dropout(self) -> str:
        """Which attention weights are dropped in training, for the manifest: packed attention drops none."""
        config = self.encoder.config
        rate = getattr(config, "attention_probs_dropout_prob", getattr(config, "attention_dropout", 0.0))
        return (
            f"{rate}"
            if self.is_padded or not rate
            else f"0, not the encoder's {rate}: packed attention drops no weights"
        )

    def parameter_groups(self, lr: float, head_lr: float) -> list[dict[str, Any]]:
        """The parameters for an optimizer: the encoder's with `lr`, those of the layers on top with `head_lr`."""
        body = self.encoder if self.head is not None else self.encoder.base_model
        inside = {id(parameter) for parameter in body.parameters()}
        return [
            {"params": [p for p in self.parameters() if id(p) in inside], "lr": lr},
            {"params": [p for p in self.parameters() if id(p) not in inside], "lr": head_lr},
        ]


def open_cross_encoder(name: str, pooling: str, seed: int) -> tuple[CrossEncoder, Any, int]:
    """The model of a name or folder, its tokenizer, and the tokens that fit one passage.

    A folder that `save_cross_encoder` wrote has its own dense layer; an encoder gets a new one, drawn with `seed`.
    Raises UserError where the encoder cannot be had.
    """
    loaded = load_encoder(name)
    head = None
    if not loaded.own_head:
        head = Float32Linear(loaded.hidden_size, 1)
        nn.init.normal_(head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.bias)
        if (Path(name) / HEAD_FILE).is_file():
            _load_head(head, Path(name) / HEAD_FILE)
    else:
        for module in loaded.model.modules():
            if type(module) is nn.Linear and module.out_features == 1:
                module.__class__ = Float32Linear
    return CrossEncoder(loaded, head, pooling), loaded.tokenizer, loaded.max_length


def _load_head(head: nn.Linear, file: Path) -> None:
    try:
        head.load_state_dict(load_file(file))
    except Exception as error:  # safetensors and torch each have their own
        raise UserError(f"{file}: not the dense layer of this encoder: {str(error).splitlines()[0]}") from error


def pretraining_of(model: CrossEncoder) -> dict[str, Any] | None:
    """How a model was pre-trained on documents before it saw a label, as its config says; None where it was not."""
    saved = getattr(model.encoder.config, "rerank", {})
    found: dict[str, Any] | None = saved.get("pretraining", saved.get("warmup"))  # as version 0.1.0 calls it
    return found


def save_cross_encoder(
    model: CrossEncoder, tokenizer: Any, folder: Path, max_doc_tokens: int, settings: Mapping[str, Any] = {}
) -> None:
    """Writes an ordinary Hugging Face folder, the dense layer beside it, and our text settings in its config.

    `settings` are recorded too. What the encoder's config says of a pre-training stays there.
    """
    settings = {"pooling": model.pooling, "max_doc_tokens": max_doc_tokens, **settings}
    model.encoder.config.rerank = getattr(model.encoder.config, "rerank", {}) | settings
    model.encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if model.head is not None:
        save_file(model.head.state_dict(), folder / HEAD_FILE)
