"""Finds the files of a Hugging Face model: in a folder, in the cache, or by a download."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

from rerank.data.splitting import Cut
from rerank.models.model_files import MODULES_FILE, model_files, module_folders
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, short_hash
from rerank.utils.inside import check_inside
from rerank.utils.json_files import read_json
from rerank.utils.progress import log, quiet

REQUIRED = {  # any one of the files on the right is enough
    "config.json": ("config.json",),
    "weights": ("model*.safetensors", "pytorch_model*.bin"),
    "a tokenizer": ("tokenizer.json", "vocab.*", "*.model"),  # without one, transformers would create an empty one
}
ALL_BUT_PICKLES = ["*.json", "*.txt", "*.model", "model*.safetensors"]
ALL_BUT_PICKLES += ["[0-9]_*/model*.safetensors", "*_[0-9]_*/model*.safetensors"]
"""The files to download; the last two patterns are for modules of sentence-transformers: 2_Dense, document_0_MLM."""

SENTENCE_FILE = "config_sentence_transformers.json"
"""What sentence-transformers writes beside a config.json."""

EXPORT_FILE = "export.json"
"""The facts that `rerank export` records in its folder."""


def encoder_folder(name: str) -> Path:
    """The folder of a model: `name` itself, or its folder in the cache, after a download if necessary.

    Raises UserError if there is no such model, or if its config, weights or tokenizer are missing.
    """
    path = Path(name)
    if path.is_dir():
        if (path / EXPORT_FILE).is_file():
            raise UserError(
                f"encoder {name}: is an exported graph, which can only score; give its checkpoint, which its "
                f"{EXPORT_FILE} names"
            )
        if missing := _missing(path):
            raise UserError(f"encoder {name}: the folder lacks {missing}; give one that save_pretrained wrote")
        check_inside(path)
        return path
    if path.exists():
        raise UserError(f"encoder {name}: is a file, expected a folder; give the one that holds its config.json")
    return _cached(name) or _downloaded(name)


def local_folder(name: str) -> Path | None:
    """The folder of a model if it is on this machine, else None; never uses the network."""
    try:
        return Path(name) if Path(name).is_dir() else _cached(name)
    except UserError:  # a path that is no name on the hub
        return None


def file_hashes(name: str) -> list[str]:
    """The name and the SHA-256 of each file of a model, and of a bi-encoder's modules."""
    folder = encoder_folder(name)
    return [f"{file.relative_to(folder)} {file_hash(file)}" for file in model_files(folder)]


def bi_encoder_hash(name: str) -> str:
    """A hash of the files of a bi-encoder and of its modules."""
    return short_hash(*file_hashes(name))


def _missing(folder: Path) -> str:
    places = list(module_folders(folder))  # a router has all files in the folders of its modules
    return " and ".join(
        need for need, files in REQUIRED.items() if not any(any(place.glob(f)) for place in places for f in files)
    )


def _cached(name: str) -> Path | None:
    """The model's folder in the cache if it is complete; never uses the network."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=ALL_BUT_PICKLES, local_files_only=True))
    except errors.HFValidationError as error:
        raise UserError(f"encoder {name}: no such folder; check the path: it is no name on the hub") from error
    except errors.LocalEntryNotFoundError:
        return None
    return None if _missing(folder) else folder


def _downloaded(name: str) -> Path:
    from huggingface_hub import constants, errors, snapshot_download

    if not constants.HF_HUB_OFFLINE:
        log.info(f"encoder {name}: not in the cache, asking {constants.ENDPOINT}")
    try:
        with quiet("huggingface_hub"):
            folder = Path(snapshot_download(name, allow_patterns=[*ALL_BUT_PICKLES, "README.md"]))  # with the licence
            if pickles := _pickles(folder):
                folder = Path(snapshot_download(name, allow_patterns=pickles))
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"encoder {name}: no such folder, and {constants.ENDPOINT} has no model of this name that you may read; "
            "check the name, or log in with `hf auth login` if it is private or gated"
        ) from error
    except Exception as error:  # network and disk errors have many types
        raise UserError(
            f"encoder {name}: no such folder, not in the Hugging Face cache ({constants.HF_HUB_CACHE}), and the "
            f"download from {constants.ENDPOINT} failed ({str(error).partition(chr(10))[0]}); connect once, set "
            "HF_HOME to a cache that has it, or give the folder of a downloaded model"
        ) from error
    if missing := _missing(folder):
        raise UserError(f"encoder {name}: {constants.ENDPOINT} has it without {missing}; choose another")
    return folder


def _pickles(folder: Path) -> list[str]:
    """The patterns of pickled weights, for the folders of a model and of its modules that have no others."""
    without = [place for place in module_folders(folder) if not any(place.glob("model*.safetensors"))]
    return [str(place.relative_to(folder) / "pytorch_model*.bin") for place in without]


class Recorded(TypedDict, total=False):
    """What `save_cross_encoder` records of a cross-encoder; `depth`: candidates of a query in the training."""

    pooling: str
    template: str
    max_doc_tokens: Annotated[int, Meta(ge=1)]
    depth: Annotated[int, Meta(ge=1)]
    passage_tokens: Annotated[int, Meta(ge=0)]
    passage_overlap: Annotated[int, Meta(ge=0)]
    first_stage_weight: float
    first_stage: str
    collection: str
    language: str
    query_field: str
    head: dict[str, str | float]


def recorded_cut(settings: Recorded) -> Cut:
    """How the settings of a checkpoint of ours cut documents."""
    return Cut(settings.get("passage_tokens", 0), settings.get("passage_overlap", 0))


class CheckpointConfig(TypedDict, total=False):
    """What is read of a config.json."""

    model_type: str
    architectures: list[str] | None
    rerank: Recorded


class TokenizerConfig(TypedDict, total=False):
    """What is read of a tokenizer_config.json."""

    model_max_length: Annotated[float, Meta(ge=1)] | None
    tokenizer_class: str | None
    model_input_names: list[str]
    chat_template: str | list[dict[str, str]] | None
    pad_token: str | dict[str, object] | None
    sep_token: str | dict[str, object] | None
    cls_token: str | dict[str, object] | None
    unk_token: str | dict[str, object] | None
    eos_token: str | dict[str, object] | None
    bos_token: str | dict[str, object] | None


class SentenceConfig(TypedDict, total=False):
    """What is read of a config_sentence_transformers.json."""

    model_type: str | None
    prompts: dict[str, str | None] | None
    default_prompt_name: str | None
    similarity_fn_name: str | None


def read_configs(folder: Path) -> CheckpointConfig:
    """The config of a model, after a check of its types and of those of the files beside it."""
    remedy = "download or save it again"
    for name, shape in (("tokenizer_config.json", TokenizerConfig), (SENTENCE_FILE, SentenceConfig)):
        if (folder / name).is_file():
            read_json(folder / name, shape, remedy)
    if not (folder / "config.json").is_file() and (folder / MODULES_FILE).is_file():
        return CheckpointConfig()  # the modules have configs of their own
    config: CheckpointConfig = read_json(folder / "config.json", CheckpointConfig, remedy)
    return config


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Within the block transformers, sentence-transformers and the hub log only errors and draw no progress bars."""
    import transformers

    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()  # and the hub's
    try:
        with quiet("transformers", "sentence_transformers", "huggingface_hub"):
            yield
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()
