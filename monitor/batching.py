"""Adaptive batching: concurrent requests share one pass; a lone request never waits.

As long as an iteration of the event loop finds a single request waiting, it runs at once. Once two
or more wait, requests are concurrent: from then on a batch runs when as many wait as in the batch
before, when the loop has been idle for a moment, or when the window is over. A busy loop is no
reason to run: it may not have read further requests yet. Every few batches one waits although the
expected number is there, to find out whether there would be more. A batch smaller than expected
halves the excess, so soon after the concurrency ends no request waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.errors import OverloadedError, PredictionError
from monitor.scoring.scorer import ScoringResult

__all__ = ["Batcher", "Share", "Waiting"]

Features = NDArray[np.float32]
Raw = NDArray[np.float64]

# Number of batches after which one waits for more requests than expected.
_TRIAL = 16
# Seconds of an idle loop after which a batch runs; timers of the loop count in milliseconds.
_IDLE = 0.001
# Lateness of a timer, in seconds, up to which the loop counts as idle.
_ON_TIME = 0.0005


class Share(NamedTuple):
    """The rows of one request in the result of a batch.

    Attributes:
        result: Result of the whole batch.
        start: Index of the request's first row.
        stop: Index after its last row.
    """

    result: ScoringResult
    start: int
    stop: int


class Waiting(NamedTuple):
    """A request, or a piece of a large one, that waits for its batch to run.

    `raw` are its rows of raw inputs, `[n, r]`; None if it has encoded features. `subject` is the
    client's id of the person that they are about; empty if it is unknown.
    """

    request_id: str
    first_row: int
    features: Features
    since: float
    future: asyncio.Future[Share]
    raw: Raw | None = None
    subject: str = ""


class Batcher:
    """Gathers requests into batches, in the event loop that it is created in.

    Args:
        run: Computes the result of a batch from its requests and their rows `[n, d]`.
        after: Called with a batch and its result once the responses have left.
        window: Longest time that a request waits for others, in seconds.
        max_rows: Largest number of rows in a batch.
        max_wait: Time in seconds after which a request that still waits is refused.
    """

    def __init__(
        self,
        run: Callable[[list[Waiting], Features], ScoringResult],
        after: Callable[[list[Waiting], ScoringResult], None],
        *,
        window: float,
        max_rows: int,
        max_wait: float,
    ) -> None:
        self._run, self._after = run, after
        self._window, self._max_rows, self._max_wait = window, max_rows, max_wait
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Waiting] = []
        self._rows = 0
        self._expected = 1
        self._were_waiting, self._polled_at = 0, 0.0
        self._batches_until_trial = _TRIAL
        self._next: asyncio.Handle | None = None

    async def submit(
        self,
        request_id: str,
        features: Features,
        first_row: int = 0,
        raw: Raw | None = None,
        subject: str = "",
    ) -> Share:
        """Result of a request's rows, `[n, d]`, once their batch has run.

        Args:
            request_id: Id of the request.
            features: Rows of the request.
            first_row: Index of the first of them in the request.
            raw: Their raw inputs, `[n, r]`, for the log.
            subject: The person that they are about, for the log; empty if unknown.

        Raises:
            OverloadedError: The request has waited for too long.
            PredictionError: The classifier fails on it.
        """
        if len(features) > self._max_rows:
            return await self._in_pieces(request_id, features, raw, subject)
        future: asyncio.Future[Share] = self._loop.create_future()
        if self._rows + len(features) > self._max_rows:
            self._dispatch()
        since = time.monotonic()
        waiting = Waiting(request_id, first_row, features, since, future, raw, subject)
        self._waiting.append(waiting)
        self._rows += len(features)
        if self._rows >= self._max_rows:
            self._dispatch()
        elif self._next is None:
            self._begin()
        elif len(self._waiting) == self._expected and self._batches_until_trial:
            self._next.cancel()
            self._next = self._loop.call_soon(self._dispatch)
        return await future

    def _begin(self) -> None:
        """Schedule a batch that has its first request."""
        if self._expected > 1 and self._window > 0:
            self._batches_until_trial = (self._batches_until_trial or _TRIAL) - 1
            self._schedule_poll()
        else:
            self._next = self._loop.call_soon(self._dispatch)

    def _schedule_poll(self) -> None:
        self._were_waiting, self._polled_at = len(self._waiting), time.monotonic()
        self._next = self._loop.call_later(_IDLE, self._poll)

    def _poll(self) -> None:
        """Run the batch if no request was added and the loop was idle, or if the window is over."""
        now = time.monotonic()
        busy = len(self._waiting) > self._were_waiting or now - self._polled_at > _IDLE + _ON_TIME
        if busy and now - self._waiting[0].since < self._window:
            self._schedule_poll()
        else:
            self._dispatch()

    async def _in_pieces(
        self, request_id: str, features: Features, raw: Raw | None, subject: str
    ) -> Share:
        """A request larger than a batch: other requests run between its pieces."""
        pieces = []
        for start in range(0, len(features), self._max_rows):
            rows = features[start : start + self._max_rows]
            part_raw = None if raw is None else raw[start : start + self._max_rows]
            part = await self.submit(request_id, rows, start, part_raw, subject)
            pieces.append(part.result.rows(part.start, part.stop))
            # A piece that fills a batch runs at once: let the loop serve others in between.
            await asyncio.sleep(0)
        return Share(ScoringResult.joined(pieces), 0, len(features))

    def _dispatch(self) -> None:
        """Run all waiting requests as one batch."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        batch, self._waiting, self._rows = self._waiting, [], 0
        size = len(batch)
        self._expected = max(size, (self._expected + size) // 2)
        now = time.monotonic()
        # Cancelled requests, and those that waited for too long, cost nothing more.
        batch = [waiting for waiting in batch if self._still_wanted(waiting, now)]
        if batch:
            self._run_batch(batch)

    def _still_wanted(self, waiting: Waiting, now: float) -> bool:
        if waiting.future.done():
            return False
        if now - waiting.since > self._max_wait:
            waiting.future.set_exception(
                OverloadedError(f"the request waited for more than {self._max_wait:g} s")
            )
            return False
        return True

    def _run_batch(self, batch: list[Waiting]) -> None:
        try:
            result = self._run(batch, _concatenated(batch))
        except PredictionError as error:
            # Run the requests one by one: the rows of one must not fail the others.
            if len(batch) == 1:
                batch[0].future.set_exception(error)
            else:
                for waiting in batch:
                    self._run_batch([waiting])
            return
        except Exception as error:  # noqa: BLE001 - the transports log it; no request may wait forever
            for waiting in batch:
                waiting.future.set_exception(error)
            return
        start = 0
        for waiting in batch:
            stop = start + len(waiting.features)
            # A client that disconnected meanwhile has cancelled it.
            if not waiting.future.done():
                waiting.future.set_result(Share(result, start, stop))
            start = stop
        # Queued in the loop after the tasks that wait for the futures: responses leave first.
        self._loop.call_soon(self._after, batch, result)


def _concatenated(batch: list[Waiting]) -> Features:
    """The rows of a batch in a new array, `[n, d]`."""
    if len(batch) == 1:
        return np.array(batch[0].features, np.float32)
    return np.concatenate([waiting.features for waiting in batch])
