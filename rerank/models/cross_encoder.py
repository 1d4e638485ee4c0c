"""The cross-encoder: scores packed (query, passage) pairs and pools them into document scores."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.batches.microbatches import restore_order
from rerank.models.dropout import seed_dropout, token_keys
from rerank.models.encoder import LoadedEncoder, load_encoder
from rerank.models.heads import Float32Linear, folded, unfolded
from rerank.models.modules_json import IDENTITY, write_modules
from rerank.models.packed_attention import Passages, pack
from rerank.models.padding import bucket_by_length, pad
from rerank.models.pooling import POOLINGS
from rerank.utils.errors import UserError, nearest
from rerank.utils.progress import log

HEAD_FILE = "head.safetensors"


class CrossEncoder(nn.Module):
    """A Hugging Face encoder with a linear layer on its [CLS] vector, or a cross-encoder with its own head.

    The paper averages a document's [CLS] vectors and puts the linear layer on the mean. As that layer is linear, the
    score is the mean of the passages' scores; every pooling here works on passage scores. `padding_reason` is "" if
    the encoder takes packed passages, and otherwise says why it does not. Raises UserError for an unknown pooling.
    """

    def __init__(self, loaded: LoadedEncoder, head: Float32Linear | None, pooling: str) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise UserError(f"--encoder.pooling {pooling}: no such pooling; {nearest(pooling, POOLINGS)}")
        self.encoder: Any = loaded.model
        self.head = head
        self.pooling = pooling
        self.pad_id = loaded.tokenizer.pad_token_id
        self.first_position = loaded.first_position
        self.max_length = loaded.max_length
        self.dropout_keys = seed_dropout(self)
        self.padding_reason = pack(self.encoder, loaded.first_position, self.pad_id, loaded.max_length)

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
        return self._scores(**arguments, passages=Passages(lengths, offsets))

    def _padded_scores(self, inputs: Packed) -> Tensor:
        arguments, positions = pad(inputs, self.pad_id)
        if inputs.seeds is not None:
            self.dropout_keys.tokens = token_keys(inputs.seeds[:, None].expand_as(positions), positions)
            self.dropout_keys.firsts = self.dropout_keys.tokens[:, 0]
            torch.manual_seed(int(inputs.seeds[0]))  # for attention that calls F.dropout instead of a module
        return self._scores(**arguments)

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
        """The parameters for an optimizer: the encoder's with `lr`, those of the layers on top with `head_lr`."""
        body = self.encoder if self.head is not None else self.encoder.base_model
        in_body = {id(parameter) for parameter in body.parameters()}
        return [
            {"params": [p for p in self.parameters() if id(p) in in_body], "lr": lr},
            {"params": [p for p in self.parameters() if id(p) not in in_body], "lr": head_lr},
        ]


def open_cross_encoder(name: str, pooling: str, seed: int) -> tuple[CrossEncoder, Any, int]:
    """The model of a name or folder, its tokenizer, and the tokens that fit into one passage.

    A folder that `save_cross_encoder` wrote has its own linear layer; an encoder gets a new one, initialised with
    `seed`. Raises UserError for an encoder that cannot be loaded and for an unknown pooling.
    """
    loaded, head = _load(name)
    if head is None and not loaded.own_head:
        head = Float32Linear(loaded.hidden_size, 1)
        nn.init.normal_(head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.bias)
    return CrossEncoder(loaded, head, pooling), loaded.tokenizer, loaded.max_length


def _load(name: str) -> tuple[LoadedEncoder, Float32Linear | None]:
    """The encoder of a name or folder and its trained linear layer; None if it has its own head or no head."""
    loaded = load_encoder(name)
    if loaded.own_head:
        facts = getattr(loaded.model.config, "rerank", {}).get("head")
        if facts and (found := unfolded(loaded.model, facts)):
            return replace(loaded, model=found[0], own_head=False), found[1]
        for module in loaded.model.modules():
            if type(module) is nn.Linear and module.out_features == 1:
                module.__class__ = Float32Linear
    elif (Path(name) / HEAD_FILE).is_file():
        head = Float32Linear(loaded.hidden_size, 1)
        _load_head(head, Path(name) / HEAD_FILE)
        return loaded, head
    return loaded, None


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


def open_trained_cross_encoder(name: str, pooling: str, max_doc_tokens: int) -> TrainedCrossEncoder:
    """Opens a model for scoring: a checkpoint of ours, or any cross-encoder, by folder or by its name on the hub.

    A checkpoint of ours was saved with its pooling and its `max_doc_tokens`, which replace those given here. Raises
    UserError for an encoder that was never trained to rank.
    """
    loaded, head = _load(name)
    if head is None and not loaded.own_head:
        architecture = (loaded.model.config.architectures or [type(loaded.model).__name__])[0]
        raise UserError(
            f"{name}: an encoder without a trained head: its architecture is {architecture}, expected a "
            f"…ForSequenceClassification with one output, or {HEAD_FILE} beside it; train it first, or take a "
            "cross-encoder"
        )
    model = CrossEncoder(loaded, head, pooling)
    settings = saved_settings(model)
    model.pooling = settings.get("pooling", pooling)
    if model.pooling not in POOLINGS:
        raise UserError(
            f"{name}: was trained with the pooling {model.pooling}, which is not registered; "
            f"{nearest(model.pooling, POOLINGS)}"
        )
    return TrainedCrossEncoder(
        model, loaded.tokenizer, loaded.max_length, settings.get("max_doc_tokens", max_doc_tokens)
    )


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
    """Writes a Hugging Face folder: a sequence classifier with one output, which other libraries read too.

    The linear layer is folded into the classifier's own head (`rerank.models.heads`). Where that is impossible, the
    encoder is written alone, with the layer in HEAD_FILE and as a module of sentence-transformers.

    The config records the pooling, `max_doc_tokens`, the form of the head and other `settings`, and keeps what it says
    about a pre-training. The tokenizer's limit becomes the length of a passage.
    """
    config = model.encoder.config
    settings = {"pooling": model.pooling, "max_doc_tokens": max_doc_tokens, **settings}
    config.rerank = {name: value for name, value in saved_settings(model).items() if name != "head"} | settings
    config.sentence_transformers = getattr(config, "sentence_transformers", {}) | {"activation_fn": IDENTITY}
    tokenizer.model_max_length = model.max_length
    tokenizer.save_pretrained(folder)
    if model.head is None:
        model.encoder.save_pretrained(folder)
        return
    with folded(model.encoder, model.head, model.pad_id) as found:
        if found is not None:
            classifier, facts = found
            classifier.config.rerank = config.rerank | {"head": facts}
            classifier.save_pretrained(folder)
            return
    log.info(
        f"{type(model.encoder).__name__}: its sequence classifier cannot give these scores, so {HEAD_FILE} has the "
        "linear layer; of other libraries, only sentence-transformers reads the checkpoint"
    )
    model.encoder.save_pretrained(folder)
    save_file(model.head.state_dict(), folder / HEAD_FILE)
    write_modules(model.head, folder)
