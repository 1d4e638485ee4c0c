"""A folder in the layout of BEIR: corpus.jsonl, queries.jsonl and, where queries are judged, qrels/*.tsv.

BEIR: Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models", 2021.
"""

import contextlib
import functools
import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern

import numpy as np

from rerank.data.folds import Judged, merge_splits
from rerank.data.id_table import RepeatedIdError
from rerank.data.queries import read_queries
from rerank.data.store import ArrayStore, StoreWriter, open_store
from rerank.data.text_lines import (
    LONGEST_LINE,
    check_id,
    parse_object,
    read_blocks,
    read_lines,
    read_objects,
    size_of,
    text_under,
)
from rerank.data.types import Document, Judgments
from rerank.utils.errors import UserError
from rerank.utils.files import kept_hash, refused_in_one_line, remove, short_hash, user_cache
from rerank.utils.inside import inside
from rerank.utils.progress import progress

CORPUS = "corpus.jsonl"
QUERIES = "queries.jsonl"
QRELS = "qrels/test.tsv"
JUDGMENTS = "qrels/*.tsv"
OFFSET = "offset"  # the column of the store: the first byte of a document's line
LARGE_CORPUS = 2**26  # bytes from which a corpus' offsets are cached on disk: finding them takes a second or more
LARGE_QRELS = 2**22  # bytes from which judgments are kept in arrays: 8 bytes each instead of 380 in a dictionary
FILES = {"train": "qrels/train.tsv", "valid": "qrels/dev.tsv", "test": QRELS}


@dataclass(frozen=True)
class BeirFolder:
    """A collection in a folder; see `Source` for its attributes.

    `id_key`, `title_key` and `text_key` are the keys of a line's JSON object; files with other keys need a subclass of
    a few lines (see CONTRIBUTING.md). The title is optional. Opening raises UserError if there is no corpus.jsonl; the
    other files are needed only when they are read.
    """

    source: str
    id_key: str = "_id"
    title_key: str = "title"
    text_key: str = "text"
    has_documents = found_at_once = True

    def __post_init__(self) -> None:
        self._check_files(CORPUS)

    @classmethod
    def matches(cls, source: str) -> bool:
        return Path(source).is_dir()

    @property
    def name(self) -> str:
        return self._folder.resolve().name

    @functools.cached_property
    def judged(self) -> Judged:
        """The judgments, and the published split if qrels/test.tsv and qrels/train.tsv exist.

        A note names the unused files in qrels/. Raises UserError for a malformed file, and if all training queries are
        in another file too.
        """
        found = set(self._folder.glob(JUDGMENTS))
        if not found:
            return Judged({})
        self._check_files(QRELS)
        published = inside(self._folder, FILES["train"]).is_file()
        paths = {split: inside(self._folder, name) for split, name in FILES.items()}
        files = {split: path for split, path in paths.items() if published or split == "test"}
        splits = {split: _read_qrels(file) for split, file in files.items() if file.is_file()}
        unused = sorted(file.name for file in found.difference(files.values()))
        why = "" if published else f"; a published split needs {FILES['train']} beside {QRELS}"
        note = f"{self.source}: in qrels/, {', '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used{why}"
        notes = (note,) if unused else ()
        return merge_splits(splits, self.source, *notes) if published else Judged(splits["test"], notes=notes)

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        """The queries of queries.jsonl, by `read_queries`; raises UserError if a judged query is not among them."""
        return self.queries_by([self.text_key])

    def queries_by(self, fields: Sequence[str]) -> dict[str, str]:
        """The queries with the texts under these keys of queries.jsonl; raises UserError as `queries`."""
        self._check_files(QUERIES)
        path = self._folder / QUERIES
        queries = read_queries(path, self.id_key, fields)
        for query_id in self.judged.qrels:
            if query_id not in queries:
                missing = f"judges query {query_id}, which is not in {path}; add it or drop its lines"
                raise UserError(f"{self._folder / 'qrels'}: {missing}")
        return queries

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of corpus.jsonl and its keys; the hash of a large file is cached (see `kept_hash`)."""
        keys = () if self._keys == ("_id", "title", "text") else self._keys
        with self._unchanged():
            return short_hash("beir", kept_hash(self._corpus), *keys)

    def place_of(self, query_id: str, doc_id: str) -> str:
        for file in (self._folder / name for name in FILES.values()):
            for place, _, line in read_lines(file, "judgments") if file.is_file() else ():
                words = line.split()
                if words[:1] == [query_id.encode()] and words[-2:-1] == [doc_id.encode()]:
                    return place
        return f"{self.source}, query {query_id}, document {doc_id}"

    def expect_judgments(self) -> None:
        self._check_files(CORPUS, QUERIES, QRELS)

    def count(self) -> int:
        blocks = read_blocks(self._corpus, CORPUS, LONGEST_LINE)
        return sum(block.count(b"\n") + (not block.endswith(b"\n")) for block in blocks)

    def documents(self) -> Iterator[Document]:
        _ = self._index  # raises an error for a repeated id; a set of all ids of a large file needs too much memory
        with self._unchanged():
            yield from (document for _, _, document in self._records())

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        rows, offsets = self._index
        try:
            asked = np.fromiter(map(rows.__getitem__, doc_ids), np.int64, len(doc_ids))
        except KeyError as error:
            why = "the run, judgments or lists come from another collection"
            raise UserError(f"{self._corpus}: has no document {error.args[0]}; {why}") from None
        with self._unchanged(), self._corpus.open("rb") as corpus:
            for doc_id, offset in zip(doc_ids, offsets[asked].tolist(), strict=True):
                corpus.seek(offset)
                place = f"{self._corpus}, document {doc_id}"
                yield self._document(parse_object(corpus.readline(), place, self._expected), place)

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        rows, _ = self._index
        return {doc_id for doc_id in doc_ids if doc_id in rows}

    def copy_to(self, folder: Path) -> "BeirFolder":
        """The documents in a copy of the corpus, without queries. Raises UserError as `Source`, and for a full disk.

        The copy has the same hash and the same offsets, so neither is computed again.
        """
        computed = {"fingerprint": self.fingerprint, "_index": self._index}
        with self._unchanged(), refused_in_one_line(f"{folder / CORPUS}: cannot be written"):
            shutil.copyfile(self._corpus, folder / CORPUS)
        copied = BeirFolder(str(folder), *self._keys)
        vars(copied).update(computed)  # where functools.cached_property keeps them
        return copied

    @property
    def is_changed(self) -> bool:
        """Whether the corpus has another size or time than when it was first read."""
        return self._stamp != self._stamp_now()

    @functools.cached_property
    def _stamp(self) -> tuple[int, int]:
        return self._stamp_now()

    def _stamp_now(self) -> tuple[int, int]:
        status = self._corpus.stat() if self._corpus.exists() else None
        return (status.st_size, status.st_mtime_ns) if status else (-1, -1)

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Raises UserError if the corpus is not the one that was first read, before or after the block.

        What is made of the documents is kept under the name of their hash: no other documents may get into it.
        """
        self._check_unchanged()
        try:
            yield
        except UserError:  # a line that is malformed because another one is there now
            self._check_unchanged()
            raise
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        if self.is_changed:
            raise UserError(f"{self._corpus}: has changed since it was opened; run the command again")

    @functools.cached_property
    def _index(self) -> tuple[Mapping[str, int], np.ndarray]:
        """The row of each document by its id, and by row the first byte of the document's line."""
        if self._corpus.stat().st_size >= LARGE_CORPUS:
            store = self._open_offsets()
            return store.ids, store.values[OFFSET]
        rows: dict[str, int] = {}
        offsets: list[int] = []
        for place, offset, doc_id in self._lines():
            if doc_id in rows:
                raise _repeated(place, doc_id)
            rows[doc_id] = len(offsets)
            offsets.append(offset)
        return rows, np.array(offsets, np.int64)

    def _open_offsets(self) -> ArrayStore:
        """A store of the offset of each document, in the user's cache."""

        def fill(writer: StoreWriter) -> None:
            for _, offset, doc_id in itertools.islice(self._lines(), writer.items, None):
                writer.add(doc_id, [offset])

        status, cache = self._corpus.stat(), user_cache("offsets")
        name = short_hash(self._corpus.resolve(), *self._keys)
        folder = cache / f"{name}-{short_hash(status.st_size, status.st_mtime_ns)}"
        for other in cache.glob(f"{name}-*"):  # caches of earlier versions of the file
            if other != folder:
                remove(other)
        try:
            return open_store(folder, "offsets", {OFFSET: np.int64}, fill)
        except RepeatedIdError as error:
            place, _, doc_id = next(itertools.islice(self._lines(), error.args[1], None))
            raise _repeated(place, doc_id) from None

    def _lines(self) -> Iterator[tuple[str, int, str]]:
        """Yields the place as file:line, the first byte of the line, and the id of each document."""
        for place, offset, document in progress(self._records(), self.count(), f"indexing {CORPUS}"):
            yield place, offset, document.doc_id

    @property
    def _folder(self) -> Path:
        return Path(self.source)

    @property
    def _corpus(self) -> Path:
        return self._folder / CORPUS

    @property
    def _keys(self) -> tuple[str, str, str]:
        return self.id_key, self.title_key, self.text_key

    @property
    def _expected(self) -> str:
        return f"an object with {self.id_key} and {self.text_key} on one line"

    def _check_files(self, *names: str) -> None:
        missing = [name for name in names if not inside(self._folder, name).is_file()]
        if missing:
            raise UserError(
                f"{self.source}: no {' and no '.join(missing)}; a collection folder holds {CORPUS} (lines with "
                f"{self.id_key}, {self.title_key}, {self.text_key}), {QUERIES} (lines with {self.id_key}, "
                f"{self.text_key}) and, to train and to evaluate, {QRELS} (query id, document id and relevance, "
                "tab-separated)"
            )

    def _records(self) -> Iterator[tuple[str, int, Document]]:
        for place, offset, record in read_objects(self._corpus, self._expected):
            yield place, offset, self._document(record, place)

    def _document(self, record: Mapping[str, object], place: str) -> Document:
        doc_id, text = text_under(record, self.id_key, place), text_under(record, self.text_key, place)
        # Some corpora have no titles.
        title = "" if record.get(self.title_key) is None else text_under(record, self.title_key, place)
        check_id(doc_id, place, f"the {self.id_key}")
        return Document(intern(doc_id), title, text)


def _repeated(place: str, doc_id: str) -> UserError:
    return UserError(f"{place}: the document {doc_id} occurs a second time; expected each id once")


def _read_qrels(file: Path) -> Judgments:
    from rerank.data.runs import read_qrels_arrays  # loads pyarrow

    arrays = read_qrels_arrays(file)
    return arrays if size_of(file) >= LARGE_QRELS else dict(arrays)
