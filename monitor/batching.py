"""Adaptive batching: requests that come together share one pass; one that comes alone never waits.

As long as a turn of the event loop finds one request waiting, it is run at once. Where it finds two
or more, there is a crowd: from then on a batch leaves when as many wait as came together before,
when the loop has been idle for a while, or when the window is over. A busy loop is no reason to
leave: others may have come whom it had no time for yet. Every so often a batch stays although all
who are expected are there, to see whether more would come. One that ends up smaller than expected
halves what was expected in excess, so soon after a crowd has gone nobody waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.errors import OverloadedError, PredictionError
from monitor.judging import Judged

__all__ = ["Batcher", "Share", "Waiting"]

Features = NDArray[np.float32]

# Every so many batches of a crowd it is tried whether more would come.
_TRIAL = 16
# How long the loop has to be idle for a batch to leave; its timers count in milliseconds.
_IDLE = 0.001
# By how much a timer may be late for the loop to have been idle.
_ON_TIME = 0.0005


class Share(NamedTuple):
    """A request's rows of a batch.

    Attributes:
        judged: The batch.
        start: The first of its rows.
        stop: The one behind its last.
    """

    judged: Judged
    start: int
    stop: int


class Waiting(NamedTuple):
    """A request, or a piece of a large one, that waits for its batch."""

    request_id: str
    first_row: int
    features: Features
    since: float
    answer: asyncio.Future[Share]


# What is told of every batch once its answers are on their way: the requests, and what was found.
Told = Callable[[list[Waiting], Judged], None]


class Batcher:
    """Gathers requests into batches. Everything happens in the event loop that it is made in."""

    def __init__(
        self,
        run: Callable[[list[Waiting], Features], Judged],
        tell: Told,
        *,
        window: float,
        max_rows: int,
        max_wait: float,
    ) -> None:
        self._run, self._tell = run, tell
        self._window, self._max_rows, self._max_wait = window, max_rows, max_wait
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Waiting] = []
        self._rows = 0
        self._expected = 1
        self._were_waiting, self._looked = 0, 0.0
        self._to_trial = _TRIAL
        self._next: asyncio.Handle | None = None

    async def judged(self, request_id: str, features: Features, first_row: int = 0) -> Share:
        """What is found of a request's rows, `[n, d]`, in whatever batch.

        Args:
            request_id: Whose rows they are.
            features: The rows.
            first_row: Which of the request's rows is the first of them.

        Raises:
            OverloadedError: It has waited for too long.
            PredictionError: The classifier fails on it.
        """
        if len(features) > self._max_rows:
            return await self._in_pieces(request_id, features)
        answer: asyncio.Future[Share] = self._loop.create_future()
        if self._rows + len(features) > self._max_rows:
            self._leave()
        since = time.monotonic()
        self._waiting.append(Waiting(request_id, first_row, features, since, answer))
        self._rows += len(features)
        if self._rows >= self._max_rows:
            self._leave()
        elif self._next is None:
            self._begin()
        elif len(self._waiting) == self._expected and self._to_trial:
            self._next.cancel()
            self._next = self._loop.call_soon(self._leave)
        return await answer

    def _begin(self) -> None:
        """The first of a batch has come."""
        if self._expected > 1 and self._window > 0:
            self._to_trial = (self._to_trial or _TRIAL) - 1
            self._look_again()
        else:
            self._next = self._loop.call_soon(self._leave)

    def _look_again(self) -> None:
        self._were_waiting, self._looked = len(self._waiting), time.monotonic()
        self._next = self._loop.call_later(_IDLE, self._look)

    def _look(self) -> None:
        """A while later: leave if nobody has come and the loop was idle, or the window is over."""
        now = time.monotonic()
        busy = len(self._waiting) > self._were_waiting or now - self._looked > _IDLE + _ON_TIME
        if busy and now - self._waiting[0].since < self._window:
            self._look_again()
        else:
            self._leave()

    async def _in_pieces(self, request_id: str, features: Features) -> Share:
        """A request larger than a batch: others get their turn between its pieces."""
        pieces = []
        for start in range(0, len(features), self._max_rows):
            rows = features[start : start + self._max_rows]
            part = await self.judged(request_id, rows, start)
            pieces.append(part.judged.rows(part.start, part.stop))
            # A piece that fills a batch is judged at once, without a turn of the loop.
            await asyncio.sleep(0)
        return Share(Judged.joined(pieces), 0, len(features))

    def _leave(self) -> None:
        """Run what waits as one batch."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        batch, self._waiting, self._rows = self._waiting, [], 0
        came = len(batch)
        self._expected = max(came, (self._expected + came) // 2)
        now = time.monotonic()
        # Who has hung up, or waited for too long, costs nothing more.
        batch = [waiting for waiting in batch if self._still_wanted(waiting, now)]
        if batch:
            self._answer(batch)

    def _still_wanted(self, waiting: Waiting, now: float) -> bool:
        if waiting.answer.done():
            return False
        if now - waiting.since > self._max_wait:
            waiting.answer.set_exception(
                OverloadedError(f"waited for more than {self._max_wait:g} s")
            )
            return False
        return True

    def _answer(self, batch: list[Waiting]) -> None:
        try:
            judged = self._run(batch, _together(batch))
        except PredictionError as error:
            # One request's rows may be to blame; nobody else's prediction shall suffer for it.
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
            else:
                for waiting in batch:
                    self._answer([waiting])
            return
        except Exception as error:  # noqa: BLE001 - nobody may wait for ever; the doors log it
            for waiting in batch:
                waiting.answer.set_exception(error)
            return
        start = 0
        for waiting in batch:
            stop = start + len(waiting.features)
            # Whoever hung up meanwhile has cancelled it.
            if not waiting.answer.done():
                waiting.answer.set_result(Share(judged, start, stop))
            start = stop
        # Behind those who wait for the answers in the loop's queue: they leave first.
        self._loop.call_soon(self._tell, batch, judged)


def _together(batch: list[Waiting]) -> Features:
    """The rows of a batch in a new array, `[n, d]`."""
    if len(batch) == 1:
        return np.array(batch[0].features, np.float32)
    return np.concatenate([waiting.features for waiting in batch])
