"""What a model answers about rows, and the decisions in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.rendering import count
from offline_audit.validation import numbers_of

__all__ = [
    "Codes",
    "DecisionRule",
    "Failures",
    "Features",
    "Output",
    "RowModel",
    "RowsRefusedError",
    "Undecided",
    "check_favourable",
]

Features = NDArray[np.float32]
# 1 for the favourable decision, 0 for the other, or an `Undecided`.
Codes = NDArray[np.int8]
Output = Literal["logit", "probability", "two_logits", "two_probabilities"]
_OUTPUTS = ("logit", "probability", "two_logits", "two_probabilities")


class Undecided(IntEnum):
    """Why a row has no decision."""

    ERRORED = -1
    WITHHELD = -2
    NOT_A_NUMBER = -3
    UNASKED = -4


class RowsRefusedError(Exception):
    """A model gives no answer because of some row that it was asked about.

    Attributes:
        reason: Name of an exception or of a status; never its text, which may quote the row.
        code: What such a row is marked with.
    """

    def __init__(self, reason: str, code: Undecided = Undecided.ERRORED) -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class RowModel(Protocol):
    """Whatever answers rows with decisions."""

    @property
    def width(self) -> int | None:
        """Columns that it takes; None if that is not known."""
        ...

    def batch_rows(self, width: int) -> int:
        """Rows of so many columns that it takes at once."""
        ...

    def answers(self, rows: Features) -> Codes:
        """One code a row, `[n, d]` to `[n]`.

        Raises:
            RowsRefusedError: Some of the rows are not answered; others alone may be.
            OfflineAuditError: No rows would be.
        """
        ...

    def rest(self) -> None:
        """Nothing more is asked for now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Rows that got no decision, each counted whenever it was asked for.

    Attributes:
        rows: That decisions were asked for.
        errored: On which the model failed.
        withheld: Whose prediction policy held back.
        not_a_number: Whose score was not a number.
        reasons: Names of the exceptions or statuses with which the model failed.
    """

    rows: int = 0
    errored: int = 0
    withheld: int = 0
    not_a_number: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def undecided(self) -> int:
        """Rows without a decision, for any reason."""
        return self.errored + self.withheld + self.not_a_number

    @property
    def causes(self) -> dict[str, int]:
        """Rows without a decision by cause, in words that hold no value of a person."""
        kinds = f" ({', '.join(self.reasons)})" if self.reasons else ""
        told = {
            f"the model failed on them{kinds}": self.errored,
            "policy withheld them": self.withheld,
            "their scores were not numbers": self.not_a_number,
        }
        return {cause: rows for cause, rows in told.items() if rows}

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each cause."""
        return tuple(f"{count(n, 'row')} got no decision: {why}" for why, n in self.causes.items())

    def since(self, earlier: Failures) -> Failures:
        """What was counted after an earlier moment."""
        return replace(
            self,
            rows=self.rows - earlier.rows,
            errored=self.errored - earlier.errored,
            withheld=self.withheld - earlier.withheld,
            not_a_number=self.not_a_number - earlier.not_a_number,
        )

    def plus(self, codes: Codes, reasons: tuple[str, ...]) -> Failures:
        """With some more rows counted."""
        found = {code: int((codes == code).sum()) for code in Undecided}
        return Failures(
            rows=self.rows + len(codes),
            errored=self.errored + found[Undecided.ERRORED],
            withheld=self.withheld + found[Undecided.WITHHELD],
            not_a_number=self.not_a_number + found[Undecided.NOT_A_NUMBER],
            reasons=reasons,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRule:
    """From a model's own answers to decisions.

    Attributes:
        threshold: Class 1 where the score reaches it; None where answers are classes themselves.
        favourable: The class that is favourable.
        output: Answers of two columns are read by it; others are one number a row.
    """

    threshold: float | None
    favourable: Literal[0, 1] = 1
    output: Output | None = None

    @classmethod
    def of_output(cls, output: Output, threshold: float, favourable: Literal[0, 1]) -> DecisionRule:
        """Class 1 iff P(class 1) ≥ threshold, for scores of a known kind.

        Raises:
            AuditInputError: There is no such kind, or the threshold is no probability.
        """
        if output not in _OUTPUTS:
            raise AuditInputError(f"output: {output!r} is none of {', '.join(_OUTPUTS)}")
        if not 0 < threshold < 1:
            raise AuditInputError(f"threshold: {threshold:g} is not between 0 and 1")
        if output in ("logit", "two_logits"):
            threshold = math.log(threshold) - math.log1p(-threshold)
        return cls(threshold=threshold, favourable=favourable, output=output)

    def codes(self, answer: Any, rows: int) -> Codes:
        """Decisions in an answer about n rows, `[n]`.

        Raises:
            AuditInputError: The answer is not one number a row, or has scores and no threshold.
        """
        scores = self._scores(_array(answer), rows)
        unknown = np.isnan(scores) if scores.dtype.kind == "f" else np.zeros(rows, bool)
        if self.threshold is not None:
            # In the scores' own precision, as a server compares them.
            decided = scores >= self.threshold
        elif (unknown | (scores == 0) | (scores == 1)).all():
            decided = scores == 1
        else:
            raise AuditInputError(
                "threshold: the model answers with numbers other than 0 and 1; say from which "
                "score on its decision is 1, such as threshold=0.5 for probabilities or "
                "threshold=0 for logits"
            )
        codes: Codes = (decided == (self.favourable == 1)).astype(np.int8)
        codes[unknown] = Undecided.NOT_A_NUMBER
        return codes

    def _scores(self, given: NDArray[Any], rows: int) -> NDArray[Any]:
        two = self.output is not None and self.output.startswith("two")
        if given.shape not in (((rows, 2),) if two else ((rows,), (rows, 1))):
            wanted = "[n, 2]" if two else "[n] or [n, 1]"
            hint = "; give the column of class 1" if given.shape == (rows, 2) else ""
            raise AuditInputError(
                f"the model answers {count(rows, 'row')} with an array of shape "
                f"{list(given.shape)}; {wanted} is needed{hint}"
            )
        if self.output == "two_logits":
            given = given[:, 1] - given[:, 0]
        scores = given[:, 1] if self.output == "two_probabilities" else given.reshape(rows)
        return scores if scores.dtype.kind in "biuf" else numbers_of(scores, "the model's answers")


def check_favourable(favourable: Any) -> Literal[0, 1]:
    """The class that is favourable.

    Raises:
        AuditInputError: It is neither class.
    """
    if favourable not in (0, 1):
        raise AuditInputError(f"favourable: {favourable!r} is neither 0 nor 1")
    return 1 if favourable else 0


def _array(answer: Any) -> NDArray[Any]:
    # Of a tensor that remembers its gradient, or lives elsewhere, numpy can make nothing.
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu()
    try:
        return np.asarray(answer)
    except (TypeError, ValueError):
        kind = type(answer).__name__
        raise AuditInputError(f"the model answers with a {kind} that is no array") from None
