"""Rows of a window whose log records the people behind requests; they are permuted together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from monitor.traffic.columns import SUBJECT, group_column
from offline_audit.duplicates import UNITS_REMEDY, duplicate_warning
from offline_audit.groups import Crossing, crossed
from offline_audit.permutation.metrics import Metric
from offline_audit.validation import UNKNOWN
from offline_audit.window.provenance import WindowFacts
from offline_audit.window.subjects import Subjects, with_one_group
from offline_audit.window.window import Window

__all__ = ["WindowRows", "copies_warning"]

_BATCH = 1_000_000
# Rows that are compared for copies.
_COMPARED = 200_000
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRows:
    """Predictions with the people behind them; arrays `[n]`.

    Attributes:
        decisions: 1 for the favourable decision, NaN if unknown.
        labels: 1 for the favourable label, NaN if unknown.
        scores: Score of the favourable class, NaN if unknown.
        groups: Groups of each attribute.
        units: Person of each row.
        warnings: How many rows have no known person.
    """

    decisions: Float
    labels: Float
    scores: Float
    groups: dict[str, Crossing]
    units: NDArray[np.int64]
    warnings: tuple[str, ...]

    @classmethod
    def read(cls, window: Window, attributes: Sequence[str], facts: WindowFacts) -> WindowRows:
        """Read a few narrow columns of all rows."""
        names = [*(group_column(attribute) for attribute in attributes), SUBJECT]
        subjects = Subjects()
        numbers: list[list[Float]] = [[], [], []]
        codes: list[list[NDArray[np.int64]]] = [[] for _ in attributes]
        for batch in window.batches(["decision", "label", "score", *names], _BATCH):
            for part, name in zip(numbers, ("decision", "label", "score"), strict=True):
                values = _numbers(batch[name])
                part.append(values if facts.favourable == 1 else 1 - values)
            for own, attribute in zip(codes, attributes, strict=True):
                own.append(_codes(batch[group_column(attribute)], window.attributes[attribute]))
            subjects.add(batch[SUBJECT])
        decisions, labels, scores = (np.concatenate([*part, np.empty(0)]) for part in numbers)
        return cls(
            decisions=decisions,
            labels=labels,
            scores=scores,
            groups={
                attribute: Crossing(
                    attribute=attribute,
                    names=tuple(window.attributes[attribute]),
                    codes=np.concatenate([*own, np.empty(0, np.int64)]),
                )
                for attribute, own in zip(attributes, codes, strict=True)
            },
            units=subjects.units,
            warnings=subjects.warnings,
        )

    def arguments(
        self, crossing: tuple[str, ...], metric: Metric
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Arrays for `permutation_test` by one attribute or crossing, and warnings about them."""
        parts = [self.groups[name] for name in crossing]
        groups = parts[0] if len(parts) == 1 else crossed(parts)
        codes, split = with_one_group(self.units, groups.codes)
        scored = metric.kind != "rate"
        rows = np.isfinite(self.scores) if scored else np.ones(len(codes), bool)
        words = np.array([*groups.names, None], object)
        data = {
            "groups": {groups.attribute: words[codes[rows]]},
            "decisions": self.decisions[rows],
            "labels": self.labels[rows],
            "units": self.units[rows],
            **({"scores": self.scores[rows]} if scored else {}),
        }
        return data, (*self.warnings, *split)


def copies_warning(window: Window, attributes: Sequence[str]) -> tuple[str, ...]:
    """A warning if rows of a window without subjects are copies that chance does not explain."""
    names = ["score", "decision", "label", *(group_column(name) for name in attributes)]
    batches: list[pa.RecordBatch] = []
    read = 0
    for batch in window.batches(names, _COMPARED):
        batches.append(batch)
        read += len(batch)
        if read >= _COMPARED:
            break
    if not batches:
        return ()
    table = pa.Table.from_batches(batches)
    columns = [table[name].combine_chunks().dictionary_encode().indices for name in names]
    codes = [pc.fill_null(column, UNKNOWN).to_numpy(zero_copy_only=False) for column in columns]
    warning = duplicate_warning(codes, UNITS_REMEDY, sampled=read / max(window.facts.rows, read))
    return () if warning is None else (warning,)


def _numbers(column: pa.Array) -> Float:
    values: Float = pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy(
        zero_copy_only=False
    )
    return values


def _codes(column: pa.Array, names: Sequence[str]) -> NDArray[np.int64]:
    codes = pc.index_in(column.cast(pa.string()), pa.array(names, pa.string()))
    filled: NDArray[np.int64] = (
        pc.fill_null(codes, UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return filled
