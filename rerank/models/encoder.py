"""Loads a Hugging Face encoder, or a decoder with a head, and its tokenizer, with weights in float32.

The head of a decoder is one linear layer on the last token, as transformers builds it: only the last token attends to
the query and the whole passage. A passage must not end with the padding token, which transformers does not score.
"""

import inspect
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rerank.models.hub import encoder_folder, quiet_transformers, read_configs
from rerank.models.sizes import check_parameters, check_sizes
from rerank.utils.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def state_padding(config: "PreTrainedConfig", tokenizer: "PreTrainedTokenizerBase") -> None:
    """Makes config and tokenizer name the same padding token: the config's, the tokenizer's, or another special one.

    Many decoders name none, and then accept no batches. The token that ends texts is not chosen, as padding is not
    scored.
    """
    config = config.get_text_config()
    stated = config.pad_token_id
    if stated is None or not 0 <= stated < len(tokenizer):
        last = tokenizer("a", "b")["input_ids"][-1:]
        special = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id, 0, 1)
        config.pad_token_id = next(token for token in special if token is not None and token not in last)
    if tokenizer.pad_token_id != config.pad_token_id:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(config.pad_token_id)


def last_token_head(model: "PreTrainedModel", name: str) -> nn.Linear:
    """The head of a sequence classifier with one output; raises UserError if it is not one linear layer."""
    in_body = {id(module) for module in model.base_model.modules()}
    heads = [m for m in model.modules() if isinstance(m, nn.Linear) and id(m) not in in_body]
    if len(heads) == 1 and heads[0].out_features == 1:
        return heads[0]
    raise UserError(
        f"encoder {name}: the head of {type(model).__name__} is not one linear layer on the last token; expected an "
        "encoder, or a decoder with such a head, such as Qwen3ForSequenceClassification"
    )


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder with weights in float32.

    model: the body, which returns `last_hidden_state`; with `own_head` the whole cross-encoder, which returns `logits`,
        one per pair.
    last_token: the head of a decoder; None for encoders.
    max_length: tokens of the longest input, including special tokens.
    first_position: the position id of an input's first token.
    """

    tokenizer: "PreTrainedTokenizerBase"
    model: "PreTrainedModel"
    own_head: bool
    max_length: int
    first_position: int
    last_token: nn.Linear | None = None


@quiet_transformers()  # this module checks the loading reports itself
def load_encoder(name_or_folder: str) -> LoadedEncoder:
    """Loads an encoder by its folder or by its name on huggingface.co; a download is cached.

    A sequence classifier with one output keeps its head; of any other encoder only the body is loaded. Raises UserError
    if the model cannot be found, is no text encoder, has several outputs, or if weights or special tokens are missing.
    """
    import transformers

    folder = encoder_folder(name_or_folder)
    read_configs(folder)
    check_sizes(folder, name_or_folder)
    config = from_folder(transformers.AutoConfig, folder, name_or_folder)
    own_head = _check_encoder(config, name_or_folder)
    check_parameters(folder, name_or_folder)
    tokenizer = from_folder(transformers.AutoTokenizer, folder, name_or_folder)
    # A text is tokenised before it is cut into passages.
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    decoder = own_head and type(config) not in transformers.MODEL_FOR_MASKED_LM_MAPPING
    if decoder:
        state_padding(config, tokenizer)
    model = _load_weights(config, own_head, folder, name_or_folder)
    _check_tokenizer(tokenizer, model, name_or_folder, () if decoder else ("pad_token", "sep_token"))
    takes_types = "token_type_ids" in inspect.signature(model.forward).parameters
    if decoder or not takes_types or getattr(config, "type_vocab_size", 2) < 2:
        # Architectures share tokenizers: BERT's returns token types, which DistilBERT does not accept.
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # saved, for other libraries
    usable, first = positions(model)
    max_length = int(min(usable, tokenizer.model_max_length))  # a file may state 512.0
    last_token = last_token_head(model, name_or_folder) if decoder else None
    return LoadedEncoder(tokenizer, model, own_head, max_length, first, last_token)


def from_folder(auto: Any, folder: Path, name: str, **settings: Any) -> Any:
    """`auto.from_pretrained` of a folder; raises UserError for whatever the libraries raise."""
    try:
        return auto.from_pretrained(folder, trust_remote_code=False, **settings)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # transformers and others raise different types, tokenizers' panics are no Exception
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in reason:  # its advice is to run the code in it
            reason = "its weights are a pickle that holds more than tensors, and could run any code"
        raise UserError(
            f"encoder {name}: {auto.__name__} cannot open {folder}: {reason[:300]}; expected an encoder in "
            "Hugging Face format that transformers knows: download or save it again, or choose another"
        ) from error


def _check_encoder(config: "PreTrainedConfig", name: str) -> bool:
    """Whether the checkpoint has its own head; raises UserError if the model is of no supported kind."""
    import transformers

    kind, architecture = type(config), ", ".join(config.architectures or ()) or "no architecture"
    classifier = any(kind.endswith("ForSequenceClassification") for kind in config.architectures or ())
    generates = getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False)
    encoder = kind in transformers.MODEL_FOR_MASKED_LM_MAPPING  # how encoders are pre-trained
    takes_head = kind in transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    decoder = takes_head and classifier and kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if generates or not (encoder or decoder):
        raise UserError(
            f"encoder {name}: a {config.model_type} model saved as {architecture}, not a text encoder; expected one "
            "such as BERT, RoBERTa, ELECTRA, DistilBERT, MPNet, DeBERTa, ModernBERT or XLM-RoBERTa, or a decoder saved "
            "as …ForSequenceClassification with one output, such as a converted reranker"
        )
    if classifier and config.num_labels != 1:
        raise UserError(
            f"encoder {name}: a classifier with {config.num_labels} outputs; expected an encoder, or a cross-encoder "
            "with one output; choose another"
        )
    return classifier


def _load_weights(config: "PreTrainedConfig", own_head: bool, folder: Path, name: str) -> "PreTrainedModel":
    """The model, converted to float32; raises UserError if weights are missing."""
    import transformers

    auto = transformers.AutoModelForSequenceClassification if own_head else transformers.AutoModel
    opened = from_folder(auto, folder, name, config=config, dtype=torch.float32, output_loading_info=True)
    model: PreTrainedModel = opened[0]
    report: dict[str, set[str]] = opened[1]
    # The pooler of a body is not used, and most pre-trained checkpoints have none.
    missing = sorted(key for key in report["missing_keys"] if own_head or not key.startswith("pooler."))
    if missing:
        raise UserError(
            f"encoder {name}: the weights in {folder} lack {len(missing)} tensors of a {type(model).__name__}, "
            f"{missing[0]} among them; download or save it again"
        )
    if not own_head and "add_pooling_layer" in inspect.signature(type(model)).parameters:
        model.register_module("pooler", None)
    return model


def _check_tokenizer(
    tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel", name: str, needed: tuple[str, ...]
) -> None:
    for token in needed:
        if getattr(tokenizer, token) is None:
            raise UserError(
                f"encoder {name}: its tokenizer has no {token}; choose an encoder that takes pairs of texts"
            )
    rows = len(model.get_input_embeddings().get_parameter("weight"))
    if len(tokenizer) > rows:
        raise UserError(
            f"encoder {name}: its tokenizer has {len(tokenizer)} tokens but the model {rows}; expected the tokenizer "
            "that the model was trained with"
        )


def positions(model: "PreTrainedModel") -> tuple[int, int]:
    """The number of usable positions, and the first: RoBERTa's start after the padding id, so two are not usable.

    Raises UserError if the model's config states none.
    """
    stated = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 512
    usable, first = stated, 0
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            lost = 0 if table.padding_idx is None else table.padding_idx + 1
            usable, first = min(usable, table.num_embeddings - lost), max(first, lost)
    if usable < 1:
        raise UserError(
            f"{model.name_or_path}: its config states {stated} positions, of which {usable} are usable; expected 1 or "
            "more: download or save it again"
        )
    return usable, first
