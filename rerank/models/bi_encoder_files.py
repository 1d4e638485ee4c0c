"""The files of a bi-encoder: what identifies its vectors, and whether it is one at all."""

from pathlib import Path
from typing import Any

from rerank.models.config_file import CheckpointConfig
from rerank.models.hub import HASHED, encoder_folder
from rerank.models.modules_json import MODULES_FILE
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, short_hash
from rerank.utils.json_files import read_json

HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
"""How the architectures end whose models do not compare vectors."""
EXPECTED = "expected a bi-encoder; choose one such as sentence-transformers/all-MiniLM-L6-v2"


def bi_encoder_hash(name: str) -> str:
    """A hash of the files of a bi-encoder and of its modules. Raises UserError as `encoder_folder`."""
    folder = encoder_folder(name)
    files = sorted(file for kind in HASHED for file in folder.rglob(kind))
    return short_hash(*(f"{file.relative_to(folder)} {file_hash(file)}" for file in files))


def expect_bi_encoder(folder: Path, name: str) -> None:
    """Raises UserError if the files say that the model is something else, such as a cross-encoder."""
    file = folder / "config_sentence_transformers.json"
    stated = read_json(file, dict[str, Any], EXPECTED).get("model_type") if file.is_file() else None
    if stated not in (None, "SentenceTransformer"):
        raise UserError(f"encoder {name}: is a {stated}; {EXPECTED}")
    if (folder / MODULES_FILE).is_file():
        return
    config: CheckpointConfig = read_json(folder / "config.json", CheckpointConfig, EXPECTED)
    if heads := [kind for kind in config.get("architectures") or () if kind.endswith(HEADS)]:
        raise UserError(f"encoder {name}: is a {heads[0]}, which compares no vectors; {EXPECTED}")
