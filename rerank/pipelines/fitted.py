"""Fitted: the stages of a pipeline with their rankers, on a collection; and the hits of one query that they find."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerank.data.text_lines import check_query
from rerank.data.trec import ranked
from rerank.data.types import BestPassage, Hit, Marked, Run
from rerank.pipelines.stages.base import Ranker, Stage, below
from rerank.pipelines.stages.cross_encoder import CrossEncoderRanker
from rerank.pipelines.stages.late_interaction import LateInteractionRanker
from rerank.pipelines.stages.world import World
from rerank.retrieval.words import find_words, snippet

QUERY = "query"
"""The id of the query that is asked."""
Rank = Callable[[Ranker, Mapping[str, str], Sequence[Run]], Run]
"""Ranks queries, query_id to text, with a ranker and the runs of the stages below."""


@dataclass(frozen=True)
class Fitted:
    """Stages in an order in which each comes after those below it, and the ranker of each.

    `inputs` are what they were fitted on, {} if that is not recorded. `folder` has them, if they are saved. `ms` are
    the milliseconds that each stage takes for a query, {} if they are not measured.
    """

    stages: Mapping[str, Stage]
    world: World
    rankers: Mapping[str, Ranker]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The name of the stage that answers."""
        return list(self.stages)[-1]

    def rank_all(
        self,
        queries: Mapping[str, str],
        rank: Rank = lambda ranker, queries, under: ranker.rank(queries, under),
        budget: float | None = None,
    ) -> dict[str, Run]:
        """The rankings of all stages, each of which ranks once: name of the stage to run.

        With a `budget` of milliseconds, it ends before a stage that would exceed it by the time that was measured; the
        first stage always ranks.
        """
        runs, start = dict[str, Run](), time.perf_counter()
        for name, settings in self.stages.items():
            spent = 1000 * (time.perf_counter() - start)
            if runs and budget is not None and spent + self.ms.get(name, 0.0) > budget:
                break
            runs[name] = rank(self.rankers[name], queries, [runs[one] for one in below(settings)])
        return runs


def search(
    pipeline: Fitted, query: str, top: int = 10, budget: float | None = None, explain: bool = False
) -> list[Hit]:
    """See `Pipeline.search`; [] if no stage finds a document. Neither logs nor errors have the query.

    A snippet is of the passage that a cross-encoder scored highest, if one answers, and otherwise of the whole text.
    """
    check_query(query)
    world = pipeline.world
    passages: dict[str, BestPassage] = {}

    def rank_with(ranker: Ranker, queries: Mapping[str, str], under: Sequence[Run]) -> Run:
        passages.clear()
        if not isinstance(ranker, CrossEncoderRanker) or not under[0].get(QUERY):
            return ranker.rank(queries, under)
        run, best = ranker.rank_one(QUERY, query, under[0][QUERY])
        passages.update(best)
        return run

    runs = pipeline.rank_all({QUERY: query}, rank_with, budget)
    answer = list(runs.values())[-1].get(QUERY, {})
    doc_ids = ranked(answer)[:top]
    language = world.config.collection.language
    terms = {word.term for word in find_words(query, language)}
    matchers = [one.matcher for name in runs if isinstance(one := pipeline.rankers[name], LateInteractionRanker)]
    ranks = {name: {d: rank for rank, d in enumerate(ranked(run.get(QUERY, {})), 1)} for name, run in runs.items()}
    documents = list(world.texts.get(doc_ids))
    found = matchers[-1].matches(query, documents) if matchers and explain else [{}] * len(documents)
    hits = []
    for rank, (document, pairs) in enumerate(zip(documents, found, strict=True), 1):
        doc_id, begin, end = document.doc_id, 0, len(document.body)
        if passage := passages.get(doc_id):
            before = len(document.text) - len(document.body)  # the title, which is shown already
            begin, end = max(0, passage.begin - before), max(0, passage.end - before)
        matches = _without_stop_words(pairs, language)
        matched = terms.union(*matches.values())
        title = snippet(document.title, matched, language)
        part = snippet(document.body[begin:end], matched, language)
        if not passage:
            begin, end = _place_of_snippet(part.text, document.body)
        text = Marked(document.body, ((begin, end),) if begin < end else ())
        of_stages = {
            name: (places[doc_id], runs[name][QUERY][doc_id]) for name, places in ranks.items() if doc_id in places
        }
        hits.append(Hit(doc_id, rank, answer[doc_id], title, part, of_stages, text, tuple(matches)))
    return hits


def _without_stop_words(matches: Mapping[str, str], language: str) -> dict[tuple[str, str], set[str]]:
    """The pairs of a word of a query and one of a document, each with the terms of the latter."""
    found = {}
    for word, match in matches.items():
        terms = {one.term for one in find_words(match, language)}
        if terms and find_words(word, language):
            found[word, match] = terms
    return found


def _place_of_snippet(shown: str, body: str) -> tuple[int, int]:
    """Where a snippet, which has single spaces and may have dots around it, begins and ends in the body."""
    words = shown.removeprefix("… ").removesuffix(" …").split()
    found = re.search(r"\s+".join(map(re.escape, words)), body)
    return found.span() if words and found else (0, 0)
