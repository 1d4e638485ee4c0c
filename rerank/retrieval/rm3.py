"""RM3: BM25 with a query to which words of its best documents are added.

Lavrenko and Croft, "Relevance-Based Language Models", SIGIR 2001; Abdul-Jaleel et al., "UMass at TREC 2004". The
weights and the constants are those of Anserini, whose own RM3 needs an index with the words of every document.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rerank.data.types import Document
from rerank.retrieval.bm25 import Searcher
from rerank.retrieval.java import java_class
from rerank.retrieval.lucene_index import reading
from rerank.retrieval.words import find_words

DOCUMENTS, TERMS, ORIGINAL_WEIGHT = 10, 10, 0.5
"""Documents that are taken as relevant, words that are added, and the weight of the query's own words."""
MOST_COMMON = 0.1
"""Words that are in a larger share of the documents are not added."""


def search_rm3(
    searcher: Searcher, query: str, texts_of: Callable[[Sequence[str]], Iterable[Document]], depth: int
) -> dict[str, float]:
    """The best `depth` documents of one query by BM25 with RM3, best first.

    `texts_of` gives the documents of doc_ids. Raises UserError as `searcher`.
    """
    first = searcher.search_one(query, DOCUMENTS)
    words = {document.doc_id: _terms(document.text, searcher) for document in texts_of(list(first))}
    with reading(searcher.index):
        lucene, readers = searcher.lucene, java_class("io.anserini.index.IndexReaderUtils")
        most = MOST_COMMON * lucene.get_total_num_docs()
        counts = [Counter(words[doc_id]) for doc_id in first]
        weights = expanded(
            _terms(query, searcher),
            counts,
            list(first.values()),
            lambda term: readers.getDF(lucene.reader, term) > most,
        )
        return {hit.docid: hit.score for hit in lucene.search(_lucene_query(weights), depth)} if weights else {}


def _terms(text: str, searcher: Searcher) -> list[str]:
    return [word.term for word in find_words(text, searcher.language)]


def expanded(
    query: Sequence[str],
    documents: Sequence[Mapping[str, int]],
    scores: Sequence[float],
    is_common: Callable[[str], bool],
) -> dict[str, float]:
    """The weights of the words of an expanded query.

    `query` has its words, stemmed; `documents` the words of the relevant documents and their counts, `scores` their
    scores. `is_common` is whether a word is in too many documents to be added.
    """
    model: dict[str, float] = {}
    for counts, score in zip(documents, scores, strict=True):
        usable = (term for term in counts if 2 <= len(term) <= 20 and term.isalnum() and not is_common(term))
        best = _largest({term: counts[term] for term in usable})
        for term, count in best.items():
            model[term] = model.get(term, 0.0) + score * count / sum(best.values())
    model = _largest(model)
    total = math.fsum(model.values())
    weights = {term: (1 - ORIGINAL_WEIGHT) * weight / total for term, weight in model.items()}
    own = ORIGINAL_WEIGHT if weights else 1.0
    for term in query:
        weights[term] = weights.get(term, 0.0) + own / len(query)
    return weights


def _largest(weights: Mapping[str, float]) -> dict[str, float]:
    """The TERMS words with the largest weights; equal ones in the order of the alphabet."""
    return dict(sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:TERMS])


def _lucene_query(weights: Mapping[str, float]) -> Any:
    lucene = "org.apache.lucene.search."
    should = java_class(f"{lucene}BooleanClause$Occur").SHOULD
    builder = java_class(f"{lucene}BooleanQuery$Builder")()
    for term, weight in weights.items():
        word = java_class(f"{lucene}TermQuery")(java_class("org.apache.lucene.index.Term")("contents", term))
        builder.add(java_class(f"{lucene}BoostQuery")(word, weight), should)
    return builder.build()
