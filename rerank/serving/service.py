"""Service: scores the documents of requests with one model, whatever their API."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from rerank.data.types import BestPassage
from rerank.models.reranker import Reranker
from rerank.models.scoring import TokenisedPairs
from rerank.serving.dialects import Question, Scored, request_of
from rerank.serving.engine import Engine, Job
from rerank.serving.metrics import Metrics
from rerank.serving.requests import Body, Limits, RefusalError, respond


class Service:
    """Answers the requests for scores.

    `name` is the model's name in answers. One thread tokenises, as tokenizers are not thread-safe; the engine's thread
    scores.
    """

    def __init__(self, reranker: Reranker, name: str, limits: Limits, metrics: Metrics) -> None:
        self.reranker, self.name, self.limits, self.metrics = reranker, name, limits, metrics
        self.respond = partial(respond, self.answer, limits, metrics)
        self.engine = Engine(reranker.scorer, limits.max_queue, metrics)
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="tokeniser")

    def stop(self) -> None:
        """Waits for the submitted requests, and ends the threads."""
        self.engine.stop()
        self._tokeniser.shutdown()

    def rank_passages(
        self, query: str, documents: Sequence[str], *, first_scores: Sequence[float] | None = None
    ) -> list[BestPassage]:
        """As `Reranker.rank_passages`, scored together with the requests; blocks until the scores are there.

        Raises RefusalError if the queue is full or the model fails.
        """
        pairs = [(query, document) for document in documents]
        with self.engine.room(len(pairs)):
            passages = self._tokeniser.submit(self.reranker.scorer.tokenise_pairs, pairs).result()
            found = self.engine.submit(Job(passages)).result()
        return self.reranker.best_passages(documents, found, first_scores=first_scores)

    async def answer(self, path: str, body: Body) -> object:
        """The JSON of the answer to a request; raises RefusalError."""
        request = request_of(path, body)
        question, most = request.question(), self.limits.max_documents
        if (count := len(question.pairs)) > most:
            raise RefusalError(413, f"{count} documents, {most} is the limit (--max-documents)")
        with self.engine.room(count):
            tokenise, loop = self.reranker.scorer.tokenise_pairs, asyncio.get_running_loop()
            asked = question.pairs, question.max_doc_tokens
            passages = await loop.run_in_executor(self._tokeniser, tokenise, *asked)
            job, warnings = Job(passages), self._cut_warnings(passages, question)
            if warnings and not question.may_cut:
                raise RefusalError(413, f"{'; '.join(warnings)}: the request allows no truncation")
            found = await asyncio.wrap_future(self.engine.submit(job))
        return request.answer(Scored(question, found.scores, job.tokens, self.name, warnings))

    def _cut_warnings(self, passages: TokenisedPairs, question: Question) -> list[str]:
        """Lines about truncated documents and queries, which are also counted in the metrics."""
        store, own = passages.builder.documents, self.reranker.scorer.model.max_doc_tokens
        asked = question.max_doc_tokens
        documents = int((store.lengths > np.diff(store.offsets)).sum())
        queries = passages.builder.truncated_queries()
        self.metrics.documents_cut.inc(documents)
        self.metrics.queries_cut.inc(queries)
        warnings = []
        if asked and asked > own:
            warnings.append(f"max_tokens_per_doc is {asked}, the model reads {own}")
        if documents:
            warnings.append(f"{documents} documents are cut at {min(asked or own, own)} tokens")
        if queries:
            warnings.append(f"{queries} queries are cut at {passages.builder.max_tokens // 2} tokens")
        return warnings
