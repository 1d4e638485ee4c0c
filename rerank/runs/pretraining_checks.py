"""The check of a finished pre-training: its files against its manifest."""

from rerank.runs.layout import PretrainingFolder
from rerank.runs.manifest import read_manifest
from rerank.utils.errors import UserError
from rerank.utils.integrity import changes


def check_pretraining(folder: PretrainingFolder) -> list[str]:
    """A line for each difference; none if the pre-training is what was written."""
    try:
        return list(changes(folder.path, read_manifest(folder.manifest, "files")["files"]))
    except UserError as error:
        return [str(error).removeprefix(f"{folder.path}/")]


def expect_undamaged(folder: PretrainingFolder) -> None:
    """Raises UserError if a finished pre-training is not what was written."""
    if errors := check_pretraining(folder):
        raise UserError(
            f"{folder.path}: the pre-training is damaged: {'; '.join(errors)}; remove the folder to pre-train again"
        )
