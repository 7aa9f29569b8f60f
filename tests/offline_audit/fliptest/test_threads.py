"""Maps are fitted by one thread; the model keeps its own, and all is as before afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from offline_audit.fliptest.test import OneThread


def most_threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info())


class Counting:
    """Notes how many threads there are when it is asked."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def decide(self, features: np.ndarray) -> np.ndarray:
        self.seen.append(most_threads())
        return np.zeros(len(features), np.int8)


def test_only_the_model_has_the_threads_that_it_had():
    before, model = most_threads(), Counting()
    with OneThread() as span:
        assert most_threads() == 1
        span.freed(model).decide(np.zeros((2, 1), np.float32))
        assert most_threads() == 1
    assert model.seen == [before]
    assert most_threads() == before


def test_an_error_leaves_no_limit_behind():
    before = most_threads()

    with pytest.raises(ZeroDivisionError), OneThread():
        raise ZeroDivisionError
    assert most_threads() == before
