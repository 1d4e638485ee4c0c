"""Engine: a thread that scores the waiting pairs of all requests together, within the model's token budget."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from rerank.batches.batch import join_packed
from rerank.models.scoring import PairScores, TextScorer, TokenisedPairs
from rerank.serving.metrics import Metrics
from rerank.serving.requests import RefusalError
from rerank.utils.progress import log

ENDED = "the model's thread has ended; start the server again"


class Job:
    """The pairs of a request, and the scores computed so far.

    `outcome` gets the scores in the order of the request, or a RefusalError; a cancelled job is not scored further.
    `tokens` is the number of tokens of all passages, including query and special tokens.
    """

    def __init__(self, passages: TokenisedPairs) -> None:
        self.passages, self.outcome = passages, Future[PairScores]()
        self.longest, self.totals = passages.builder.sizes(passages.pairs)
        self.left, self.tokens = len(passages.pairs), int(self.totals.sum())
        self.scores = PairScores(np.full(self.left, np.nan, np.float32), np.zeros((self.left, 2), np.int64))


Share = tuple[Job, list[int]]
"""A job's share of a chunk: the indices of some of its pairs."""


class Engine:
    """Scores jobs in one thread.

    All waiting jobs are taken together and scored longest passages first, in chunks that fit the token budget and may
    have pairs of several jobs. Jobs that arrive later are taken next: first come, first served. `max_queue` bounds the
    documents of all unanswered requests.
    """

    def __init__(self, scorer: TextScorer, max_queue: int, metrics: Metrics) -> None:
        self._scorer, self._max_queue, self._metrics = scorer, max_queue, metrics
        self._changed = threading.Condition()  # with a reentrant lock
        self._waiting: list[Job] = []
        self._unfinished: set[Job] = set()
        self._stopping = False
        self.healthy = True
        self.documents = self.requests = 0
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        metrics.queue_documents.set_function(lambda: self.documents)
        metrics.queue_requests.set_function(lambda: self.requests)
        self._thread.start()

    def stop(self) -> None:
        """Waits until the submitted jobs are scored, and ends the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _check_room(self, documents: int) -> None:
        """Raises RefusalError if the queue has no room for so many documents, or if the thread has ended."""
        if not self.healthy:
            raise RefusalError(503, ENDED)
        if self.documents + documents > self._max_queue:
            line = f"{self.documents} documents wait, {self._max_queue} is the limit (--max-queue)"
            raise RefusalError(429, f"the queue is full: {line}")

    @contextlib.contextmanager
    def room(self, documents: int) -> Iterator[None]:
        """Counts a request and its documents as waiting within the block; raises RefusalError as `_check_room`."""
        with self._changed:
            self._check_room(documents)
            self.documents, self.requests = self.documents + documents, self.requests + 1
        try:
            yield
        finally:
            with self._changed:
                self.documents, self.requests = self.documents - documents, self.requests - 1

    def submit(self, job: Job) -> Future[PairScores]:
        """Queues a job and returns its outcome; raises RefusalError if the thread has ended."""
        with self._changed:
            self._check_room(0)
            self._unfinished.add(job)
            self._waiting.append(job)
            self._changed.notify_all()
        job.outcome.add_done_callback(lambda outcome: self._unfinished.discard(job))
        return job.outcome

    def _run(self) -> None:
        try:
            with self._scorer.scoring():
                while jobs := self._next():
                    for chunk in self._chunks(jobs):
                        self._score(chunk)
        finally:
            with self._changed:
                self.healthy = False
            for job in list(self._unfinished):
                _finish(job, RefusalError(503, ENDED))

    def _next(self) -> list[Job]:
        """Waits for a job and returns all waiting jobs; empty when the engine stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            taken, self._waiting = self._waiting, []
            return taken

    def _chunks(self, jobs: Sequence[Job]) -> Iterator[list[Share]]:
        """Cuts the pairs, longest passages first, into chunks within the budget; a longer pair is a chunk of its own.

        A chunk is cut after the previous one was scored, as the budget may shrink and jobs may be cancelled.
        """
        pairs = [(job, place) for job in jobs for place in range(job.left)]
        chunk: dict[Job, list[int]] = {}
        filled = 0
        for job, place in sorted(pairs, key=lambda pair: (-pair[0].longest[pair[1]], -pair[0].totals[pair[1]])):
            tokens = int(job.totals[place])
            if chunk and filled + tokens > self._scorer.budget.tokens:
                yield list(chunk.items())
                chunk, filled = {}, 0
            if not job.outcome.done():
                chunk.setdefault(job, []).append(place)
                filled += tokens
        if chunk:
            yield list(chunk.items())

    def _score(self, chunk: Sequence[Share]) -> None:
        """Scores a chunk; if this fails, each job separately, so that no job fails because of another."""
        try:
            inputs = [job.passages.builder([job.passages.pairs[place] for place in places]) for job, places in chunk]
            scored = self._scorer.score_packed(join_packed(inputs))
        except Exception as error:
            if len(chunk) > 1:
                for share in chunk:
                    self._score([share])
                return
            # The error's message may contain a query, so only its type is logged.
            log.info(f"a request could not be scored: {type(error).__name__}")
            _finish(chunk[0][0], RefusalError(500, f"the model could not score the documents: {type(error).__name__}"))
            return
        self._metrics.chunk_requests.observe(len(chunk))
        begin = 0
        for job, places in chunk:
            end = begin + len(places)
            self._metrics.documents.inc(len(places))
            self._metrics.tokens.inc(int(job.totals[places].sum()))
            job.scores.scores[places], job.scores.best[places] = scored.scores[begin:end], scored.best[begin:end]
            begin = end
            job.left -= len(places)
            if not job.left and np.isfinite(job.scores.scores).all():
                _finish(job, job.scores.take(job.passages.places))
            elif not job.left:
                _finish(job, RefusalError(500, "the model's score is not finite; is the checkpoint broken?"))


def _finish(job: Job, found: PairScores | RefusalError) -> None:
    """Sets the outcome of a job unless it was cancelled."""
    if job.outcome.set_running_or_notify_cancel():
        if isinstance(found, RefusalError):
            job.outcome.set_exception(found)
        else:
            job.outcome.set_result(found)
