"""Numbers of a result without their names, which stay the same under renaming and rewording."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

__all__ = ["leaves", "numbers_in", "numeric_leaves", "plain", "rounded"]

_DIGITS = 9
# Smaller absolute values are rounding errors of zero.
_ZERO = 1e-12
_NUMBER = re.compile(r"(?<![\w.])[+\-−]?(?:\d[\d,]*\d|\d)?\.?\d+(?:[eE][+-]?\d+)?%?")


def plain(value: Any) -> Any:
    """Plain JSON data with rounded floats, from dataclasses, arrays and tensors as well."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return rounded(value)
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"a snapshot cannot hold {type(value).__name__}")


def rounded(value: float) -> int | float | str:
    """Round to 9 significant digits; keep integers, and name values that are not finite."""
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return str(value)
    return 0.0 if abs(value) < _ZERO else float(f"{value:.{_DIGITS}g}")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of plain data with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}/{index}")
    else:
        yield path, value


def numeric_leaves(value: Any) -> list[float]:
    """The numbers of plain data in ascending order, regardless of their keys, without bools."""
    values = [item for _, item in leaves(value)]
    numbers = (v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    return sorted(float(v) for v in numbers)


def numbers_in(text: str) -> list[str]:
    """The numbers of a text in their order, without separators of thousands."""
    return [number.replace(",", "").replace("−", "-") for number in _NUMBER.findall(text)]
