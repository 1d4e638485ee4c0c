"""Opens a Hugging Face encoder: its tokenizer, and its weights in float32."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rerank.errors import UserError
from rerank.models.hub import encoder_folder

DEFAULT_MAX_LENGTH = 512  # of an encoder that states no limit: what most are trained with


@dataclass(frozen=True)
class Loaded:
    """An encoder, its weights in float32.

    `model` is the body (it gives `last_hidden_state`), or the whole cross-encoder (it gives `logits`, one value a pair)
    where `own_head` is true. `max_length` is the longest input in tokens, special tokens included; `first_position` is
    the position id of an input's first token.
    """

    tokenizer: Any
    model: Any
    own_head: bool
    max_length: int
    first_position: int
    hidden_size: int


def load_encoder(name_or_folder: str) -> Loaded:
    """Opens the encoder of that folder, or of that name on huggingface.co, which is downloaded once into the cache.

    A checkpoint of a sequence classifier with one output keeps its head; of any other the body is taken. Raises
    UserError where it cannot be had, is not an encoder, has several outputs, or lacks weights or special tokens.
    """
    import transformers

    # For good: saving has its bars too, and what the reports say is checked here.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = encoder_folder(name_or_folder)
    config = _opened(transformers.AutoConfig, folder, name_or_folder)
    own_head = _check_encoder(config, name_or_folder)
    tokenizer = _opened(transformers.AutoTokenizer, folder, name_or_folder)
    model = _load_weights(config, own_head, folder, name_or_folder)
    _check_tokenizer(tokenizer, model, name_or_folder)
    if "token_type_ids" not in inspect.signature(model.forward).parameters or getattr(config, "type_vocab_size", 2) < 2:
        # Tokenizers are shared between architectures: BERT's gives types that DistilBERT does not take.
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
    positions, first = _positions(model)
    return Loaded(tokenizer, model, own_head, min(positions, tokenizer.model_max_length), first, config.hidden_size)


def _opened(auto: Any, folder: Path, name: str, **settings: Any) -> Any:
    try:
        return auto.from_pretrained(folder, trust_remote_code=False, **settings)
    except Exception as error:  # transformers, safetensors, tokenizers and json each raise their own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"encoder {name}: {auto.__name__} cannot open {folder}: {reason[:300]}; expected an encoder in "
            "Hugging Face format that transformers knows: download or save it again, or choose another"
        ) from error


def _check_encoder(config: Any, name: str) -> bool:
    """Whether the checkpoint is a cross-encoder with its own head; raises UserError where it is no encoder at all."""
    import transformers

    decoder = getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False)
    if decoder or type(config) not in transformers.MODEL_FOR_MASKED_LM_MAPPING:  # what encoders are pretrained as
        raise UserError(
            f"encoder {name}: a {config.model_type} model, not a text encoder; expected one such as BERT, "
            "RoBERTa, ELECTRA, DistilBERT, MPNet, DeBERTa, ModernBERT or XLM-RoBERTa"
        )
    classifier = any(kind.endswith("ForSequenceClassification") for kind in config.architectures or ())
    if classifier and config.num_labels != 1:
        raise UserError(
            f"encoder {name}: a classifier with {config.num_labels} outputs; expected an encoder, or a cross-encoder "
            "with one output; choose another"
        )
    return classifier


def _load_weights(config: Any, own_head: bool, folder: Path, name: str) -> Any:
    """The model in float32 whatever the file holds; raises UserError where weights are missing."""
    import transformers

    auto = transformers.AutoModelForSequenceClassification if own_head else transformers.AutoModel
    model, report = _opened(auto, folder, name, config=config, dtype=torch.float32, output_loading_info=True)
    # A body's pooler is not used, and most pretrained checkpoints have none.
    missing = sorted(key for key in report["missing_keys"] if own_head or not key.startswith("pooler."))
    if missing:
        raise UserError(
            f"encoder {name}: the weights in {folder} lack {len(missing)} tensors of a {type(model).__name__}, "
            f"{missing[0]} among them; download or save it again"
        )
    if not own_head and "add_pooling_layer" in inspect.signature(type(model)).parameters:
        model.pooler = None
    return model


def _check_tokenizer(tokenizer: Any, model: Any, name: str) -> None:
    for token in ("pad_token", "sep_token"):
        if getattr(tokenizer, token) is None:
            raise UserError(
                f"encoder {name}: its tokenizer has no {token}; choose an encoder that takes pairs of texts"
            )
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise UserError(
            f"encoder {name}: its tokenizer has {len(tokenizer)} tokens but the model {rows}; expected the tokenizer "
            "that the model was trained with"
        )


def _positions(model: Any) -> tuple[int, int]:
    """Usable positions, and the first. RoBERTa and its kin count from behind the padding's position: two are lost."""
    stated = getattr(model.config, "max_position_embeddings", None) or DEFAULT_MAX_LENGTH
    tables = [
        module
        for name, module in model.named_modules()
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
    ]
    lost = [0 if table.padding_idx is None else table.padding_idx + 1 for table in tables]
    usable = min([stated, *(table.num_embeddings - first for table, first in zip(tables, lost, strict=True))])
    return usable, max(lost, default=0)
