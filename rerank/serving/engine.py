"""Engine: one thread that scores the waiting pairs of all requests together, within the model's token budget."""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rerank.batches.batch import join_packed
from rerank.models.rankings import PairScores, TokenisedPairs
from rerank.models.text_scorer import TextScorer
from rerank.serving.metrics import Metrics
from rerank.serving.refusals import Reason, RefusalError
from rerank.utils.progress import log

SMOOTHING = 0.2
"""The weight of the last chunk in the mean rate of tokens."""
LONGEST_WAIT = 60
"""Seconds that Retry-After says at most."""
ENDED = "the model's thread has ended; start the server again"

Outcome = PairScores | RefusalError
"""The scores of a request's pairs, in their order, or why there are none."""


class Job:
    """The pairs of one request, and their scores as they come. `done` is called once, in the model's thread."""

    def __init__(self, passages: TokenisedPairs, done: Callable[[Outcome], None]) -> None:
        self.passages, self.done = passages, done
        self.longest, self.totals = passages.builder.sizes(passages.pairs)
        pairs = len(passages.pairs)
        self.scores = PairScores(np.full(pairs, np.nan, dtype=np.float32), np.zeros((pairs, 2), dtype=np.int64))
        self.left = pairs
        self.ended = False

    @property
    def tokens(self) -> int:
        """The tokens of all passages, query and special tokens included."""
        return int(self.totals.sum())

    def outcome(self) -> Outcome:
        """The scores in the order of the request; a RefusalError if one is not finite."""
        if not np.isfinite(self.scores.scores).all():
            return RefusalError(Reason.FAILED, "the model's score is not finite; is the checkpoint broken?")
        return self.scores.take(self.passages.places)


Part = tuple[Job, list[int]]
"""A job, and the places of some of its pairs."""


class Engine:
    """Scores jobs in one thread.

    What waits is taken together and scored longest first, in chunks of the token budget that have pairs of any job.
    What comes meanwhile is taken next, so that no job waits for more than those that came before it. A dropped job's
    pairs are passed over. `max_queue` bounds the pairs of all jobs that are not finished,
    and of the requests that wait for the tokenizer.
    """

    def __init__(self, scorer: TextScorer, max_queue: int, metrics: Metrics) -> None:
        self._scorer, self._max_queue, self._metrics = scorer, max_queue, metrics
        self._changed = threading.Condition()  # its lock may be taken again by the thread that has it
        self._waiting: list[Job] = []
        self._unfinished: set[Job] = set()
        self._tokenising = 0
        self._stopping = False
        self._tokens_per_second = 0.0
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        metrics.show_queue(self.queued_documents, self.queued_requests, lambda: self._tokens_per_second)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Waits until the jobs that were submitted are scored, and ends the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def healthy(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def queued_documents(self) -> int:
        """The pairs that wait, for the tokenizer too, or are being scored."""
        with self._changed:
            return sum(job.left for job in self._unfinished) + self._tokenising

    def queued_requests(self) -> int:
        """The jobs that are not finished."""
        with self._changed:
            return len(self._unfinished)

    def check_room(self, documents: int = 1) -> None:
        """Raises RefusalError if so many more pairs do not fit into the queue, or the thread has ended."""
        with self._changed:
            if not self.healthy:
                raise RefusalError(Reason.UNHEALTHY, ENDED)
            queued = self.queued_documents()
            if not documents or queued + documents <= self._max_queue:
                return
            tokens = sum(job.tokens for job in self._unfinished)
            wait = math.ceil(tokens / self._tokens_per_second) if self._tokens_per_second else 1
            raise RefusalError(
                Reason.OVERLOADED,
                f"the queue is full: {queued} documents wait, {self._max_queue} is the limit (--max-queue)",
                min(max(wait, 1), LONGEST_WAIT),
            )

    @contextlib.contextmanager
    def tokenising(self, documents: int) -> Iterator[Callable[[Job], None]]:
        """Within the block so many pairs wait for the tokenizer, until the job is given to the function of the block.

        Raises RefusalError as `check_room` does, and the function if the thread has ended.
        """
        with self._changed:
            self.check_room(documents)
            self._tokenising += documents
        left = documents

        def submit(job: Job) -> None:
            nonlocal left
            with self._changed:
                self.check_room(0)
                self._tokenising, left = self._tokenising - left, 0
                self._unfinished.add(job)
                self._waiting.append(job)
                self._changed.notify_all()

        try:
            yield submit
        finally:
            with self._changed:
                self._tokenising -= left

    def drop(self, job: Job) -> None:
        """Forgets a job that is not finished; its `done` is not called any more."""
        with self._changed:
            job.ended = True
            self._unfinished.discard(job)
            if job in self._waiting:
                self._waiting.remove(job)

    def _run(self) -> None:
        try:
            with self._scorer.scoring():
                while jobs := self._next():
                    for parts in self._chunks(jobs):
                        self._score(parts)
        finally:
            with self._changed:
                left = list(self._unfinished)
            for job in left:
                self._finish(job, RefusalError(Reason.UNHEALTHY, ENDED))

    def _next(self) -> list[Job]:
        """The jobs to score together; waits for one, and is empty when the engine stops."""
        with self._changed:
            while not self._waiting and not self._stopping:
                self._changed.wait()
            taken, self._waiting = self._waiting, []
            return taken

    def _chunks(self, jobs: Sequence[Job]) -> Iterator[list[Part]]:
        """The pairs, longest passages first, in chunks of at most the budget's tokens; a longer pair is one alone.

        A chunk is cut when the one before it was scored: the budget may have shrunk, and jobs may have been dropped.
        """
        numbers = np.concatenate([np.full(len(job.totals), number) for number, job in enumerate(jobs)])
        places = np.concatenate([np.arange(len(job.totals)) for job in jobs])
        longest, totals = (np.concatenate([getattr(job, name) for job in jobs]) for name in ("longest", "totals"))
        pending = deque(np.lexsort((-totals, -longest)).tolist())
        while pending:
            chunk: dict[int, list[int]] = {}
            filled = 0
            while pending:
                number, tokens = int(numbers[pending[0]]), int(totals[pending[0]])
                if not jobs[number].ended:
                    if chunk and filled + tokens > self._scorer.max_tokens_per_forward:
                        break
                    chunk.setdefault(number, []).append(int(places[pending[0]]))
                    filled += tokens
                pending.popleft()
            if chunk:
                yield [(jobs[number], found) for number, found in chunk.items()]

    def _score(self, parts: Sequence[Part]) -> None:
        """Scores a chunk; if that fails, each job by itself, so that one does not fail for another."""
        started = time.perf_counter()
        try:
            inputs = [job.passages.builder([job.passages.pairs[place] for place in places]) for job, places in parts]
            scored = self._scorer.score_packed(join_packed(inputs))
        except Exception as error:
            if len(parts) > 1:
                for part in parts:
                    self._score([part])
                return
            # The message may have the text of a query in it.
            log.info(f"a request could not be scored: {type(error).__name__}")
            refusal = RefusalError(Reason.FAILED, f"the model could not score the documents: {type(error).__name__}")
            self._finish(parts[0][0], refusal)
            return
        self._count(parts, time.perf_counter() - started)
        begin = 0
        for job, places in parts:
            end = begin + len(places)
            job.scores.scores[places], job.scores.best[places] = scored.scores[begin:end], scored.best[begin:end]
            begin = end
            with self._changed:
                job.left -= len(places)
            if job.left == 0:
                self._finish(job, job.outcome())

    def _finish(self, job: Job, outcome: Outcome) -> None:
        with self._changed:
            if job.ended:
                return
            job.ended = True
            self._unfinished.discard(job)
        job.done(outcome)

    def _count(self, parts: Sequence[Part], seconds: float) -> None:
        tokens = sum(int(job.totals[places].sum()) for job, places in parts)
        self._metrics.chunk(tokens, sum(len(places) for _, places in parts), len(parts))
        rate = tokens / max(seconds, 1e-9)
        before = self._tokens_per_second or rate
        self._tokens_per_second = before + SMOOTHING * (rate - before)
