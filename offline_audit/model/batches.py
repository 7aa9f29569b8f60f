"""Ask a model about rows in batches, and find the rows that it cannot answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import ModelFailedError
from offline_audit.model.outputs import (
    Codes,
    Failures,
    Features,
    RowModel,
    RowsRefusedError,
    Undecided,
)
from offline_audit.rendering import count

__all__ = ["Asking", "Progress"]

# Called as work goes on: rows done, rows in all.
Progress = Callable[[int, int], None]
# So many refusals on end, and the question is whether the model still works at all.
_REFUSALS = 64


class Asking:
    """Batches of a model that may refuse some rows.

    A batch that is refused is halved until the rows at fault stand alone. That takes many calls, so
    a model that does not work, or does no longer, is found out early: after 64 refusals on end it
    is asked about a row that it has decided before.

    Args:
        source: The model.
    """

    def __init__(self, source: RowModel) -> None:
        self._source = source
        self._refusals, self._reasons = 0, dict[str, None]()
        self._decided: Features | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Names of what the model failed with on single rows, in the order they came."""
        return tuple(self._reasons)

    def note_decided(self, rows: Features, codes: Codes) -> None:
        """Remember a row that was decided, `[n, d]` and `[n]`; the first is enough."""
        if self._decided is None and (codes >= 0).any():
            place = int(np.argmax(codes >= 0))
            self._decided = rows[place : place + 1].copy()

    def batches(
        self, rows: Features, places: NDArray[np.intp], progress: Progress | None
    ) -> Iterator[tuple[NDArray[np.intp], Codes]]:
        """Places of rows and what these were answered, as answers come.

        Args:
            rows: All of them, `[n, d]`.
            places: Of those to ask about.
            progress: Told how many of all are done.

        Raises:
            ModelFailedError: The model decides none of the first batch, or no longer any.
        """
        most, done = self._source.batch_rows(rows.shape[1]), len(rows) - len(places)
        if progress is not None:
            progress(done, len(rows))
        for start in range(0, len(places), most):
            batch = places[start : start + most]
            asked, counted = rows[batch], Failures()
            for part, found in self._pieces(asked):
                self.note_decided(asked[part], found)
                counted = counted.plus(found, self.reasons)
                yield batch[part], found
            if self._decided is None:
                raise _hopeless(count(len(batch), "row"), " and ".join(counted.causes))
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))

    def _pieces(self, rows: Features) -> Iterator[tuple[slice, Codes]]:
        """A batch in pieces: whole, or halved again and again around rows that are refused."""
        waiting = [slice(0, len(rows))]
        while waiting:
            part = waiting.pop()
            try:
                found = self._source.answers(rows[part])
            except RowsRefusedError as refused:
                self._look_again(refused)
                if part.stop - part.start > 1:
                    middle = (part.start + part.stop) // 2
                    waiting += [slice(middle, part.stop), slice(part.start, middle)]
                    continue
                if refused.code == Undecided.ERRORED:
                    self._reasons[refused.reason] = None
                found = np.array([refused.code], np.int8)
            else:
                self._refusals = 0
            yield part, found

    def _look_again(self, refused: RowsRefusedError) -> None:
        """After many refusals on end, see whether the model still answers anything."""
        self._refusals += 1
        if self._refusals < _REFUSALS:
            return
        if self._decided is None:
            raise _hopeless(f"{self._refusals} calls", refused.reason) from None
        try:
            self._source.answers(self._decided)
        except RowsRefusedError as again:
            raise ModelFailedError(
                f"the model no longer works: {again.reason} on a row that it decided before"
            ) from None
        self._refusals = 0


def _hopeless(asked: str, why: str) -> ModelFailedError:
    return ModelFailedError(
        f"the first {asked} brought no decision: {why}; call the model on a few rows yourself to "
        "see what it says"
    )
