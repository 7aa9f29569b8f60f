"""Requests that come together share a pass, one that comes alone does not wait, nobody is lost."""

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
    """Answers with the first feature; fails on a negative one; remembers its batches."""

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


async def score(gathering: Batcher, name: str, *values: float) -> list[float]:
    result, start, stop = await gathering.submit(name, rows(*values))
    return result.output[start:stop].ravel().tolist()


def test_a_lone_request_never_waits():
    async def run() -> float:
        gathering, loop = batcher(Model(), window=1.0), asyncio.get_running_loop()
        started = loop.time()
        for number in range(200):
            assert await score(gathering, "a", number) == [number]
        return loop.time() - started

    assert asyncio.run(run()) < 1.0


def test_requests_that_come_together_share_one_pass_and_get_their_own_answers():
    async def run(model: Model) -> list[list[float]]:
        gathering = batcher(model)
        return await asyncio.gather(*(score(gathering, str(n), n, n + 0.5) for n in range(40)))

    model = Model()
    assert asyncio.run(run(model)) == [[n, n + 0.5] for n in range(40)]
    assert model.batches == [80]
    assert model.finished == [[str(n) for n in range(40)]]


def test_a_crowd_that_trickles_in_is_gathered_once_it_is_known():
    async def client(gathering: Batcher, name: str) -> None:
        for number in range(30):
            # Each comes in a turn of its own, as a server's requests do.
            await asyncio.sleep(0)
            assert await score(gathering, name, number) == [number]

    async def run(model: Model) -> None:
        gathering = batcher(model)
        await asyncio.gather(*(client(gathering, str(n)) for n in range(8)))

    model = Model()
    asyncio.run(run(model))
    assert sum(model.batches) == 240
    assert model.batches[-20:].count(8) >= 15


def test_soon_after_a_crowd_has_gone_nobody_waits():
    async def run() -> float:
        gathering, loop = batcher(Model(), window=0.2), asyncio.get_running_loop()
        await asyncio.gather(*(score(gathering, str(n), n) for n in range(16)))
        for _ in range(6):
            await score(gathering, "a", 1.0)
        started = loop.time()
        for _ in range(20):
            await score(gathering, "a", 1.0)
        return loop.time() - started

    assert asyncio.run(run()) < 0.2


def test_a_batch_is_never_larger_than_allowed_and_a_large_request_comes_in_pieces():
    async def run(model: Model) -> tuple[list[float], list[list[float]]]:
        gathering = batcher(model, max_rows=10)
        large = asyncio.create_task(score(gathering, "large", *range(37)))
        small = [score(gathering, str(n), n, n) for n in range(9)]
        return await large, await asyncio.gather(*small)

    model = Model()
    large, small = asyncio.run(run(model))
    assert large == list(range(37))
    assert small == [[n, n] for n in range(9)]
    assert max(model.batches) <= 10
    assert sum(model.batches) == 37 + 18


def test_others_get_their_turn_between_the_pieces_of_a_large_request():
    async def run(model: Model) -> list[str]:
        gathering, order = batcher(model, max_rows=10, window=0), []

        async def ask(name: str, *values: float) -> None:
            await score(gathering, name, *values)
            order.append(name)

        await asyncio.gather(ask("large", *range(500)), ask("small", 1.0))
        return order

    assert asyncio.run(run(Model())) == ["small", "large"]


def test_pieces_know_their_first_row():
    seen: list[tuple[str, int]] = []

    async def run(model: Model) -> None:
        def note(batch, submit) -> None:
            seen.extend((waiting.request_id, waiting.first_row) for waiting in batch)

        gathering = Batcher(model.run, note, window=0, max_rows=10, max_wait=5)
        await gathering.submit("large", rows(*range(25)))
        await asyncio.sleep(0)

    asyncio.run(run(Model()))
    assert seen == [("large", 0), ("large", 10), ("large", 20)]


def test_one_request_that_the_classifier_fails_on_hurts_nobody_else():
    async def run() -> list[Any]:
        gathering = batcher(Model())
        calls = [score(gathering, str(n), -1.0 if n == 3 else n) for n in range(6)]
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(run())
    assert isinstance(found[3], PredictionError)
    assert [f for n, f in enumerate(found) if n != 3] == [[0], [1], [2], [4], [5]]


def test_an_error_that_nobody_foresaw_reaches_all_who_wait():
    def broken(batch, features) -> ScoringResult:
        raise KeyError("unforeseen")

    async def run() -> list[Any]:
        gathering = Batcher(broken, Model().after, window=0.01, max_rows=10, max_wait=5)
        calls = [gathering.submit(str(n), rows(1.0)) for n in range(3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [type(found) for found in asyncio.run(run())] == [KeyError] * 3


def test_who_hangs_up_is_left_out():
    async def run(model: Model) -> None:
        gathering = batcher(model)
        asked = [asyncio.create_task(score(gathering, str(n), n)) for n in range(4)]
        await asyncio.sleep(0)
        asked[1].cancel()
        assert await asked[0] == [0]
        assert model.batches == [3]

    asyncio.run(run(Model()))


def test_who_waited_for_too_long_is_refused_and_costs_nothing():
    async def run(model: Model) -> None:
        gathering = batcher(model, max_wait=0.01)
        late = asyncio.create_task(score(gathering, "late", 1.0))
        await asyncio.sleep(0)
        time.sleep(0.05)  # as if another batch had taken so long
        with pytest.raises(OverloadedError, match=r"more than 0\.01 s"):
            await late
        assert model.batches == []
        assert await score(gathering, "next", 2.0) == [2.0]

    asyncio.run(run(Model()))
