"""Service: scores the documents of requests with one model, whatever their API."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from rerank.data.types import BestPassage
from rerank.models.reranker import Reranker
from rerank.models.scoring import TokenisedPairs
from rerank.serving.dialects import Scored, request_of
from rerank.serving.engine import Engine, Job
from rerank.serving.metrics import Metrics
from rerank.serving.requests import Body, Limits, RefusalError, respond
from rerank.utils.errors import UserError


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

    def warm_up(self) -> None:
        """Scores a document, as the first score takes longer; raises UserError if the model cannot score it."""
        try:
            self.rank_passages("query", ["document"])
        except RefusalError as refusal:
            raise UserError(f"{self.name}: {refusal}") from refusal

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
        question, limit = request.question(), self.limits.max_documents
        if (count := len(question.pairs)) > limit:
            raise RefusalError(413, f"{count} documents, {limit} is the limit (--max-documents)")
        with self.engine.room(count):
            tokenise, loop = self.reranker.scorer.tokenise_pairs, asyncio.get_running_loop()
            passages = await loop.run_in_executor(self._tokeniser, tokenise, question.pairs, question.max_doc_tokens)
            job, own = Job(passages), self.reranker.scorer.model.max_doc_tokens
            most = question.max_doc_tokens or own
            cut = self._cut(passages, min(most, own))
            if cut and not question.may_cut:
                raise RefusalError(413, f"{'; '.join(cut)}: the request allows no truncation")
            found = await asyncio.wrap_future(self.engine.submit(job))
        capped = [f"max_tokens_per_doc is {most}, the model reads {own}"] if most > own else []
        return request.answer(Scored(question, found.scores, job.tokens, self.name, [*capped, *cut]))

    def _cut(self, passages: TokenisedPairs, most: int) -> list[str]:
        """Lines about documents cut at `most` tokens and about cut queries, which are also counted in the metrics."""
        store = passages.builder.documents
        documents = int((store.lengths > np.diff(store.offsets)).sum())
        queries = passages.builder.truncated_queries()
        self.metrics.documents_cut.inc(documents)
        self.metrics.queries_cut.inc(queries)
        cut = []
        if documents:
            cut.append(f"{documents} documents are cut at {most} tokens")
        if queries:
            cut.append(f"{queries} queries are cut at {passages.builder.max_query_tokens} tokens")
        return cut
