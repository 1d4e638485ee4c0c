"""The records of a JSONL file or of a Hugging Face data set folder, such as pairs and triples of texts."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.text_lines import read_objects
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, short_hash
from rerank.utils.inside import inside

QUERY_KEYS = ("anchor", "query")
"""The keys of the query of a pair; the first that a record has."""

POSITIVE = "positive"
"""The key of the relevant text."""

NEGATIVE = "negative"
"""The beginning of the keys of other texts: negative, negative_1, negative_2, …"""

PAIR_LINE = '{"anchor": …, "positive": …, "negative": …}'

SUFFIXES = (".arrow", ".parquet")
"""The files of a data set folder: those of `save_to_disk`, and those of the hub."""

CACHE = "cache-"
"""Prefix of the files in which the package datasets keeps what was computed from those of the folder."""


class Pair(NamedTuple):
    """A query, a relevant text, and texts that are not relevant, maybe none."""

    query: str
    positive: str
    negatives: tuple[str, ...]


def read_records(source: str | Path, expected: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place and the object of each line of a JSONL file, or of each row of a data set folder.

    Raises UserError for a file that cannot be read, a line that is no object, and a folder without SUFFIXES.
    """
    if not Path(source).is_dir():
        for place, _, record in read_objects(source, expected):
            yield place, record
        return
    for file in data_files(source):
        number = 0
        for batch in _batches(file):
            for record in batch:
                number += 1
                yield f"{file}, row {number}", record


def data_files(folder: str | Path) -> list[Path]:
    """The files with the rows of a data set folder, in its order; raises UserError if there is none."""
    places = [f"{below}*{suffix}" for below in ("", "*/") for suffix in SUFFIXES]
    found = (file for place in places for file in Path(folder).glob(place))
    files = sorted(file for file in found if not file.name.startswith(CACHE))
    if not files:
        raise UserError(f"{folder}: has no file of a data set; expected {' or '.join(SUFFIXES)} files")
    return [inside(Path(folder), str(file.relative_to(folder))) for file in files]


def source_hash(source: Path) -> str:
    """A hash of the file, or of the files of a data set folder; "" if there is none."""
    if source.is_dir():
        return short_hash(*map(file_hash, data_files(source)))
    return file_hash(source) if source.is_file() else ""


def text_id(text: str) -> str:
    """The id of a text: equal texts have equal ids.

    >>> text_id("wing flutter")
    '115163ad8b8708395c8adb0392035bdc'
    """
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def pair_of(record: dict[str, Any], place: str) -> Pair | None:
    """The pair of a record; None if it has no positive text. Raises UserError with the place for a wrong type."""
    if POSITIVE not in record:
        return None
    keys = [key for key in QUERY_KEYS if key in record][:1]
    negatives = [key for key in record if key == NEGATIVE or key.startswith(f"{NEGATIVE}_")]
    texts = [record.get(key) for key in (*keys, POSITIVE, *negatives)]
    if not keys or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(f"{place}: expected texts as in {PAIR_LINE}, got the keys {', '.join(record)}")
    query, positive, *others = map(str, texts)
    return Pair(query, positive, tuple(dict.fromkeys(text for text in others if text != positive)))


def _batches(file: Path) -> Iterator[list[dict[str, Any]]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if file.suffix == ".parquet":
            for batch in parquet.ParquetFile(file).iter_batches():
                yield batch.to_pylist()
            return
        with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as reader:
            for batch in reader:
                yield batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file}: cannot be read: {' '.join(str(error).split())[:200]}") from error
