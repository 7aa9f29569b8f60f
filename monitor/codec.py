"""Reads the classifier's features from the tensors of a request.

A client sends one tensor `[n, d]` of all features, or one tensor `[n]` or `[n, 1]` per feature,
with the feature's name. If the model has raw inputs, a client sends one tensor per raw input
instead, or one tensor of all encoded features. Error messages name the tensor, the row and the
feature or input; they never contain a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.encoding import Encoding
from monitor.errors import BadRequestError, EncodingError, TooLargeError
from monitor.tensors import DATATYPES, float_values, label_of, raw_numbers, raw_values, shape_text

if TYPE_CHECKING:
    from monitor.bundle.manifest import BundleSpec
    from monitor.request import InputTensor
    from monitor.settings import ServerConfig

__all__ = ["DATATYPES", "MAX_TENSORS", "FeatureCodec", "takes_encoded"]

Features = NDArray[np.float32]
Raw = NDArray[np.float64]

# Limit on the number of tensors in a request.
MAX_TENSORS = 20_000


class FeatureCodec:
    """Reads the features of requests for one model."""

    def __init__(self, spec: BundleSpec, config: ServerConfig) -> None:
        self._encoding = Encoding.of(spec)
        self._columns = [feature.name for feature in spec.features]
        self._names = self._columns if self._encoding is None else self._encoding.names
        self._indices = {name: index for index, name in enumerate(self._names)}
        self._all = config.input_name
        self._refuses_non_finite = config.non_finite == "refuse"
        self._max_rows = config.max_rows
        # A raw input with the name of the encoded tensor takes its place.
        self._takes_encoded = takes_encoded(spec, config)

    def decode(self, inputs: Sequence[InputTensor]) -> tuple[Features, Raw | None]:
        """Features of a request, `[n, d]`, and its raw rows `[n, r]` if it has raw inputs.

        Raises:
            BadRequestError: The tensors are malformed, or are not the model's inputs.
            TooLargeError: There are too many rows.
        """
        if self._encoding is None or (self._takes_encoded and self._is_whole(inputs)):
            return self.features(inputs), None
        raw = self._raw_rows(inputs, self._encoding)
        try:
            features = self._encoding.encode(raw)
        except EncodingError as error:
            raise BadRequestError(str(error)) from None
        if self._refuses_non_finite and not np.isfinite(features).all():
            row, column = np.argwhere(~np.isfinite(features))[0].tolist()
            raise BadRequestError(
                f"input {self._encoding.input_of(column)!r} of row {row} does not encode to a "
                "finite number in FP32"
            )
        return features, raw

    def features(self, inputs: Sequence[InputTensor]) -> Features:
        """The features of a request, `[n, d]`; may share memory with it.

        Raises:
            BadRequestError: The tensors are malformed, or are not the model's features.
            TooLargeError: There are too many rows.
        """
        whole = self._is_whole(inputs)
        features = self._whole(inputs[0]) if whole else self._from_columns(inputs)
        if self._refuses_non_finite and not np.isfinite(features).all():
            row, column = np.argwhere(~np.isfinite(features))[0].tolist()
            raise BadRequestError(
                f"feature {self._columns[column]!r} of row {row} is not a finite number in FP32"
            )
        return features

    def _is_whole(self, inputs: Sequence[InputTensor]) -> bool:
        return len(inputs) == 1 and inputs[0].name == self._all

    def _whole(self, tensor: InputTensor) -> Features:
        width, shape = len(self._columns), tuple(tensor.shape)
        if len(shape) != 2 or shape[1] != width:
            raise BadRequestError(
                f"{label_of(tensor)} has shape {shape_text(shape)}; it must be [n, {width}]"
            )
        self._check_rows(shape[0], label_of(tensor))
        return float_values(tensor, shape[0] * width).reshape(shape)

    def _from_columns(self, inputs: Sequence[InputTensor]) -> Features:
        rows = self._checked_columns(inputs)
        features = np.empty((rows, len(self._names)), np.float32)
        for tensor in inputs:
            features[:, self._indices[tensor.name]] = float_values(tensor, rows)
        return features

    def _raw_rows(self, inputs: Sequence[InputTensor], encoding: Encoding) -> Raw:
        rows = self._checked_columns(inputs)
        # Columns are contiguous, since they are written and encoded one by one.
        raw = np.empty((rows, len(self._names)), order="F")
        for tensor in inputs:
            index = self._indices[tensor.name]
            if encoding.inputs[index].kind == "number":
                raw[:, index] = raw_numbers(tensor, rows)
                continue
            values = raw_values(tensor, rows)
            read = (
                encoding.codes_of_texts if isinstance(values, list) else encoding.codes_of_numbers
            )
            raw[:, index] = read(index, values)  # type: ignore[arg-type]
        return raw

    def _checked_columns(self, inputs: Sequence[InputTensor]) -> int:
        """Number of rows of tensors that hold one column each, with the expected names."""
        self._check_names([tensor.name for tensor in inputs])
        rows = inputs[0].shape[0] if len(inputs[0].shape) else 0
        self._check_rows(rows, label_of(inputs[0]))
        for tensor in inputs:
            shape = tuple(tensor.shape)
            if shape not in ((rows,), (rows, 1)):
                raise BadRequestError(
                    f"{label_of(tensor)} has shape {shape_text(shape)}; it must be [{rows}] or "
                    f"[{rows}, 1], since {label_of(inputs[0])} has {rows} rows"
                )
        return rows

    def _check_names(self, names: list[str]) -> None:
        hint = f"send one tensor {self._all!r} [n, {len(self._names)}], or one per feature"
        if self._encoding is not None:
            hint = f"send one tensor per raw input: {', '.join(self._names):.500}"
        if not names:
            raise BadRequestError(f"there is no input; {hint}")
        for name in names:
            if name not in self._indices:
                raise BadRequestError(f"input {name!r:.120} is unknown; {hint}")
        unique = set(names)
        if len(unique) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadRequestError(f"input {twice!r} occurs twice")
        missing = [name for name in self._names if name not in unique]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            listed = ", ".join(map(repr, missing[:3]))
            raise BadRequestError(f"there is no input for {listed}{more}; {hint}")

    def _check_rows(self, rows: int, label: str) -> None:
        if rows < 1:
            raise BadRequestError(f"{label} has no rows")
        if rows > self._max_rows:
            raise TooLargeError(f"{label} has {rows} rows; the limit is {self._max_rows}")


def takes_encoded(spec: BundleSpec, config: ServerConfig) -> bool:
    """Whether requests may have one tensor of all encoded features."""
    return config.input_name not in [raw.name for raw in spec.inputs]
