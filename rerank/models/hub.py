"""Finds the folder of a Hugging Face encoder: on disk, in the cache, or downloaded from huggingface.co."""

from pathlib import Path

from rerank.errors import UserError
from rerank.utils.progress import log

NEEDED = {  # any of the files on the right is enough
    "config.json": ("config.json",),
    "weights": ("model*.safetensors", "pytorch_model*.bin"),
    "a tokenizer": ("tokenizer.json", "vocab.*", "*.model"),  # without one, transformers would make up an empty one
}
ALL_BUT_PICKLES = ["*.json", "*.txt", "*.model", "model*.safetensors"]
PICKLES = ["pytorch_model*.bin"]


def encoder_folder(name: str) -> Path:
    """The folder `name` itself, or else that of the model of this name in the cache, downloaded if it is not there.

    Raises UserError where there is none, or where it lacks its config, weights or tokenizer.
    """
    path = Path(name)
    if path.is_dir():
        if lacking := _lacking(path):
            raise UserError(f"encoder {name}: the folder lacks {lacking}; give one that save_pretrained wrote")
        return path
    if path.exists():
        raise UserError(f"encoder {name}: is a file, expected a folder; give the one that holds its config.json")
    return _cached(name) or _downloaded(name)


def _lacking(folder: Path) -> str:
    return " and ".join(need for need, files in NEEDED.items() if not any(any(folder.glob(file)) for file in files))


def _cached(name: str) -> Path | None:
    """The model's folder in the cache if it is complete; nothing is asked of the network."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=ALL_BUT_PICKLES, local_files_only=True))
    except errors.HFValidationError as error:
        raise UserError(f"encoder {name}: no such folder, and not a name on huggingface.co; check the path") from error
    except errors.LocalEntryNotFoundError:
        return None
    return None if _lacking(folder) else folder


def _downloaded(name: str) -> Path:
    from huggingface_hub import constants, errors, logging, snapshot_download

    logging.set_verbosity_error()
    if not constants.HF_HUB_OFFLINE:
        log.info(f"encoder {name}: not in the cache, asking {constants.ENDPOINT}")
    try:
        folder = Path(snapshot_download(name, allow_patterns=ALL_BUT_PICKLES))
        if "weights" in _lacking(folder):
            folder = Path(snapshot_download(name, allow_patterns=PICKLES))
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"encoder {name}: no such folder, and {constants.ENDPOINT} has no model of this name that you may read; "
            "check the name, or log in with `hf auth login` if it is private or gated"
        ) from error
    except Exception as error:  # the network and the disk have many ways to fail
        raise UserError(
            f"encoder {name}: no such folder, not in the Hugging Face cache ({constants.HF_HUB_CACHE}), and not to be "
            f"had from {constants.ENDPOINT} ({str(error).partition(chr(10))[0]}); connect once, set HF_HOME to a cache "
            "that has it, or give the folder of a downloaded model"
        ) from error
    if lacking := _lacking(folder):
        raise UserError(f"encoder {name}: {constants.ENDPOINT} has it without {lacking}; choose another")
    return folder
