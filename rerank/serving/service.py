"""Service: takes a request from its bytes to its scores."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rerank.models.rankings import BestPassage, TokenisedPairs
from rerank.models.reranker import Reranker
from rerank.serving.bodies import Bodies, parse
from rerank.serving.dialects import Dialect, dialect_of
from rerank.serving.dialects.fields import Body
from rerank.serving.engine import Engine, Job, Outcome
from rerank.serving.limits import Limits
from rerank.serving.metrics import Metrics
from rerank.serving.questions import Question, Scored
from rerank.serving.refusals import ClientGoneError, Reason, RefusalError, log_error
from rerank.serving.token_limits import keep

Result = TypeVar("Result")

CLIENT_CLOSED = 499
"""The status, in the metrics alone, of a request whose client went away."""


class Service:
    """Answers the requests of all dialects with one model.

    `name` is the checkpoint's, as answers give it. One thread tokenises, since a tokenizer is not to be called by two
    at once; the engine's thread scores.
    """

    def __init__(self, reranker: Reranker, name: str, limits: Limits) -> None:
        self.reranker, self.name, self.limits = reranker, name, limits
        self.metrics = Metrics()
        self.engine = Engine(reranker.scorer, limits.max_queue, self.metrics)
        self._bodies = Bodies(limits)
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="tokeniser")

    def start(self) -> None:
        """Starts the model's thread."""
        self.engine.start()

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
        passages = self._tokeniser.submit(self.reranker.scorer.tokenise_pairs, pairs).result()
        outcome: Future[Outcome] = Future()
        self.engine.submit(Job(passages, outcome.set_result))
        found = outcome.result()
        if isinstance(found, RefusalError):
            raise found
        return self.reranker.best_passages(documents, found, top_k, first_scores)

    async def respond(self, request: Request) -> Response:
        """The answer to a request, in the dialect of its address and body, or a refusal in it."""
        started, address = time.perf_counter(), request.scope["address"]
        dialect = dialect_of(address)
        try:
            async with self._bodies.body(request) as sent:
                self.engine.check_room()
                body = await asyncio.to_thread(parse, sent)
                dialect = dialect_of(address, body)
                answer = await self._unless_gone(request, self._answer(dialect, body))
            response: Response = JSONResponse(answer)
        except RefusalError as refusal:
            response = refuse(dialect, refusal)
        except ClientGoneError:
            self.metrics.clients_gone.inc()
            response = Response(status_code=CLIENT_CLOSED)
        except Exception as error:
            log_error("internal error", error)
            response = refuse(dialect, RefusalError(Reason.INTERNAL, f"internal error: {type(error).__name__}"))
        self.metrics.request(dialect.name, response.status_code, time.perf_counter() - started)
        return response

    async def _answer(self, dialect: Dialect, body: Body) -> Any:
        question = dialect.read(body)
        if len(question.pairs) > self.limits.max_documents:
            raise RefusalError(
                Reason.TOO_LARGE,
                f"{len(question.pairs)} documents, {self.limits.max_documents} is the limit (--max-documents)",
            )
        passages = await self._in_tokeniser(self._tokenise, question)
        scores, tokens = await self._scores(passages)
        return dialect.answer(Scored(question, scores, tokens, self.name))

    def _tokenise(self, question: Question) -> TokenisedPairs:
        passages = self.reranker.scorer.tokenise_pairs(question.pairs, question.limits.document)
        store = passages.builder.documents
        cut = store.lengths > np.diff(store.offsets)
        if question.never_cut and (cut.any() or passages.builder.truncated_queries()):
            kept, half = self.reranker.scorer.max_doc_tokens, passages.builder.max_tokens // 2
            raise RefusalError(
                Reason.TOO_LARGE,
                f"a text has too many tokens: the limit is {kept} of a document and {half} of a query; "
                f"{question.never_cut}",
            )
        self.metrics.documents_cut.inc(int(cut.sum()))
        return keep(passages, question.limits)

    async def _scores(self, passages: TokenisedPairs) -> tuple[np.ndarray, int]:
        """The scores of a request's pairs and the tokens that were scored; drops the job if this is cancelled."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def done(found: Outcome) -> None:
            loop.call_soon_threadsafe(lambda: None if outcome.done() else outcome.set_result(found))

        job = Job(passages, done)
        if job.tokens > self.limits.max_tokens:
            raise RefusalError(
                Reason.TOO_LARGE,
                f"{job.tokens} tokens in all passages, {self.limits.max_tokens} is the limit (--max-tokens)",
            )
        self.engine.submit(job)
        try:
            found = await outcome
        finally:
            self.engine.drop(job)
        if isinstance(found, RefusalError):
            raise found
        return found.scores, job.tokens

    async def _in_tokeniser(self, function: Callable[..., Result], argument: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._tokeniser, function, argument)

    async def _unless_gone(self, request: Request, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`, which is cancelled if the client goes away first."""
        working = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientGoneError
            return working.result()
        finally:
            for task in (working, gone):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def refuse(dialect: Dialect, refusal: RefusalError) -> JSONResponse:
    """The response to a refused request."""
    status = dialect.status(refusal)
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
    if refusal.reason is Reason.UNAUTHORISED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(dialect.error(refusal, status), status, headers)
