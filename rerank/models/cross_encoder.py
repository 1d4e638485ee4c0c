"""The cross-encoder: scores packed (query, passage) pairs and pools them into document scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.batches.microbatches import restore_order
from rerank.batches.text_template import chat_template
from rerank.models.dropout import seed_dropout, token_keys
from rerank.models.encoder import LoadedEncoder, load_encoder
from rerank.models.lora import add_lora, merged_weights
from rerank.models.packed_attention import Passages
from rerank.models.packing import pack
from rerank.models.padding import bucket_by_length, pad
from rerank.models.pooling import POOLINGS
from rerank.utils.errors import UserError, nearest
from rerank.utils.progress import log

HEAD_FILE = "head.safetensors"


class Float32Linear(nn.Linear):
    """A linear layer that computes in float32 under autocast: in bf16, 150 scores would take a dozen values."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


class CrossEncoder(nn.Module):
    """A Hugging Face encoder with a linear layer on its [CLS] vector, or a cross-encoder with its own head.

    The paper averages a document's [CLS] vectors and puts the linear layer on the mean. As that layer is linear, the
    score is the mean of the passages' scores; every pooling here works on passage scores. `padding_reason` is "" if
    the encoder takes packed passages, and otherwise says why it does not; `template` is the text that query and
    passage are put into, if any. Raises UserError for an unknown pooling.
    """

    def __init__(self, loaded: LoadedEncoder, head: Float32Linear | None, pooling: str) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise UserError(f"--encoder.pooling {pooling}: no such pooling; {nearest(pooling, POOLINGS)}")
        self.encoder: Any = loaded.model
        self.head = head
        self.pooling = pooling
        self.template = ""
        self.pad_id = loaded.tokenizer.pad_token_id
        self.first_position = loaded.first_position
        self.last_token = loaded.last_token
        self.dropout_keys = seed_dropout(self)
        self.padding_reason = pack(self.encoder, loaded.first_position, self.pad_id, loaded.max_length, self.last_token)

    @property
    def is_padded(self) -> bool:
        """Whether a forward pass pads its passages, in groups of similar length."""
        return bool(self.padding_reason)

    def forward(self, inputs: Packed) -> Tensor:
        """(passages,) float32 scores, in one pass through the encoder. In training the inputs need seeds."""
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
        if self.last_token is None:
            return self._scores(**arguments, passages=Passages(lengths, offsets))
        scored = self.last_token.scored_tokens(inputs.input_ids, offsets)
        return self.last_token.scores_of_packed(scored, **arguments, passages=Passages(lengths, offsets))

    def _padded_scores(self, inputs: Packed) -> Tensor:
        arguments, positions = pad(inputs, self.pad_id)
        if inputs.seeds is not None:
            self.dropout_keys.tokens = token_keys(inputs.seeds[:, None].expand_as(positions), positions)
            self.dropout_keys.firsts = self.dropout_keys.tokens[:, 0]
            torch.manual_seed(int(inputs.seeds[0]))  # for attention that calls F.dropout instead of a module
        if self.last_token is None:
            return self._scores(**arguments)
        offsets = inputs.offsets.to(positions.device)
        scored = self.last_token.scored_tokens(inputs.input_ids, offsets) - offsets[:-1]
        return self.last_token.scores_of_padded(scored, **arguments)

    def _scores(self, **arguments: Any) -> Tensor:
        out = self.encoder(**arguments)
        scores: Tensor = out.logits.float() if self.head is None else self.head(out.last_hidden_state[:, 0])
        return scores[:, 0]

    def pool(self, passage_scores: Tensor, documents: Tensor) -> Tensor:
        """(documents,) scores from (passages,) scores and the number of each passage's document, ascending from 0.

        It is not part of `forward`, because gradient caching pools the scores of several forward passes.
        """
        return POOLINGS[self.pooling](passage_scores, documents)

    def checkpoint_activations(self) -> None:
        """Makes the backward pass recompute each layer's activations instead of keeping them."""
        self.encoder.activation_checkpointing_enable()

    def attention_dropout(self) -> str:
        """The dropout rate of attention weights in training, for the manifest; packed attention has none."""
        config = self.encoder.config
        rate = getattr(config, "attention_probs_dropout_prob", getattr(config, "attention_dropout", 0.0))
        return (
            f"{rate}"
            if self.is_padded or not rate
            else f"0, not the encoder's {rate}: packed attention drops no weights"
        )

    def parameter_groups(self, lr: float, head_lr: float) -> list[dict[str, Any]]:
        """The trainable parameters: the encoder's with `lr`, those of the layers on top with `head_lr`."""
        body = self.encoder if self.head is not None else self.encoder.base_model
        in_body = {id(parameter) for parameter in body.parameters()}
        trainable = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trainable if id(p) in in_body], "lr": lr},
            {"params": [p for p in trainable if id(p) not in in_body], "lr": head_lr},
        ]


def open_cross_encoder(
    name: str, pooling: str, seed: int, template: str = "", lora_rank: int = 0
) -> tuple[CrossEncoder, Any, int]:
    """The model of a name or folder, its tokenizer, and the tokens that fit into one passage.

    A folder that `save_cross_encoder` wrote has its own linear layer; an encoder gets a new one, initialised with
    `seed`. Without a `template` the model has the one that it was saved with. With a `lora_rank` the body is frozen and
    learns through low-rank matrices (`models.lora`). Raises UserError for an encoder that cannot be loaded, for an
    unknown pooling, and if peft is missing.
    """
    loaded = load_encoder(name)
    if lora_rank:
        add_lora(loaded.model, lora_rank, seed)
    head = None
    if not loaded.own_head:
        head = Float32Linear(loaded.hidden_size, 1)
        nn.init.normal_(head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.bias)
        if (Path(name) / HEAD_FILE).is_file():
            _load_head(head, Path(name) / HEAD_FILE)
    elif loaded.last_token is not None:
        loaded.last_token.head.__class__ = Float32Linear
    else:
        for module in loaded.model.modules():
            if type(module) is nn.Linear and module.out_features == 1:
                module.__class__ = Float32Linear
    model = CrossEncoder(loaded, head, pooling)
    model.template = template or saved_settings(model).get("template", "")
    if loaded.last_token is not None and loaded.tokenizer.chat_template and not model.template:
        log.info(f"{name}: the chat template of its tokenizer is not used; --encoder.template gives a prompt")
    return model, loaded.tokenizer, loaded.max_length


def _load_head(head: nn.Linear, file: Path) -> None:
    try:
        head.load_state_dict(load_file(file))
    except Exception as error:  # safetensors and torch raise different types
        raise UserError(f"{file}: not the linear layer of this encoder: {str(error).splitlines()[0]}") from error


class TrainedCrossEncoder(NamedTuple):
    """A model that can score, its tokenizer, the tokens that fit into a passage and those kept of a document."""

    model: CrossEncoder
    tokenizer: Any
    max_length: int
    max_doc_tokens: int


def open_trained_cross_encoder(name: str, pooling: str, max_doc_tokens: int, template: str = "") -> TrainedCrossEncoder:
    """Opens a model for scoring: a checkpoint of ours, or any cross-encoder, by folder or by its name on the hub.

    A checkpoint of ours was saved with its pooling and its `max_doc_tokens`, which replace those given here, and with
    its template. Raises UserError for an encoder that was never trained to rank, and for another template than its own.
    """
    model, tokenizer, max_length = open_cross_encoder(name, pooling, seed=0, template=template)
    if model.head is not None and not (Path(name) / HEAD_FILE).is_file():
        raise UserError(f"{name}: an encoder without a trained head; train it first, or take a cross-encoder")
    settings = saved_settings(model)
    if "pooling" in settings and model.template != settings.get("template", ""):
        own = settings.get("template")
        raise UserError(
            f"{name}: was trained {f'with the template {own!r}' if own else 'without a template'}, not with "
            f"{model.template!r}; leave --encoder.template out"
        )
    model.pooling = settings.get("pooling", pooling)
    if model.pooling not in POOLINGS:
        raise UserError(
            f"{name}: was trained with the pooling {model.pooling}, which is not registered; "
            f"{nearest(model.pooling, POOLINGS)}"
        )
    return TrainedCrossEncoder(model, tokenizer, max_length, settings.get("max_doc_tokens", max_doc_tokens))


def saved_settings(model: CrossEncoder) -> dict[str, Any]:
    """The settings that `save_cross_encoder` recorded in the config of a checkpoint; empty for other models."""
    settings: dict[str, Any] = getattr(model.encoder.config, "rerank", {})
    return settings


def pretraining_of(model: CrossEncoder) -> dict[str, Any] | None:
    """The pre-training on documents that a model's config records; None if there was none."""
    saved = saved_settings(model)
    pretraining: dict[str, Any] | None = saved.get("pretraining", saved.get("warmup"))  # its name in version 0.1.0
    return pretraining


def save_cross_encoder(
    model: CrossEncoder, tokenizer: Any, folder: Path, max_doc_tokens: int, settings: Mapping[str, Any] = {}
) -> None:
    """Writes a Hugging Face folder, with the linear layer in a file of its own.

    The config records the pooling, `max_doc_tokens`, the template and other `settings`, and keeps what it says about a
    pre-training. The template is the tokenizer's chat template too. Low-rank matrices are added to the weights
    (`models.lora`).
    """
    template = {"template": model.template} if model.template else {}
    settings = {"pooling": model.pooling, "max_doc_tokens": max_doc_tokens, **template, **settings}
    model.encoder.config.rerank = saved_settings(model) | settings
    model.encoder.save_pretrained(folder, state_dict=merged_weights(model.encoder))
    if model.template:
        tokenizer.chat_template = chat_template(tokenizer, model.template)
    elif model.last_token is not None:
        tokenizer.chat_template = None  # it was not used, and sentence-transformers would use it
    tokenizer.save_pretrained(folder)
    if model.head is not None:
        save_file(model.head.state_dict(), folder / HEAD_FILE)
