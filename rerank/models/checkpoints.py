"""Opens checkpoints of cross-encoders to train or to score, and saves them in a format that other libraries read."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rerank.batches.templates import chat_template
from rerank.data.splitting import EVEN, Cut
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.encoder import LoadedEncoder, load_encoder
from rerank.models.export.folder import ExportedCrossEncoder, is_export, open_export
from rerank.models.heads import Float32Linear, folded, unfolded
from rerank.models.hub import quiet_transformers, recorded_cut
from rerank.models.pooling import check_pooling, expect_pooling
from rerank.utils.errors import UserError, needed
from rerank.utils.progress import log

if TYPE_CHECKING:
    from transformers import PreTrainedModel

IDENTITY = "torch.nn.modules.linear.Identity"
"""The activation of scores that sentence-transformers is told to use; its default is the sigmoid."""

ALPHA_PER_RANK = 2
"""LoRA multiplies the product B A by alpha / rank; this is the ratio, for every rank."""

REPLACED = ("head", "first_stage_weight", "first_stage", "passage_tokens", "passage_overlap")
"""Recorded settings that are not inherited when the model is trained further with other settings."""


def open_cross_encoder(name: str, pooling: str, seed: int, template: str = "", lora_rank: int = 0) -> CrossEncoder:
    """Opens a model, by name or folder, for training.

    A folder that `save_cross_encoder` wrote has its own linear layer; an encoder gets a new one, initialised with
    `seed`. If `template` is empty, the saved one is used. With a `lora_rank`, the body is trained by low-rank
    adaptation. Raises UserError for an encoder that cannot be loaded or saved.
    """
    loaded, head = _load(name)
    if lora_rank:
        _add_lora(loaded.model, lora_rank, seed)
    if head is None and not loaded.own_head:
        head = Float32Linear(loaded.model.config.get_text_config().hidden_size, 1)
        nn.init.normal_(head.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.bias)
        with folded(loaded.model, head, loaded.tokenizer.pad_token_id) as found:
            if found is None:
                raise UserError(
                    f"encoder {name}: no sequence classifier of {type(loaded.model).__name__} can give the scores of a "
                    "linear layer on its first token; choose another, such as BERT, RoBERTa, DeBERTa or ModernBERT"
                )
    return _with_template(name, loaded, head, pooling, template)


def _load(name: str) -> tuple[LoadedEncoder, Float32Linear | None]:
    """The encoder of a name or folder and its trained linear layer; None if it has its own head or no head."""
    loaded = load_encoder(name)
    if loaded.own_head:
        facts = getattr(loaded.model.config, "rerank", {}).get("head")
        if facts and (found := unfolded(loaded.model, facts)):
            return replace(loaded, model=found[0], own_head=False), found[1]
        for name_in_model, module in list(loaded.model.named_modules()):
            if type(module) is nn.Linear and module.out_features == 1:
                output = Float32Linear.of(module)
                loaded.model.set_submodule(name_in_model, output)
                loaded = replace(loaded, last_token=output if loaded.last_token is module else loaded.last_token)
    return loaded, None


def _with_template(
    name: str, loaded: LoadedEncoder, head: Float32Linear | None, pooling: str, template: str
) -> CrossEncoder:
    model = CrossEncoder(loaded, head, pooling)
    model.template = template or model.settings.get("template", "")
    if loaded.last_token is not None and loaded.tokenizer.chat_template and not model.template:
        log.info(f"{name}: the chat template of its tokenizer is not used; --encoder.template gives a prompt")
    return model


def _add_lora(model: "PreTrainedModel", rank: int, seed: int) -> None:
    """Freezes the body of a Hugging Face model and replaces each linear layer W by W + 2 B A, with B and A trained.

    Low-rank adaptation (Hu et al. 2022, arXiv:2106.09685, equation 3): peft adds B (outputs, rank), initially 0, and A
    (rank, inputs), drawn with `seed`. Raises UserError if peft cannot be imported.
    """
    needed("peft", f"--encoder.lora-rank {rank}", "lora")
    from peft import LoraConfig, inject_adapter_in_model

    settings = LoraConfig(r=rank, lora_alpha=ALPHA_PER_RANK * rank, lora_dropout=0.0, target_modules="all-linear")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the layout of GPT-2's layers, which peft sets right
        torch.manual_seed(seed)
        inject_adapter_in_model(settings, model.base_model)


def open_trained_cross_encoder(
    name: str, pooling: str, max_doc_tokens: int, template: str = "", cut: Cut = EVEN
) -> CrossEncoder | ExportedCrossEncoder:
    """Opens a model for scoring: a checkpoint or an export of ours, or any cross-encoder, by folder or by hub name.

    The pooling, `max_doc_tokens`, template and cut of a checkpoint of ours override the arguments. Raises UserError for
    an encoder without a trained head, for an unknown pooling, and for a template that differs from the checkpoint's.
    """
    if is_export(name):
        return open_export(name, template)
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
    if "pooling" in settings:
        expect_pooling(name, settings["pooling"])
        model.pooling, model.cut = settings["pooling"], recorded_cut(settings)
    else:
        check_pooling(pooling)
        model.cut = cut
    model.max_doc_tokens = settings.get("max_doc_tokens", max_doc_tokens)
    return model


def save_cross_encoder(model: CrossEncoder, folder: Path, settings: Mapping[str, object] = {}) -> None:
    """Writes a Hugging Face folder: a sequence classifier with one output, which other libraries read too.

    The linear layer is folded into the classifier's own head (`rerank.models.heads`), and low-rank matrices are added
    to the weights. The config records the settings that scores depend on and other `settings`. The tokenizer gets the
    length of a passage as its limit, and the template as its chat template.
    """
    config, tokenizer = model.encoder.config, model.tokenizer
    own = {name: getattr(model, name) for name in ("template", "first_stage_weight") if getattr(model, name)}
    if model.cut.tokens:
        own |= {"passage_tokens": model.cut.tokens, "passage_overlap": model.cut.overlap}
    settings = {"pooling": model.pooling, "max_doc_tokens": model.max_doc_tokens, **own, **settings}
    kept = {name: value for name, value in model.settings.items() if name not in REPLACED}
    config.rerank = kept | settings
    config.sentence_transformers = getattr(config, "sentence_transformers", {}) | {"activation_fn": IDENTITY}
    tokenizer.model_max_length = model.max_length
    if model.template:
        tokenizer.chat_template = chat_template(tokenizer, model.template)
    elif model.last_token is not None:
        tokenizer.chat_template = None  # it was not used, and sentence-transformers would use it
    tokenizer.save_pretrained(folder)
    if model.head is None:
        _save_weights(model.encoder, folder)
        return
    with folded(model.encoder, model.head, model.pad_id) as found:
        assert found is not None  # it was tried when the model was opened
        classifier, facts = found
        classifier.config.rerank = config.rerank | {"head": facts}
        _save_weights(classifier, folder)


def _save_weights(model: "PreTrainedModel", folder: Path) -> None:
    with quiet_transformers():
        model.save_pretrained(folder, state_dict=merged_weights(model))


@torch.no_grad()
def merged_weights(model: nn.Module) -> dict[str, Tensor] | None:
    """The state of a LoRA model with W + 2 B A as its weights; the model is not changed. None for other models."""
    layers = {name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    if not layers:
        return None
    weights: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        layer, _, rest = key.rpartition(".base_layer.")
        if layer in layers:
            delta = layers[layer].get_delta_weight("default") if rest == "weight" else 0
            weights[f"{layer}.{rest}"] = value + delta
        elif key.rpartition(".lora_")[0] not in layers:
            weights[key] = value
    return weights
