"""Simultaneous requests share a batch, a single request does not wait, and every request ends."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from monitor.batching import Batcher
from monitor.errors import OverloadedError, PredictionError
from monitor.scoring.scorer import ScoringResult

WIDTH = 2


class Model:
    """Returns the first feature; fails on a negative one; records its batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.finished: list[list[str]] = []

    def run(self, batch, features) -> ScoringResult:
        self.batches.append(len(features))
        if (features < 0).any():
            raise PredictionError("the classifier fails on this input")
        return ScoringResult(output=features[:, :1].copy())

    def after(self, batch, result) -> None:
        self.finished.append([waiting.request_id for waiting in batch])


def rows(*values: float) -> np.ndarray:
    return np.array([[value, 0.0] for value in values], np.float32)


def batcher(model: Model, **changes: Any) -> Batcher:
    options: dict[str, Any] = {"window": 0.02, "max_rows": 100, "max_wait": 5.0, **changes}
    return Batcher(model.run, model.after, **options)


async def score(batches: Batcher, name: str, *values: float) -> list[float]:
    result, start, stop = await batches.submit(name, rows(*values))
    return result.output[start:stop].ravel().tolist()


def test_a_single_request_never_waits():
    async def run() -> float:
        batches, loop = batcher(Model(), window=1.0), asyncio.get_running_loop()
        started = loop.time()
        for number in range(200):
            assert await score(batches, "a", number) == [number]
        return loop.time() - started

    assert asyncio.run(run()) < 1.0


def test_simultaneous_requests_share_one_batch_and_get_their_own_results():
    async def run(model: Model) -> list[list[float]]:
        batches = batcher(model)
        return await asyncio.gather(*(score(batches, str(n), n, n + 0.5) for n in range(40)))

    model = Model()
    assert asyncio.run(run(model)) == [[n, n + 0.5] for n in range(40)]
    assert model.batches == [80]
    assert model.finished == [[str(n) for n in range(40)]]


def test_concurrent_clients_are_batched_after_some_requests():
    async def client(batches: Batcher, name: str) -> None:
        for number in range(30):
            # Every request starts in its own iteration of the event loop, as in a server.
            await asyncio.sleep(0)
            assert await score(batches, name, number) == [number]

    async def run(model: Model) -> None:
        batches = batcher(model)
        await asyncio.gather(*(client(batches, str(n)) for n in range(8)))

    model = Model()
    asyncio.run(run(model))
    assert sum(model.batches) == 240
    assert model.batches[-20:].count(8) >= 15


def test_soon_after_the_last_concurrent_request_no_request_waits():
    async def run() -> float:
        batches, loop = batcher(Model(), window=0.2), asyncio.get_running_loop()
        await asyncio.gather(*(score(batches, str(n), n) for n in range(16)))
        for _ in range(6):
            await score(batches, "a", 1.0)
        started = loop.time()
        for _ in range(20):
            await score(batches, "a", 1.0)
        return loop.time() - started

    assert asyncio.run(run()) < 0.2


def test_batches_have_at_most_max_rows_and_a_large_request_is_split():
    async def run(model: Model) -> tuple[list[float], list[list[float]]]:
        batches = batcher(model, max_rows=10)
        large = asyncio.create_task(score(batches, "large", *range(37)))
        small = [score(batches, str(n), n, n) for n in range(9)]
        return await large, await asyncio.gather(*small)

    model = Model()
    large, small = asyncio.run(run(model))
    assert large == list(range(37))
    assert small == [[n, n] for n in range(9)]
    assert max(model.batches) <= 10
    assert sum(model.batches) == 37 + 18


def test_other_requests_run_between_the_parts_of_a_large_request():
    async def run(model: Model) -> list[str]:
        batches, order = batcher(model, max_rows=10, window=0), []

        async def send(name: str, *values: float) -> None:
            await score(batches, name, *values)
            order.append(name)

        await asyncio.gather(send("large", *range(500)), send("small", 1.0))
        return order

    assert asyncio.run(run(Model())) == ["small", "large"]


def test_parts_of_a_request_have_the_index_of_their_first_row():
    seen: list[tuple[str, int]] = []

    async def run(model: Model) -> None:
        def record(batch, submit) -> None:
            seen.extend((waiting.request_id, waiting.first_row) for waiting in batch)

        batches = Batcher(model.run, record, window=0, max_rows=10, max_wait=5)
        await batches.submit("large", rows(*range(25)))
        await asyncio.sleep(0)

    asyncio.run(run(Model()))
    assert seen == [("large", 0), ("large", 10), ("large", 20)]


def test_a_request_on_which_the_classifier_fails_does_not_affect_others():
    async def run() -> list[Any]:
        batches = batcher(Model())
        calls = [score(batches, str(n), -1.0 if n == 3 else n) for n in range(6)]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(run())
    assert isinstance(results[3], PredictionError)
    assert [result for n, result in enumerate(results) if n != 3] == [[0], [1], [2], [4], [5]]


def test_an_unexpected_error_is_raised_in_all_waiting_requests():
    def broken(batch, features) -> ScoringResult:
        raise KeyError("unforeseen")

    async def run() -> list[Any]:
        batches = Batcher(broken, Model().after, window=0.01, max_rows=10, max_wait=5)
        calls = [batches.submit(str(n), rows(1.0)) for n in range(3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [type(error) for error in asyncio.run(run())] == [KeyError] * 3


def test_a_cancelled_request_is_not_scored():
    async def run(model: Model) -> None:
        batches = batcher(model)
        tasks = [asyncio.create_task(score(batches, str(n), n)) for n in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        assert await tasks[0] == [0]
        assert model.batches == [3]

    asyncio.run(run(Model()))


def test_a_request_that_waited_too_long_is_rejected_without_scoring():
    async def run(model: Model) -> None:
        batches = batcher(model, max_wait=0.01)
        late = asyncio.create_task(score(batches, "late", 1.0))
        await asyncio.sleep(0)
        time.sleep(0.05)  # simulates a slow batch
        with pytest.raises(OverloadedError, match=r"more than 0\.01 s"):
            await late
        assert model.batches == []
        assert await score(batches, "next", 2.0) == [2.0]

    asyncio.run(run(Model()))
