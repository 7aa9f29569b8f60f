"""The path of a request through the sidecar, from a door and back to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from monitor.answers import Answers
from monitor.batching import Batcher
from monitor.bundle.manifest import Model
from monitor.call import Answer, Call
from monitor.codec import FeatureCodec
from monitor.errors import NotOfferedError, NotReadyError, OverloadedError, UnknownModelError
from monitor.request_ids import RequestIds
from monitor.traffic.outcome import Outcome, Refusal, Source

if TYPE_CHECKING:
    from monitor.traffic.log import OutcomeLog

__all__ = ["Pipeline"]


class Pipeline:
    """What both doors call.

    Attributes:
        model: Name and version that it answers for.
        ready: What probes are told; false before the start and once it is to stop.
        open: Whether it answers; while it stops, for longer than it says that it is ready.
        in_flight: Requests without an answer.
        outcomes: Where outcomes are recorded, if they are.
    """

    def __init__(
        self,
        model: Model,
        codec: FeatureCodec,
        batcher: Batcher,
        answers: Answers,
        *,
        max_in_flight: int,
    ) -> None:
        self.model, self.in_flight = model, 0
        self.ready = self.open = False
        self._codec, self._batcher, self._answers = codec, batcher, answers
        self.outcomes: OutcomeLog | None = None
        self._ids, self._max_in_flight = RequestIds(), max_in_flight

    async def infer(self, call: Call) -> Answer:
        """Answer a call.

        Raises:
            RequestError: In one of its kinds, where it gets no prediction.
        """
        self.check_load()
        self.check_model(call.model, call.version)
        self._answers.check(call)
        self.in_flight += 1
        try:
            features = self._codec.features(call.inputs)
            request_id = self._ids.name(call.id)
            share = await self._batcher.judged(request_id, features)
            return self._answers.answer(call, request_id, share)
        finally:
            self.in_flight -= 1

    async def record_outcomes(
        self, read: Callable[[], Sequence[Outcome]], source: Source
    ) -> tuple[int, list[Refusal]]:
        """Write down what became of predictions: how much, and what was refused and why.

        They are no predictions, and take the place of none.

        Raises:
            RequestError: This sidecar keeps no outcomes, or cannot take these on now.
        """
        if self.outcomes is None:
            raise NotOfferedError("this sidecar keeps no outcomes: outcomes.path is not given")
        if not self.open:
            raise NotReadyError("the sidecar is not ready")
        return await self.outcomes.record(read, source)

    def check_load(self) -> None:
        """Whether another request can be taken on; doors ask before they read one.

        Raises:
            NotReadyError: Nothing is answered now.
            OverloadedError: Too much is in flight.
        """
        if not self.open:
            raise NotReadyError("the sidecar is not ready")
        if self.in_flight >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight already")

    def check_model(self, name: str, version: str) -> None:
        """Whether a model and version, or any version, are served here.

        Raises:
            UnknownModelError: They are not.
        """
        if name != self.model.name:
            raise UnknownModelError(
                f"model {name!r:.120} is not served here; {self.model.name!r} is"
            )
        if version not in ("", self.model.version):
            raise UnknownModelError(
                f"version {version!r:.120} of {name!r} is not served here; "
                f"{self.model.version!r} is"
            )
