"""Service: scores the documents of requests with one model, whatever their API."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from rerank.models.reranker import BestPassage, Reranker
from rerank.models.text_scorer import TokenisedPairs
from rerank.serving.bodies import Body, Limits
from rerank.serving.dialects import Question, Scored, request_of
from rerank.serving.engine import Engine, Job
from rerank.serving.metrics import Metrics
from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.responses import Endpoint


class Service(Endpoint):
    """Answers the requests for scores.

    `name` is the model's, as answers give it. One thread tokenises, since a tokenizer is not to be called by two at
    once; the engine's thread scores.
    """

    def __init__(self, reranker: Reranker, name: str, limits: Limits, metrics: Metrics) -> None:
        super().__init__(limits, metrics)
        self.reranker, self.name = reranker, name
        self.engine = Engine(reranker.scorer, limits.max_queue, metrics)
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="tokeniser")

    def stop(self) -> None:
        """Scores what was submitted, and ends the threads."""
        self.engine.stop()
        self._tokeniser.shutdown()

    def rank_passages(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        first_scores: Sequence[float] | None = None,
    ) -> list[BestPassage]:
        """What `Reranker.rank_passages` gives, scored together with the requests; blocks until it is.

        Raises RefusalError if the queue is full or the model fails.
        """
        pairs = [(query, document) for document in documents]
        with self.engine.room(len(pairs)):
            passages = self._tokeniser.submit(self.reranker.scorer.tokenise_pairs, pairs).result()
            found = self.engine.submit(Job(passages)).result()
        return self.reranker.best_passages(documents, found, top_k, first_scores)

    def check_room(self) -> None:
        """Raises RefusalError if the queue is full, or the engine's thread has ended."""
        self.engine.check_room()

    async def answer(self, path: str, body: Body) -> Any:
        """The JSON of the answer to a request; raises RefusalError."""
        request = request_of(path, body)
        question, most = request.question(), self.limits.max_documents
        if len(question.pairs) > most:
            line = f"{len(question.pairs)} documents, {most} is the limit (--max-documents)"
            raise RefusalError(Reason.TOO_LARGE, line)
        with self.engine.room(len(question.pairs)):
            loop = asyncio.get_running_loop()
            job = Job(await loop.run_in_executor(self._tokeniser, self._tokenise, question))
            found = await asyncio.wrap_future(self.engine.submit(job))
        return request.answer(Scored(question, found.scores, job.tokens, self.name))

    def _tokenise(self, question: Question) -> TokenisedPairs:
        passages = self.reranker.scorer.tokenise_pairs(question.pairs, question.max_doc_tokens)
        store = passages.builder.documents
        cut = store.lengths > np.diff(store.offsets)
        if question.never_cut and (cut.any() or passages.builder.truncated_queries()):
            kept, half = self.reranker.scorer.max_doc_tokens, passages.builder.max_tokens // 2
            raise RefusalError(
                Reason.TOO_LARGE,
                f"a text has too many tokens: the limit is {kept} of a document and {half} of a query; "
                f"{question.never_cut}: true cuts it",
            )
        self.metrics.documents_cut.inc(int(cut.sum()))
        return passages
