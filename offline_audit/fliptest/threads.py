"""One thread for arithmetic on small arrays: on a busy machine threads spend their time waiting."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from offline_audit.fliptest.counterparts import Decides
from offline_audit.maps.transport_map import Features

__all__ = ["OneThread"]


class OneThread:
    """A span in which maps are fitted by one thread, and a model may have as many as before."""

    def __init__(self) -> None:
        self._pools = ThreadpoolController()
        found: dict[str, int] = {}
        for pool in self._pools.info():
            api = pool["user_api"]
            found[api] = max(found.get(api, 1), int(pool["num_threads"]))
        self._before = found
        self._limit: Any = None

    def __enter__(self) -> Self:
        self._limit = self._pools.limit(limits=1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limit.restore_original_limits()

    def freed(self, model: Decides) -> Decides:
        """The same model, with the threads that it had outside of this span."""
        return _Freed(model, self._pools, self._before)


class _Freed:
    def __init__(self, model: Decides, pools: Any, threads: dict[str, int]) -> None:
        self._model, self._pools, self._threads = model, pools, threads

    def decide(self, features: Features) -> NDArray[np.int8]:
        with self._pools.limit(limits=self._threads):
            return self._model.decide(features)
