"""The parts of a checkpoint's JSON files that this package reads itself; transformers checks the others."""

from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec

from rerank.utils.json_files import read_json


class SavedSettings(TypedDict, total=False):
    """What `save_cross_encoder` records in config.json under `rerank`."""

    pooling: str
    max_doc_tokens: Annotated[int, msgspec.Meta(ge=1)]
    passage_overlap: Annotated[int, msgspec.Meta(ge=0)]
    title_tokens: Annotated[int, msgspec.Meta(ge=0)]
    template: str
    first_stage_weight: float
    first_stage: str
    collection: str
    language: str
    head: dict[str, Any]
    pretraining: dict[str, Any] | None


class CheckpointConfig(TypedDict, total=False):
    """config.json."""

    architectures: list[str] | None
    model_type: str
    rerank: SavedSettings
    sentence_transformers: dict[str, Any]


class TokenizerConfig(TypedDict, total=False):
    """tokenizer_config.json."""

    model_max_length: float | None
    chat_template: str | list[Any] | None


def check_config_files(folder: Path) -> None:
    """Raises UserError if config.json or tokenizer_config.json, which may be missing, cannot be read."""
    remedy = "expected an encoder in Hugging Face format; download or save it again"
    read_json(folder / "config.json", CheckpointConfig, remedy)
    if (folder / "tokenizer_config.json").is_file():
        read_json(folder / "tokenizer_config.json", TokenizerConfig, remedy)
