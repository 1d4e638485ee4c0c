"""Uploads a checkpoint to huggingface.co (`rerank push`)."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rerank.config import EncoderSettings
from rerank.evaluation.tables.table import aligned
from rerank.experiments.model_card import CARD
from rerank.models.checkpoints import HEAD_FILE, open_trained_weights, save_cross_encoder
from rerank.models.modules_json import MODULES_FILE
from rerank.utils.errors import UserError
from rerank.utils.progress import log

NAME = re.compile(r"[\w.-]+/[\w.-]+")


def push_checkpoint(checkpoint: Path, name: str, private: bool = False, dry_run: bool = False) -> str:
    """Uploads the folder of a trained model to the model `name`, user/name, which is made unless it exists.

    A checkpoint of an older version, whose head other libraries do not find, is uploaded in today's form.

    Args:
        checkpoint: the folder; it is not changed.
        name: user/name.
        private: whether a new model is private.
        dry_run: whether to upload nothing.

    Returns:
        The address of the model; for a dry run the table of the files and their sizes.

    Raises:
        UserError: the folder is no trained model, the name is not valid, or the upload failed.
    """
    from huggingface_hub import errors, utils

    try:
        utils.validate_repo_id(name)
        valid = NAME.fullmatch(name) is not None
    except errors.HFValidationError:
        valid = False
    if not valid:
        raise UserError(f"{name}: not a name on huggingface.co; expected user/name, of letters, digits, '-', '_', '.'")
    if not checkpoint.is_dir():
        raise UserError(f"{checkpoint}: no such folder; expected a checkpoint, such as runs/…/fold1/checkpoint")
    with _readable_elsewhere(checkpoint) as folder:
        return _table(folder, name) if dry_run else _upload(folder, name, private)


@contextmanager
def _readable_elsewhere(checkpoint: Path) -> Iterator[Path]:
    """The folder to upload; raises UserError if it has no trained head."""
    model, tokenizer, _, max_doc_tokens = open_trained_weights(
        str(checkpoint), EncoderSettings.pooling, EncoderSettings.max_doc_tokens
    )
    if not (checkpoint / HEAD_FILE).is_file() or (checkpoint / MODULES_FILE).is_file():
        yield checkpoint
        return
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / checkpoint.absolute().name
        save_cross_encoder(model, tokenizer, folder, max_doc_tokens)
        if (checkpoint / CARD).is_file():
            shutil.copy2(checkpoint / CARD, folder)
        log.info(f"{checkpoint}: written by an older version; uploaded in the form that other libraries read")
        yield folder


def _files(folder: Path) -> list[Path]:
    """The files to upload: all that are not hidden."""
    relative = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path for path in relative if not any(part.startswith(".") for part in path.parts)]


def _table(folder: Path, name: str) -> str:
    files = _files(folder)
    sizes = [(folder / path).stat().st_size for path in files]
    texts = [f"{size:,}" for size in [*sizes, sum(sizes)]]
    width = max(map(len, texts))
    names = [*(path.as_posix() for path in files), f"{len(files)} files for {name}"]
    return aligned([["bytes".rjust(width), "file"], *([s.rjust(width), n] for s, n in zip(texts, names, strict=True))])


def _upload(folder: Path, name: str, private: bool) -> str:
    from huggingface_hub import HfApi, constants, errors

    api = HfApi()
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        files = [path.as_posix() for path in _files(folder)]
        api.upload_folder(
            repo_id=name, folder_path=folder, allow_patterns=files, commit_message="Checkpoint written by rerank"
        )
    except Exception as error:  # network errors have many types
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, errors.LocalTokenNotFoundError) or status == 401:
            advice = "log in with `hf auth login`, or set HF_TOKEN"
        elif isinstance(error, errors.OfflineModeIsEnabled):
            advice = "unset HF_HUB_OFFLINE"
        elif status == 403:
            advice = "take a name of a user or an organisation that you may write to, and a token with write access"
        else:
            advice = "check the connection; the same command goes on"
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"{name}: not uploaded to {constants.ENDPOINT}: {reason}; {advice}") from error
    return str(address)
