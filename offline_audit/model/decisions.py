"""Decisions of a model: read from its outputs, requested in batches, counted where they fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError, ModelFailedError
from offline_audit.rendering import count
from offline_audit.validation import numbers_of

__all__ = [
    "BatchedCalls",
    "Codes",
    "DecisionRule",
    "Failures",
    "Features",
    "Output",
    "Progress",
    "RowModel",
    "RowsRefusedError",
    "Undecided",
    "check_favourable",
]

# Float32 for bundles and endpoints; for functions, numbers of the type in which they come.
Features = NDArray[Any]
# 1 for the favourable decision, 0 for the unfavourable one, or a value of `Undecided`.
Codes = NDArray[np.int8]
Output = Literal["logit", "probability", "two_logits", "two_probabilities"]
# Called with the number of rows done and the total number of rows.
Progress = Callable[[int, int], None]
_OUTPUTS = ("logit", "probability", "two_logits", "two_probabilities")
# After this many consecutive refusals, check whether the model still works at all.
_REFUSALS = 64


class Undecided(IntEnum):
    """Why a row has no decision."""

    ERRORED = -1
    WITHHELD = -2
    NOT_A_NUMBER = -3
    PENDING = -4


class RowsRefusedError(Exception):
    """The model refused a batch because of at least one of its rows.

    Attributes:
        reason: Name of the exception or status; never its text, which may quote the row.
        code: Code of a row that is refused on its own.
    """

    def __init__(self, reason: str, code: Undecided = Undecided.ERRORED) -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class RowModel(Protocol):
    """A model that can be called on a batch of rows."""

    @property
    def width(self) -> int | None:
        """Number of columns that it accepts; None if that is not known."""
        ...

    def batch_rows(self, width: int) -> int:
        """Largest number of rows per call, for rows of this many columns."""
        ...

    def decide(self, rows: Features) -> Codes:
        """One code per row, `[n, d]` to `[n]`.

        Raises:
            RowsRefusedError: The batch was refused; parts of it may succeed.
            OfflineAuditError: Every batch would fail.
        """
        ...

    def close(self) -> None:
        """Release connections. The next call opens them again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Numbers of rows without a decision. A row counts each time that it is requested.

    Attributes:
        rows: Rows requested.
        errored: Rows on which the model failed.
        withheld: Rows whose prediction was withheld by policy.
        not_a_number: Rows whose score was not a number.
        reasons: Names of the exceptions or statuses with which the model failed.
    """

    rows: int = 0
    errored: int = 0
    withheld: int = 0
    not_a_number: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def undecided(self) -> int:
        """Number of rows without a decision, for any reason."""
        return self.errored + self.withheld + self.not_a_number

    @property
    def causes(self) -> dict[str, int]:
        """Number of rows without a decision by cause; the texts quote no value of a row."""
        reasons = f" ({', '.join(self.reasons)})" if self.reasons else ""
        rows_by_cause = {
            f"the model failed on them{reasons}": self.errored,
            "policy withheld them": self.withheld,
            "their scores were not numbers": self.not_a_number,
        }
        return {cause: rows for cause, rows in rows_by_cause.items() if rows}

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence per cause."""
        return tuple(f"{count(n, 'row')} got no decision: {why}" for why, n in self.causes.items())

    def since(self, earlier: Failures) -> Failures:
        """Failures after an earlier count."""
        return replace(
            self,
            rows=self.rows - earlier.rows,
            errored=self.errored - earlier.errored,
            withheld=self.withheld - earlier.withheld,
            not_a_number=self.not_a_number - earlier.not_a_number,
        )

    def plus(self, codes: Codes, reasons: tuple[str, ...]) -> Failures:
        """These failures and those of more rows."""
        counts = {code: int((codes == code).sum()) for code in Undecided}
        return Failures(
            rows=self.rows + len(codes),
            errored=self.errored + counts[Undecided.ERRORED],
            withheld=self.withheld + counts[Undecided.WITHHELD],
            not_a_number=self.not_a_number + counts[Undecided.NOT_A_NUMBER],
            reasons=reasons,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRule:
    """How a model's outputs become decisions.

    Attributes:
        threshold: Lowest score of class 1; None if the outputs are classes.
        favourable: The favourable class.
        output: Kind of score; None for one number per row of an unspecified kind.
    """

    threshold: float | None
    favourable: Literal[0, 1] = 1
    output: Output | None = None

    @classmethod
    def of_output(cls, output: Output, threshold: float, favourable: Literal[0, 1]) -> DecisionRule:
        """Class 1 iff P(class 1) ≥ threshold, for scores of a known kind.

        Raises:
            AuditInputError: The kind is unknown, or the threshold is not a probability.
        """
        if output not in _OUTPUTS:
            raise AuditInputError(f"output: must be one of {', '.join(_OUTPUTS)}; got {output!r}")
        if not 0 < threshold < 1:
            raise AuditInputError(f"threshold: must be between 0 and 1; got {threshold:g}")
        if output in ("logit", "two_logits"):
            threshold = math.log(threshold) - math.log1p(-threshold)
        return cls(threshold=threshold, favourable=favourable, output=output)

    def codes(self, output: Any, rows: int) -> Codes:
        """Decisions in the output for n rows, `[n]`.

        Raises:
            AuditInputError: The output is not one number per row, or it holds scores and there is
                no threshold.
        """
        scores = self._scores(_array(output), rows)
        unknown = np.isnan(scores) if scores.dtype.kind == "f" else np.zeros(rows, bool)
        if self.threshold is not None:
            # In the scores' own precision, as a server compares them.
            positive = scores >= self.threshold
        elif (unknown | (scores == 0) | (scores == 1)).all():
            positive = scores == 1
        else:
            raise AuditInputError(
                "threshold: required, because the model returns numbers other than 0 and 1; for "
                "example threshold=0.5 for probabilities or threshold=0 for logits"
            )
        codes: Codes = (positive == (self.favourable == 1)).astype(np.int8)
        codes[unknown] = Undecided.NOT_A_NUMBER
        return codes

    def _scores(self, output: NDArray[Any], rows: int) -> NDArray[Any]:
        two = self.output is not None and self.output.startswith("two")
        if output.shape not in (((rows, 2),) if two else ((rows,), (rows, 1))):
            expected = "[n, 2]" if two else "[n] or [n, 1]"
            hint = "; return only the column of class 1" if output.shape == (rows, 2) else ""
            raise AuditInputError(
                f"the model returned an array of shape {list(output.shape)} for "
                f"{count(rows, 'row')}; expected {expected}{hint}"
            )
        if self.output == "two_logits":
            output = output[:, 1] - output[:, 0]
        scores = output[:, 1] if self.output == "two_probabilities" else output.reshape(rows)
        return scores if scores.dtype.kind in "biuf" else numbers_of(scores, "the model's output")


def check_favourable(favourable: Any) -> Literal[0, 1]:
    """The favourable class.

    Raises:
        AuditInputError: It is not 0 or 1.
    """
    if favourable not in (0, 1):
        raise AuditInputError(f"favourable: must be 0 or 1; got {favourable!r}")
    return 1 if favourable else 0


def _array(output: Any) -> NDArray[Any]:
    # NumPy cannot convert a tensor that requires gradients or is on another device.
    if hasattr(output, "detach"):
        output = output.detach().cpu()
    try:
        return np.asarray(output)
    except (TypeError, ValueError):
        raise AuditInputError(
            f"the model returned a {type(output).__name__} that cannot be converted to an array; "
            "return one number per row"
        ) from None


class BatchedCalls:
    """Calls a model in batches and isolates the rows that it refuses.

    A refused batch is halved until each refused row is alone. That takes many calls, so a model
    that has stopped working must be detected early: after 64 consecutive refusals the model is
    called on a row that it has decided before.

    Args:
        model: The model.
    """

    def __init__(self, model: RowModel) -> None:
        self._model = model
        self._refusals, self._reasons = 0, dict[str, None]()
        self._decided_row: Features | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Names of the errors on single rows, in order of occurrence."""
        return tuple(self._reasons)

    def note_decided(self, rows: Features, codes: Codes) -> None:
        """Remember the first row that was decided, from rows `[n, d]` and codes `[n]`."""
        if self._decided_row is None and (codes >= 0).any():
            index = int(np.argmax(codes >= 0))
            self._decided_row = rows[index : index + 1].copy()

    def decide(
        self, rows: Features, indices: NDArray[np.intp], progress: Progress | None
    ) -> Iterator[tuple[NDArray[np.intp], Codes]]:
        """Indices of rows and their codes, batch by batch.

        Args:
            rows: All rows, `[n, d]`.
            indices: Indices of the rows to decide.
            progress: Called with the number of rows done and n.

        Raises:
            ModelFailedError: The model decides no row of the first batch, or has stopped working.
        """
        size, done = self._model.batch_rows(rows.shape[1]), len(rows) - len(indices)
        if progress is not None:
            progress(done, len(rows))
        for start in range(0, len(indices), size):
            batch = indices[start : start + size]
            batch_rows, failures = rows[batch], Failures()
            for part, codes in self._parts(batch_rows):
                self.note_decided(batch_rows[part], codes)
                failures = failures.plus(codes, self.reasons)
                yield batch[part], codes
            if self._decided_row is None:
                raise _no_decision(count(len(batch), "row"), " and ".join(failures.causes))
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))

    def _parts(self, rows: Features) -> Iterator[tuple[slice, Codes]]:
        """A batch, whole or repeatedly halved around refused rows."""
        stack = [slice(0, len(rows))]
        while stack:
            part = stack.pop()
            try:
                codes = self._model.decide(rows[part])
            except RowsRefusedError as refused:
                self._count_refusal(refused)
                if part.stop - part.start > 1:
                    middle = (part.start + part.stop) // 2
                    # The first half on top of the stack, so that rows are decided in order.
                    stack += [slice(middle, part.stop), slice(part.start, middle)]
                    continue
                if refused.code == Undecided.ERRORED:
                    self._reasons[refused.reason] = None
                codes = np.array([refused.code], np.int8)
            else:
                self._refusals = 0
            yield part, codes

    def _count_refusal(self, refused: RowsRefusedError) -> None:
        """After many consecutive refusals, check that the model still decides a known row."""
        self._refusals += 1
        if self._refusals < _REFUSALS:
            return
        if self._decided_row is None:
            raise _no_decision(f"{self._refusals} calls", refused.reason) from None
        try:
            self._model.decide(self._decided_row)
        except RowsRefusedError as again:
            raise ModelFailedError(
                f"the model has stopped working: {again.reason} on a row that it decided before"
            ) from None
        self._refusals = 0


def _no_decision(requested: str, reason: str) -> ModelFailedError:
    return ModelFailedError(
        f"no decision for the first {requested}: {reason}; call the model on a few rows directly "
        "to see its error"
    )
