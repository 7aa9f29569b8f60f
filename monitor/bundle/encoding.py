"""Encodes raw inputs as the classifier's features, vectorised over rows.

Rows of raw inputs are a float64 matrix `[n, r]`: numbers as they are, categories as their index in
the declared list. Missing numbers are NaN; `MISSING` and `NOT_LISTED` are codes of categories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.inputs import UNSEEN, RawCategory, RawNumber, Step, Substitute
from monitor.errors import EncodingError
from monitor.tensors import category_text

if TYPE_CHECKING:
    from monitor.bundle.manifest import BundleSpec

__all__ = [
    "MISSING",
    "NOT_LISTED",
    "Encoding",
    "EncodingError",
    "apply_steps",
    "number_before",
]

# Codes of categories; also indices from the end of a category's table.
MISSING, NOT_LISTED = -1, -2
# Larger logs are those of no float64.
_LARGEST_LOG = 709.0

Raw = NDArray[np.float64]


class Encoding:
    """The encoding of a model with raw inputs.

    Attributes:
        inputs: Raw inputs, in the order of the columns of raw rows.
        names: Names of the raw inputs.
    """

    def __init__(self, inputs: Sequence[RawNumber | RawCategory], features: Sequence[str]) -> None:
        self.inputs = tuple(inputs)
        self.names = [raw.name for raw in inputs]
        self._width = len(features)
        self._features = list(features)
        position = {name: index for index, name in enumerate(features)}
        self._input_of = {name: raw.name for raw in inputs for name in raw.columns}
        self._writers = _number_writers(inputs, position) + [
            _category_writer(raw, index, [position[name] for name in raw.columns])
            for index, raw in enumerate(inputs)
            if isinstance(raw, RawCategory)
        ]
        codes = [None if raw.kind == "category" else raw.missing_code for raw in inputs]
        self._missing_codes = None
        if any(code is not None for code in codes):
            # NaN, which equals nothing, where there is no code.
            self._missing_codes = np.array([np.nan if c is None else c for c in codes])
        self._refused = np.array([_refused(raw) for raw in inputs]).T
        self._codes = [_codes(raw) for raw in inputs]
        self._numeric_codes = [_numeric_codes(codes) for codes in self._codes]

    @classmethod
    def of(cls, spec: BundleSpec) -> Encoding | None:
        """The encoding of a bundle; None if it has no raw inputs."""
        if not spec.inputs:
            return None
        return cls(spec.inputs, [feature.name for feature in spec.features])

    def encode(self, raw: Raw) -> NDArray[np.float32]:
        """Encoded features `[n, d]` of raw rows `[n, r]`.

        Raises:
            EncodingError: A missing or unseen value is refused.
        """
        if self._missing_codes is not None:
            raw = np.where(raw == self._missing_codes, np.nan, raw)
        if refused := self.refused(raw):
            raise refused[0]
        features = np.empty((len(raw), self._width), np.float32)
        with np.errstate(all="ignore"):
            for write in self._writers:
                write(raw, features)
        return features

    @property
    def empty_row(self) -> Raw:
        """A raw row whose inputs are all missing, `[r]`."""
        return np.array([np.nan if raw.kind == "number" else MISSING for raw in self.inputs])

    def input_of(self, column: int) -> str:
        """Name of the raw input that writes an encoded column."""
        return self._input_of[self._features[column]]

    def codes_of_texts(self, index: int, texts: Sequence[bytes]) -> Raw:
        """Codes of the categories of one input, `[n]`; an empty text is missing."""
        code = self._codes[index].get
        return np.array([code(text, NOT_LISTED) for text in texts], np.float64)

    def codes_of_numbers(self, index: int, values: NDArray[np.generic]) -> Raw:
        """Codes of categories that were sent as numbers, `[n]`; NaN is missing."""
        if values.dtype == bool:
            texts = [b"true" if value else b"false" for value in values.tolist()]
            return self.codes_of_texts(index, texts)
        code = self._numeric_codes[index].get
        numbers = values.astype(np.float64)
        codes = np.array([code(value, NOT_LISTED) for value in numbers.tolist()], np.float64)
        codes[np.isnan(numbers)] = MISSING
        return codes

    def as_given(self, row: Raw) -> dict[str, object]:
        """Raw inputs of a row `[r]` by name; None if missing, `unseen` for unlisted categories."""
        given: dict[str, object] = {}
        for raw, value in zip(self.inputs, row.tolist(), strict=True):
            if isinstance(raw, RawNumber):
                given[raw.name] = None if np.isnan(value) else value
            elif value >= 0:
                given[raw.name] = raw.categories[int(value)]
            else:
                given[raw.name] = UNSEEN if value == NOT_LISTED else None
        return given

    def refused(self, raw: Raw) -> list[EncodingError]:
        """The first refused value of every input that has one, in raw rows `[n, r]`."""
        absent, missing, unseen = self._refused
        bad = (np.isnan(raw) & absent) | ((raw == MISSING) & missing)
        bad |= (raw == NOT_LISTED) & unseen
        if not bad.any():
            return []
        errors = []
        for column in np.flatnonzero(bad.any(0)).tolist():
            rows, raw_input = bad[:, column], self.inputs[column]
            first = int(rows.argmax())
            is_unseen = isinstance(raw_input, RawCategory) and raw[first, column] == NOT_LISTED
            reason = "is not one of its categories" if is_unseen else "is missing"
            errors.append(EncodingError(raw_input.name, reason, first, int(rows.sum())))
        return errors


def apply_steps(values: Raw, steps: Sequence[Step]) -> Raw:
    """Values after some steps, in float64."""
    for step in steps:
        values = _operation([step])(values)
    return values


def number_before(value: float, steps: Sequence[Step]) -> float | None:
    """The number that some steps turn into a value; None if they reverse the order of numbers."""
    before = value
    for step in reversed(steps):
        ((name, operand),) = step.operation.items()
        match operand:
            case "log":
                before = float(np.exp(min(before, _LARGEST_LOG)))
            case "log1p":
                before = float(np.expm1(min(before, _LARGEST_LOG)))
            case float() | int():
                if name in ("multiply", "divide") and operand <= 0:
                    return None
                inverse = {
                    "add": before - operand,
                    "subtract": before + operand,
                    "multiply": before / operand if operand else math.nan,
                    "divide": before * operand,
                }
                before = inverse[name]
            case _:
                # Within the limits of `clip`, numbers do not change.
                pass
    return before


def _operation(parallel: Sequence[Step]) -> Callable[[Raw], Raw]:
    """The same operation on each of m columns `[n, m]`, with an operand per column."""
    first = parallel[0]
    if first.function is not None:
        return {"log": np.log, "log1p": np.log1p}[first.function]
    if first.clip is not None:
        low, high = np.array([step.clip for step in parallel], np.float64).T
        return lambda values: np.clip(values, low, high)
    ((name, _),) = first.operation.items()
    operands = np.array([step.operation[name] for step in parallel], np.float64)
    ufunc = {
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "divide": np.divide,
    }[name]
    return lambda values: ufunc(values, operands)


def _number_writers(
    inputs: Sequence[RawNumber | RawCategory], position: Mapping[str, int]
) -> list[Callable[[Raw, NDArray[np.float32]], None]]:
    """Functions that write the encoded columns `[n, d]` of numbers from raw rows `[n, r]`.

    Numbers with the same operations share a function: it runs for every request, and the time of
    a numpy call on few rows does not depend on the number of columns.
    """
    alike: dict[tuple[str | bool, ...], list[int]] = {}
    for index, raw in enumerate(inputs):
        if isinstance(raw, RawNumber):
            names = [step.function or next(iter(step.operation)) for step in raw.steps]
            alike.setdefault((raw.impute is not None, *names), []).append(index)
    return [_number_writer(inputs, indices, position) for indices in alike.values()]


def _number_writer(
    inputs: Sequence[RawNumber | RawCategory], indices: list[int], position: Mapping[str, int]
) -> Callable[[Raw, NDArray[np.float32]], None]:
    numbers = [raw for raw in map(inputs.__getitem__, indices) if isinstance(raw, RawNumber)]
    columns = [position[raw.columns[0]] for raw in numbers]
    fills = None
    if numbers[0].impute is not None:
        fills = np.array([raw.impute for raw in numbers], np.float64)
    steps = [_operation(parallel) for parallel in zip(*(raw.steps for raw in numbers), strict=True)]
    flagged = [
        (number, position[raw.indicator.column], _flags(raw.indicator.steps))
        for number, raw in enumerate(numbers)
        if raw.indicator is not None
    ]

    def write(rows: Raw, features: NDArray[np.float32]) -> None:
        values = rows[:, indices]
        if fills is not None:
            absent = np.isnan(values)
            values = np.where(absent, fills, values)
            for number, column, flags in flagged:
                features[:, column] = flags[absent[:, number].astype(np.intp)]
        for step in steps:
            values = step(values)
        features[:, columns] = values

    return write


def _flags(steps: Sequence[Step]) -> NDArray[np.float32]:
    """Values of an indicator for a present and for a missing number."""
    return apply_steps(np.array([0.0, 1.0]), steps).astype(np.float32)


def _category_writer(
    raw: RawCategory, index: int, columns: list[int]
) -> Callable[[Raw, NDArray[np.float32]], None]:
    table = _table(raw)
    start = columns[0]
    # A slice is written several times faster than a list of columns.
    adjacent = columns == list(range(start, start + len(columns)))
    target = slice(start, start + len(columns)) if adjacent else columns

    def write(rows: Raw, features: NDArray[np.float32]) -> None:
        features[:, target] = table[rows[:, index].astype(np.intp)]

    return write


def _table(raw: RawCategory) -> NDArray[np.float32]:
    """Encoded columns by code, `[k + 2, c]`; the last rows are unseen and missing."""
    count = len(raw.categories)
    table = np.zeros((count + 2, len(raw.columns)))
    if raw.encoding == "ordinal":
        table[:count, 0] = np.arange(count) if raw.codes is None else raw.codes
    else:
        kept = [code for code, name in enumerate(raw.categories) if name != raw.dropped]
        table[kept, np.arange(len(kept))] = 1
    for code, rule in ((NOT_LISTED, raw.unseen), (MISSING, raw.missing)):
        if rule == "unseen":
            table[code] = table[NOT_LISTED]
        elif isinstance(rule, Substitute):
            named = rule.own or rule.category
            table[code] = rule.code if named is None else table[raw.categories.index(named)]
    return table.astype(np.float32)


def _refused(raw: RawNumber | RawCategory) -> tuple[bool, bool, bool]:
    """Whether a missing number, a missing category and an unseen category are refused."""
    if isinstance(raw, RawNumber):
        return raw.impute is None, False, False
    unseen = raw.unseen == "refuse"
    missing = raw.missing == "refuse" or (raw.missing == "unseen" and unseen)
    return False, missing, unseen


def _codes(raw: RawNumber | RawCategory) -> dict[bytes, int]:
    if isinstance(raw, RawNumber):
        return {}
    codes = {name.encode(): code for code, name in enumerate(raw.categories)}
    if isinstance(raw.missing, Substitute) and raw.missing.own is not None:
        del codes[raw.missing.own.encode()]
    return codes | {b"": MISSING}


def _numeric_codes(codes: Mapping[bytes, int]) -> dict[float, int]:
    numeric: dict[float, int] = {}
    for text, code in codes.items():
        try:
            number = float(text)
        except ValueError:
            continue
        if np.isfinite(number) and category_text(number).encode() == text:
            numeric[number] = code
    return numeric
