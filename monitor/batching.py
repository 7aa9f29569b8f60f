"""Adaptive batching: requests that come together share one pass; one that comes alone never waits.

How many come together is learned from the last batches. A batch leaves once as many wait as came
together before and a turn of the event loop has brought no more, or when the window is over. A
batch that left smaller than expected halves the expectation, so the first request after a crowd has
gone pays the window, and soon none does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.errors import OverloadedError, PredictionError
from monitor.judging import Judged

__all__ = ["Batcher", "Waiting"]

Features = NDArray[np.float32]


class Waiting(NamedTuple):
    """A request, or a piece of a large one, that waits for its batch."""

    request_id: str
    first_row: int
    features: Features
    since: float
    answer: asyncio.Future[Judged]


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
        self._looked_at = 0
        self._look: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def judged(self, request_id: str, features: Features, first_row: int = 0) -> Judged:
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
        answer: asyncio.Future[Judged] = self._loop.create_future()
        if self._rows + len(features) > self._max_rows:
            self._leave()
        since = self._loop.time()
        self._waiting.append(Waiting(request_id, first_row, features, since, answer))
        self._rows += len(features)
        if self._look is None and (self._timer is None or len(self._waiting) >= self._expected):
            self._looked_at = len(self._waiting)
            self._look = self._loop.call_soon(self._look_around)
        return await answer

    async def _in_pieces(self, request_id: str, features: Features) -> Judged:
        """A request larger than a batch: others get their turn between its pieces."""
        pieces = []
        for start in range(0, len(features), self._max_rows):
            rows = features[start : start + self._max_rows]
            pieces.append(await self.judged(request_id, rows, start))
        return Judged.joined(pieces)

    def _look_around(self) -> None:
        """After a turn of the event loop: leave, look again, or wait for the window's end."""
        self._look = None
        count = len(self._waiting)
        if count > self._looked_at and self._timer is None and self._window > 0:
            self._looked_at = count
            self._look = self._loop.call_soon(self._look_around)
        elif count >= self._expected or self._window == 0:
            self._leave()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._window, self._leave)

    def _leave(self) -> None:
        """Run what waits as one batch."""
        for handle in (self._timer, self._look):
            if handle is not None:
                handle.cancel()
        self._timer = self._look = None
        batch, self._waiting, self._rows = self._waiting, [], 0
        came = len(batch)
        self._expected = came if came >= self._expected else max((self._expected + came) // 2, 1)
        now = self._loop.time()
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
            waiting.answer.set_result(judged.rows(start, stop))
            start = stop
        # Behind those who wait for the answers in the loop's queue: they leave first.
        self._loop.call_soon(self._tell, batch, judged)


def _together(batch: list[Waiting]) -> Features:
    """The rows of a batch in a new array, `[n, d]`."""
    if len(batch) == 1:
        return np.array(batch[0].features, np.float32)
    return np.concatenate([waiting.features for waiting in batch])
