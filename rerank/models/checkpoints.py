"""Checkpoints of cross-encoders: opened to train or to score, and saved so that other libraries read them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from rerank.batches.templates import chat_template
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.encoder import LoadedEncoder, load_encoder
from rerank.models.export.folder import ExportedCrossEncoder, is_export, open_export
from rerank.models.heads import Float32Linear, folded, unfolded
from rerank.models.hub import quiet_transformers
from rerank.models.lora import add_lora, merged_weights
from rerank.models.pooling import expect_pooling
from rerank.utils.errors import UserError
from rerank.utils.progress import log

IDENTITY = "torch.nn.modules.linear.Identity"
"""The activation of the scores in sentence-transformers, whose default is the sigmoid."""

REPLACED = ("head", "first_stage_weight", "first_stage")
"""Recorded settings that a model does not keep when it goes on training with others."""


def open_cross_encoder(
    name: str, pooling: str, seed: int, template: str = "", lora_rank: int = 0
) -> tuple[CrossEncoder, Any, int]:
    """The model of a name or folder, its tokenizer, and the tokens that fit into one passage.

    A folder that `save_cross_encoder` wrote has its own linear layer; an encoder gets a new one, initialised with
    `seed`. Without a `template` the model has the one that it was saved with. With a `lora_rank` the body is frozen and
    learns through low-rank matrices (`models.lora`). Raises UserError for an encoder that cannot be loaded or saved,
    for an unknown pooling, and if peft is missing.
    """
    loaded, head = _load(name)
    if lora_rank:
        add_lora(loaded.model, lora_rank, seed)
    if head is None and not loaded.own_head:
        head = Float32Linear(loaded.hidden_size, 1)
        nn.init.normal_(head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.bias)
        with folded(loaded.model, head, loaded.tokenizer.pad_token_id) as found:
            if found is None:
                raise UserError(
                    f"encoder {name}: no sequence classifier of {type(loaded.model).__name__} can give the scores of a "
                    "linear layer on its first token; choose another, such as BERT, RoBERTa, DeBERTa or ModernBERT"
                )
    return _with_template(name, loaded, head, pooling, template), loaded.tokenizer, loaded.max_length


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
    return loaded, None


def _with_template(
    name: str, loaded: LoadedEncoder, head: Float32Linear | None, pooling: str, template: str
) -> CrossEncoder:
    model = CrossEncoder(loaded, head, pooling)
    model.template = template or model.settings.get("template", "")
    if loaded.last_token is not None and loaded.tokenizer.chat_template and not model.template:
        log.info(f"{name}: the chat template of its tokenizer is not used; --encoder.template gives a prompt")
    return model


class TrainedCrossEncoder(NamedTuple):
    """A model that can score, its tokenizer, the tokens that fit into a passage and those kept of a document."""

    model: CrossEncoder | ExportedCrossEncoder
    tokenizer: Any
    max_length: int
    max_doc_tokens: int


def open_trained_cross_encoder(name: str, pooling: str, max_doc_tokens: int, template: str = "") -> TrainedCrossEncoder:
    """Opens a model for scoring: a checkpoint of ours, or any cross-encoder, by folder or by its name on the hub.

    The folder may also be one that `rerank export` wrote. A checkpoint of ours was saved with its pooling and its
    `max_doc_tokens`, which replace those given here, and with its template. Raises UserError for an
    encoder that was never trained to rank, and for another template than its own.
    """
    if is_export(name):
        exported, tokenizer, facts = open_export(name, template)
        return TrainedCrossEncoder(exported, tokenizer, facts["max_length"], facts["max_doc_tokens"])
    return TrainedCrossEncoder(*open_trained_weights(name, pooling, max_doc_tokens, template))


def open_trained_weights(
    name: str, pooling: str, max_doc_tokens: int, template: str = ""
) -> tuple[CrossEncoder, Any, int, int]:
    """As `open_trained_cross_encoder`, for a model that is no exported graph; raises UserError for one."""
    loaded, head = _load(name)
    if head is None and not loaded.own_head:
        architecture = (loaded.model.config.architectures or [type(loaded.model).__name__])[0]
        raise UserError(
            f"{name}: an encoder without a trained head: its architecture is {architecture}, expected a "
            "…ForSequenceClassification with one output; train it first, or take a cross-encoder"
        )
    model = _with_template(name, loaded, head, pooling, template)
    settings = model.settings
    if "pooling" in settings and model.template != settings.get("template", ""):
        own = settings.get("template")
        raise UserError(
            f"{name}: was trained {f'with the template {own!r}' if own else 'without a template'}, not with "
            f"{model.template!r}; leave --encoder.template out"
        )
    model.first_stage_weight = settings.get("first_stage_weight", 0.0)
    model.pooling = settings.get("pooling", pooling)
    expect_pooling(name, model.pooling)
    return model, loaded.tokenizer, loaded.max_length, settings.get("max_doc_tokens", max_doc_tokens)


def save_cross_encoder(
    model: CrossEncoder, tokenizer: Any, folder: Path, max_doc_tokens: int, settings: Mapping[str, Any] = {}
) -> None:
    """Writes a Hugging Face folder: a sequence classifier with one output, which other libraries read too.

    The linear layer is folded into the classifier's own head (`rerank.models.heads`). Low-rank matrices are added to
    the weights (`models.lora`).

    The config records the pooling, `max_doc_tokens`, the template, the first stage's weight, the form of
    the head and other `settings`, and keeps what it says about a pre-training. The tokenizer's limit becomes the length
    of a passage, and its chat template the template.
    """
    config = model.encoder.config
    own = {name: getattr(model, name) for name in ("template", "first_stage_weight") if getattr(model, name)}
    settings = {"pooling": model.pooling, "max_doc_tokens": max_doc_tokens, **own, **settings}
    kept = {name: value for name, value in model.settings.items() if name not in REPLACED}
    config.rerank = kept | settings
    config.sentence_transformers = getattr(config, "sentence_transformers", {}) | {"activation_fn": IDENTITY}
    _save_tokenizer(model, tokenizer, folder)
    if model.head is None:
        _save_weights(model.encoder, folder)
        return
    with folded(model.encoder, model.head, model.pad_id) as found:
        if found is None:  # it was tried when the model was opened
            raise RuntimeError(f"{type(model.encoder).__name__}: its classifier no longer gives these scores")
        classifier, facts = found
        classifier.config.rerank = config.rerank | {"head": facts}
        _save_weights(classifier, folder)


def _save_tokenizer(model: CrossEncoder, tokenizer: Any, folder: Path) -> None:
    tokenizer.model_max_length = model.max_length
    if model.template:
        tokenizer.chat_template = chat_template(tokenizer, model.template)
    elif model.last_token is not None:
        tokenizer.chat_template = None  # it was not used, and sentence-transformers would use it
    tokenizer.save_pretrained(folder)


def _save_weights(model: Any, folder: Path) -> None:
    with quiet_transformers():
        model.save_pretrained(folder, state_dict=merged_weights(model))
