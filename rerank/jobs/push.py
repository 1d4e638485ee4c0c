"""Uploads a checkpoint to huggingface.co (`rerank push`)."""

import re
from pathlib import Path

from rerank.config import EncoderSettings
from rerank.evaluation.tables.table import aligned
from rerank.models.checkpoints import open_trained_weights
from rerank.utils.errors import UserError

NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def push_checkpoint(checkpoint: Path, name: str, private: bool = False, dry_run: bool = False) -> str:
    """Uploads the folder of a trained model to the model `name`, user/name, which is made unless it exists.

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
    if not NAME.fullmatch(name):
        raise UserError(f"{name}: not a name on huggingface.co; expected user/name, of letters, digits, '-', '_', '.'")
    if not checkpoint.is_dir():
        raise UserError(f"{checkpoint}: no such folder; expected a checkpoint, such as runs/…/fold1/checkpoint")
    open_trained_weights(str(checkpoint), EncoderSettings.pooling, EncoderSettings.max_doc_tokens)
    return _table(checkpoint, name) if dry_run else _upload(checkpoint, name, private)


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
