"""BM25 by Pyserini (Lucene), optionally with RM3, with the documents and scores of Pyserini's searcher.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; Lin et al., "Pyserini", 2021.
RM3 adds words of the best documents to the query: Abdul-Jaleel et al., "UMass at TREC 2004".
"""

import base64
import contextlib
import functools
import itertools
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from rerank.config.functions import setting_types, validate_setting
from rerank.config.languages import ENGLISH
from rerank.data.collections import Collection, open_collection, queries_to_search
from rerank.data.given import given_count, given_number, given_whole
from rerank.data.mapped import slices_of
from rerank.data.store import file_of, map_items, writing
from rerank.data.trec import lines_of_query
from rerank.data.types import Run
from rerank.retrieval.java import JavaObject, java_class
from rerank.retrieval.lucene_index import SEARCHER, check_index, choose_index, index_identity, reading
from rerank.retrieval.words import open_analyzer
from rerank.utils.errors import UserError
from rerank.utils.files import remove, short_hash, short_hash_of
from rerank.utils.integrity import Facts, facts_of, unfinished_folder
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log, progress
from rerank.utils.texts import check_name, check_path

TAG = "Anserini"
LINES = "lines"
COLUMNS = {LINES: np.uint8}  # the store of an unfinished run: the lines of each query
QUERIES_AT_ONCE = 20  # queries of a batch search
MAX_TERMS = 2**31 - 1
"""Largest number of distinct terms of a query; Lucene's default, 1,024, raises an error for longer queries."""
STEP = np.float32(1e-4)
"""The precision to which Anserini rounds scores; scores closer than this count as ties."""
SHIFT = np.float32(1e-6)
"""The difference by which Anserini moves each tied score below the one before."""
RM3_WORDS = 10
"""Words that RM3 adds to a query."""
RM3_DOCUMENTS = 10
"""Documents from which RM3 takes words."""
RM3_QUERY_WEIGHT = 0.5
"""Weight of the query's own words in RM3."""


class WrittenRun(NamedTuple):
    """Facts of a written run: its queries with candidates, its candidates, and the size and hash of its file."""

    queries: int
    candidates: int
    facts: Facts


@dataclass(frozen=True)
class Searcher:
    """BM25 on a Lucene index. `language` is the language of the queries, normally also of the index.

    The first search opens the index. The next ones read the files that were opened, also if others replace them. All
    methods raise UserError for an unknown language, if `index` is not a Lucene index, and with `rm3` if the index
    does not store the words of its documents.
    """

    index: Path
    k1: float = 0.9
    b: float = 0.4
    language: str = ENGLISH
    rm3: bool = False

    def search(self, queries: Mapping[str, str], depth: int, threads: int | None = None) -> Run:
        """The best `depth` documents of each query, best first; `threads` is by default the number of cores.

        Queries without a result are not in the run; the log has their number.
        """
        run = {query_id: scores for query_id, scores in self.search_each(queries, depth, threads) if scores}
        log_unanswered(len(queries) - len(run), len(queries))
        return run

    def search_each(
        self, queries: Mapping[str, str], depth: int, threads: int | None = None, before: int = 0
    ) -> Generator[tuple[str, dict[str, float]]]:
        """Searches query by query, in order, after the first `before`; a query without a result gives {}."""
        searcher = self.lucene
        left = iter(progress(itertools.islice(queries.items(), before, None), len(queries), "BM25", before=before))
        while batch := dict(itertools.islice(left, QUERIES_AT_ONCE)):
            yield from self._search_batch(searcher, batch, depth, threads or count_cores())

    def _search_batch(
        self, searcher: JavaObject, queries: Mapping[str, str], depth: int, threads: int
    ) -> list[tuple[str, dict[str, float]]]:
        with reading(self.index), _any_number_of_terms():
            array = java_class("java.util.Arrays")
            texts, ids = array.asList(*queries.values()), array.asList(*queries)
            results = searcher.batch_search(texts, ids, depth, threads)
            return [(query_id, {hit.docid: hit.score for hit in results.get(query_id) or ()}) for query_id in queries]

    def search_one(self, query: str, depth: int) -> dict[str, float]:
        """Searches for one query in this thread, without logging; {} for a query without a word of the index.

        It calls Lucene directly: SimpleSearcher would read the stored fields of each hit into an object, which takes
        two thirds of the time of a query.
        """
        searcher = self.lucene
        with reading(self.index), _any_number_of_terms():
            if self.rm3:
                return {hit.docid: hit.score for hit in searcher.search(query, depth)}
            lucene = java_class("org.apache.lucene.search.IndexSearcher")(searcher.reader)
            lucene.setSimilarity(searcher.similarity)
            parsed = searcher.generator.buildQuery("contents", searcher.analyzer, query)
            return _scores_of(lucene.search(parsed, depth, searcher.BREAK_SCORE_TIES_BY_DOCID, True))

    @functools.cached_property
    def lucene(self) -> JavaObject:
        """Anserini's SimpleSearcher of the index; it stays open for the next query."""
        check_index(self.index)
        with reading(self.index):
            searcher = java_class(SEARCHER)(str(self.index.resolve()))
            if self.language != ENGLISH:
                searcher.set_analyzer(open_analyzer(self.language))
            searcher.set_bm25(float(self.k1), float(self.b))
            if self.rm3:
                self._add_rm3(searcher)
            return searcher

    def _add_rm3(self, searcher: JavaObject) -> None:
        vectors, first = searcher.reader.termVectors(), range(min(RM3_DOCUMENTS, searcher.get_total_num_docs()))
        if not any(vectors.get(number) for number in first):
            raise UserError(
                f"index {self.index}: does not store the words of its documents, which rm3 needs; expected an index of "
                "Pyserini with --storeDocvectors, or --first-stage.index own"
            )
        only_latin = self.language == ENGLISH  # RM3 then adds only words in Latin script
        searcher.set_rm3(None, RM3_WORDS, RM3_DOCUMENTS, RM3_QUERY_WEIGHT, False, only_latin)


def retrieve(
    collection: Collection | str,
    depth: int = 1000,
    k1: float = 0.9,
    b: float = 0.4,
    index: str = "auto",
    cache: str | Path | None = None,
    threads: int | None = None,
    language: str = ENGLISH,
) -> Run:
    """The best `depth` documents of each judged query of a collection by BM25, best first.

    Without judgments all queries are searched, and so are all queries of the file of a collection that was opened with
    one. `collection` is an opened collection, or a folder or id to open. `index` is "auto", "own", the name of a
    prebuilt index of Pyserini or a folder, as for `--first-stage.index`. A new index is kept in the folder `cache`, by
    default a temporary folder that is removed. `language` is a code such as "de" (`rerank.config.languages`). Raises
    UserError for an index that cannot be found, downloaded or built, and for numbers out of the bounds of
    `FirstStageSettings`, and TypeError for arguments of other types.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "corpus.jsonl").write_text('{"_id": "d1", "title": "Wings", "text": "Lift and drag."}')
    ...     _ = Path(folder, "queries.jsonl").write_text('{"_id": "q1", "text": "drag"}')
    ...     retrieve(folder)
    {'q1': {'d1': 0.15139999985694885}}
    """
    collection = collection if isinstance(collection, Collection) else open_collection(collection)
    given_whole(depth, "depth")
    given_number(k1, "k1")
    given_number(b, "b")
    given_count(threads, "threads")
    bounds = setting_types()["first_stage"]
    for key, value in {"depth": int(depth), "k1": float(k1), "b": float(b), "threads": int(threads or 0)}.items():
        validate_setting(key, value, bounds[key])
    index, language = check_path("index", index), check_name("language", language)
    with contextlib.ExitStack() as stack:
        folder = cache or stack.enter_context(tempfile.TemporaryDirectory(prefix="rerank-"))
        found = choose_index(index, collection, Path(folder), threads, language)
        return Searcher(found, k1, b, language).search(queries_to_search(collection), depth, threads)


@contextlib.contextmanager
def write_bm25(
    file: Path, searcher: Searcher, queries: Mapping[str, str], depth: int, threads: int | None = None
) -> Iterator[WrittenRun]:
    """Writes the run of `Searcher.search` query by query, with the bytes that `write_run(as_found=True)` would write.

    Yields when the run is complete. After the block the run becomes `file`; the block raises an error for a run without
    candidates. An interrupted command resumes after its last query, if index, queries and settings are the same. Raises
    the errors of `Searcher`, and UserError if the disk is full. The caller holds a lock.
    """
    identity = index_identity(searcher.index), depth, searcher.k1, searcher.b, searcher.language
    work = short_hash(*identity, short_hash_of(queries.items()))
    folder = unfinished_folder(file.with_name(f"{file.name}-{work}"))
    for other in file.parent.glob(unfinished_folder(Path(f"{file.name}-*")).name):
        if other != folder:  # from another index, other queries or other settings
            remove(other)
    with writing(folder, COLUMNS) as writer:
        with contextlib.closing(searcher.search_each(queries, depth, threads, writer.items)) as found:
            for query_id, scores in found:
                text = lines_of_query(file, query_id, scores, TAG, as_found=True) if scores else ""
                writer.add(query_id, np.frombuffer(text.encode(), np.uint8))
        writer.flush()
        items = map_items(folder, COLUMNS)
    answered, lines = int((np.diff(items.offsets(LINES)) > 0).sum()), items.values[LINES]
    candidates = sum(int((lines[block] == ord("\n")).sum()) for block in slices_of(len(lines)))
    log_unanswered(len(queries) - answered, len(queries))
    if not candidates:
        remove(folder)
        yield WrittenRun(0, 0, Facts(bytes=0, xxh3_128=""))
        return
    run = file_of(folder, LINES)
    yield WrittenRun(answered, candidates, facts_of(run))
    os.replace(run, file)
    remove(folder)


def log_unanswered(unanswered: int, queries: int) -> None:
    if unanswered:
        log.info(f"{unanswered} of {queries} queries find no document")


@contextlib.contextmanager
def _any_number_of_terms() -> Iterator[None]:
    """Raises Lucene's limit on the terms of a query to MAX_TERMS within the block; the limit is global in Lucene."""
    lucene = java_class("org.apache.lucene.search.IndexSearcher")
    before = lucene.getMaxClauseCount()
    lucene.setMaxClauseCount(MAX_TERMS)
    try:
        yield
    finally:
        lucene.setMaxClauseCount(before)


def _scores_of(top: JavaObject) -> dict[str, float]:
    """doc_id -> score of Lucene's TopFieldDocs, best first; a hit's fields are its score and its id, a BytesRef.

    All hits come from Java as one text, because one call per hit takes longer than the search.
    """
    hits = [hit["fields"] for hit in msgspec.json.decode(_writer().writeValueAsString(top))["scoreDocs"]]
    ids = (base64.b64decode(ref["bytes"])[ref["offset"] :][: ref["length"]].decode() for _, ref in hits)
    scores = without_ties(np.array([score for score, _ in hits], np.float32))
    return dict(zip(ids, scores.tolist(), strict=True))


@functools.cache
def _writer() -> JavaObject:
    """Jackson's JSON writer, which caches the serialiser of each class."""
    return java_class("com.fasterxml.jackson.databind.ObjectMapper")()


def without_ties(scores: np.ndarray) -> np.ndarray:
    """Rounds descending scores, (hits,) float32, and separates ties, as Anserini's ScoreTiesAdjusterReranker does.

    >>> without_ties(np.array([22.087432, 22.087432, 21.602508], np.float32)).tolist()
    [22.087400436401367, 22.087398529052734, 21.602500915527344]
    """
    rounded: np.ndarray = (np.floor(scores.astype(np.float64) * 1e4 + 0.5) / 1e4).astype(np.float32)
    tied = 0
    for place in range(1, len(rounded)):
        if rounded[place - 1] - rounded[place] > STEP:
            tied = 0
        else:
            tied += 1
            rounded[place] -= SHIFT * np.float32(tied)
    return rounded
