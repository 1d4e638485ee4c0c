"""Fitted: the stages of a pipeline and their rankers on a collection; search: the hits of a query."""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rerank.data.queries import check_query
from rerank.data.trec import ranked
from rerank.data.types import BestPassage, Document, Found, Hit, Marked, Run
from rerank.pipelines.record import FitInputs
from rerank.pipelines.stages.base import Ranker, Stage, below
from rerank.pipelines.stages.bm25 import BM25Ranker
from rerank.pipelines.stages.cross_encoder import CrossEncoderRanker
from rerank.pipelines.stages.late_interaction import LateInteractionRanker
from rerank.pipelines.stages.world import World
from rerank.retrieval.words import content_words, find_words, mark, snippet

QUERY = "of this search"
"""The id of a search's query. No id of a file has spaces, so no stage `run` has a query of this id."""

LEAST_SIMILARITY = 0.6
"""Smallest similarity of two words that is shown as a match; `python -m scripts.benchmarks matches` measures it."""

NO_WORD = 'No document has a word of the query, but for words such as "what": these are probably no answers.'
NO_WORD_AND_FAR = "No document has a word of the query or is similar to it: these are probably no answers."
"""The notes of a search."""

Rank = Callable[[Ranker, Mapping[str, str], Sequence[Run]], Run]
"""(ranker, texts of queries by id, runs of the stages below) -> the ranker's run."""


@dataclass(frozen=True)
class Fitted:
    """Stages, each after the stages below it, and their rankers.

    inputs: what they were fitted on; None if `fit` did not make the pipeline.
    folder: the folder that they are saved in, if they are.
    ms: milliseconds of each stage for a query; {} if they are not measured.
    near: name of a stage that searches vectors -> the similarity below which a query is far from all documents.
    """

    stages: Mapping[str, Stage]
    world: World
    rankers: Mapping[str, Ranker]
    inputs: FitInputs | None = None
    folder: Path = Path()
    ms: Mapping[str, float] = field(default_factory=dict)
    near: Mapping[str, float] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The name of the stage that answers."""
        return list(self.stages)[-1]

    def rank_all(
        self,
        queries: Mapping[str, str],
        rank: Rank = lambda ranker, queries, runs: ranker.rank(queries, runs),
        budget: float | None = None,
    ) -> dict[str, Run]:
        """The run of each stage by name; every stage ranks once.

        With a `budget` of milliseconds, ranking stops before a stage whose measured time would exceed it; the first
        stage always ranks.
        """
        runs, start = dict[str, Run](), time.perf_counter()
        for name, settings in self.stages.items():
            spent = 1000 * (time.perf_counter() - start)
            if runs and budget is not None and spent + self.ms.get(name, 0.0) > budget:
                break
            runs[name] = rank(self.rankers[name], queries, [runs[lower] for lower in below(settings)])
        return runs


def find(pipeline: Fitted, query: str, top: int = 10, budget: float | None = None, explain: bool = False) -> Found:
    """See `Pipeline.find`; no hits if no stage finds a document. Logs and errors do not contain the query.

    If a cross-encoder answers, the snippet is cut from the passage that it scored highest, else from the whole text.
    """
    query = check_query(query)
    world = pipeline.world
    passages: dict[str, BestPassage] = {}

    def rank_with(ranker: Ranker, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        passages.clear()
        if not isinstance(ranker, CrossEncoderRanker) or not below[0].get(QUERY):
            return ranker.rank(queries, below)
        run, best = ranker.rank_one(QUERY, query, below[0][QUERY])
        passages.update(best)
        return run

    runs = pipeline.rank_all({QUERY: query}, rank_with, budget)
    answer = list(runs.values())[-1].get(QUERY, {})
    documents = list(world.texts.get(ranked(answer)[:top]))
    note = _note(pipeline, query, runs) if documents else ""
    language = world.config.collection.language
    terms = {word.term for word in content_words(query, language) or find_words(query, language)}
    rankers = [pipeline.rankers[name] for name in runs]
    matchers = [ranker.matcher for ranker in rankers if isinstance(ranker, LateInteractionRanker)]
    shows_matches = matchers and explain and not note  # any word has a similar one, letters at random too
    found = matchers[-1].matches(query, documents) if shows_matches else [{}] * len(documents)
    ranks = {name: {d: rank for rank, d in enumerate(ranked(run.get(QUERY, {})), 1)} for name, run in runs.items()}
    hits = []
    for rank, (document, pairs) in enumerate(zip(documents, found, strict=True), 1):
        doc_id, matches = document.doc_id, _with_other_words(pairs, language)
        matched = terms.union(*matches.values())
        title, text = snippet(document.title, matched, language), mark(document.body, matched, language)
        excerpt, place = _excerpt(document, passages.get(doc_id), matched, language)
        by_stage = {
            name: (places[doc_id], runs[name][QUERY][doc_id]) for name, places in ranks.items() if doc_id in places
        }
        hits.append(Hit(doc_id, rank, answer[doc_id], title, excerpt, by_stage, text, place, tuple(matches)))
    return Found(hits, len(answer), note)


def _excerpt(
    document: Document, passage: BestPassage | None, terms: Collection[str], language: str
) -> tuple[Marked, tuple[int, int]]:
    """The snippet of a document, cut from a passage, and the start and end of the passage in the body.

    Without a passage it is cut from the whole body, and the start and end are those of the snippet.
    """
    if passage is None:
        shown = snippet(document.body, terms, language)
        return shown, _place_of_snippet(shown.text, document.body)
    before = len(document.text) - len(document.body)  # the title, which is shown separately
    begin, end = max(0, passage.begin - before), max(0, passage.end - before)
    return snippet(document.body[begin:end], terms, language), (begin, end)


def _with_other_words(matches: Mapping[str, tuple[str, float]], language: str) -> dict[tuple[str, str], set[str]]:
    """(word of the query, another word of the document) -> the terms of the latter.

    Function words, and words that are less similar than LEAST_SIMILARITY, match nothing.
    """
    found = {}
    for word, (match, similarity) in matches.items():
        own, terms = ({one.term for one in content_words(text, language)} for text in (word, match))
        if own and terms and own != terms and similarity >= LEAST_SIMILARITY:
            found[word, match] = terms
    return found


def _note(pipeline: Fitted, query: str, runs: Mapping[str, Run]) -> str:
    """A note if no document has a content word of the query, and no stage that searches otherwise finds a near one."""
    searching = [name for name in runs if isinstance(pipeline.rankers[name], BM25Ranker)]
    if not searching or _has_word(pipeline.rankers[searching[0]], query, runs[searching[0]], pipeline.world):
        return ""
    others = [name for name in runs if not below(pipeline.stages[name]) and name not in searching]
    if not others:
        return NO_WORD
    best = {name: max(runs[name].get(QUERY, {}).values(), default=float("-inf")) for name in others}
    return NO_WORD_AND_FAR if all(best[name] < pipeline.near.get(name, float("-inf")) for name in others) else ""


def _has_word(ranker: Ranker, query: str, run: Run, world: World) -> bool:
    """Whether a document has a content word of the query, or any word if it has no others; `run` is that of BM25."""
    language = world.config.collection.language
    words = content_words(query, language)
    if not run.get(QUERY) or not words or len(words) == len(find_words(query, language)):
        return bool(run.get(QUERY))
    asked = " ".join(query[word.begin : word.end] for word in words)
    return bool(ranker.rank({QUERY: asked}, []).get(QUERY))


def _place_of_snippet(shown: str, body: str) -> tuple[int, int]:
    """Start and end of a snippet in the body; the snippet has single spaces and may have dots around it."""
    words = shown.removeprefix("… ").removesuffix(" …").split()
    found = re.search(r"\s+".join(map(re.escape, words)), body)
    return found.span() if words and found else (0, 0)
