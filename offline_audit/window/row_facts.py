"""Facts about the rows of a window and their outcomes, each computed by the engine in one pass."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.window.join import KEYS, outcomes_per_prediction

if TYPE_CHECKING:
    from offline_audit.window.engine import Engine

__all__ = ["DecisionCount", "OutcomeFacts", "RowFacts", "outcome_facts", "row_facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCount:
    """Number of rows with the same version and decision.

    Attributes:
        version: Version of the model.
        decision: Decision; None if the log has none.
        rows: Number of rows.
        labelled: Number of these rows that have a label.
    """

    version: str
    decision: int | None
    rows: int
    labelled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """Facts about the predictions of a window.

    Attributes:
        decision_counts: Number of rows and labels, by version and decision.
        grouped: Number of rows whose group is known, by protected attribute.
        first: Time of the first row; None without rows.
        last: Time of the last row; None without rows.
        duplicated: Number of predictions (request id and row) that are logged more than once.
        surplus: Number of rows beyond the first of each prediction.
        copied: Number of these that also have the time, version and values of an earlier one.
    """

    decision_counts: tuple[DecisionCount, ...]
    grouped: Mapping[str, int]
    first: dt.datetime | None
    last: dt.datetime | None
    duplicated: int
    surplus: int
    copied: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(part.rows for part in self.decision_counts)

    @property
    def labelled(self) -> int:
        """Number of rows with a label."""
        return sum(part.labelled for part in self.decision_counts)

    @property
    def by_decision(self) -> dict[int | None, tuple[int, int]]:
        """Number of rows, and of labelled rows, by decision."""
        totals: dict[int | None, tuple[int, int]] = {}
        for part in self.decision_counts:
            rows, labelled = totals.get(part.decision, (0, 0))
            totals[part.decision] = (rows + part.rows, labelled + part.labelled)
        return totals

    @property
    def by_version(self) -> dict[str, int]:
        """Number of rows by version."""
        totals: dict[str, int] = {}
        for part in self.decision_counts:
            totals[part.version] = totals.get(part.version, 0) + part.rows
        return totals


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeFacts:
    """Facts about the outcomes that were read for a window.

    Attributes:
        rows: Number of outcomes, with repetitions.
        predictions: Number of predictions (request id and row) that have outcomes.
        repeated: Number of predictions that have several outcomes.
        conflicts: Number of predictions whose outcomes have different values, by field.
        values: Number of outcomes that have a value, by field.
        sources: Number of outcomes by source.
        without_prediction: Number of predictions that are not in the model's log; None if it cannot
            be determined.
        in_window: Number of outcomes of predictions of the window.
        late: Number of these that were received after the end of the window; 0 if it has no end.
        median_delay: Median of the seconds between a prediction of the window and its outcome; None
            without outcomes.
        longest_delay: Largest of these delays; None without outcomes.
    """

    rows: int
    predictions: int
    repeated: int
    conflicts: Mapping[str, int]
    values: Mapping[str, int]
    sources: Mapping[str | None, int]
    without_prediction: int | None
    in_window: int
    late: int
    median_delay: float | None
    longest_delay: float | None


def row_facts(engine: Engine, joined: Any, rows: Any, columns: Mapping[str, str]) -> RowFacts:
    """Compute the facts about rows.

    Args:
        engine: Engine that runs the queries.
        joined: Ibis table of `time`, `version`, `decision`, `label` and the group columns.
        rows: Ibis table of the same rows with their keys; duplicates are counted without a join.
        columns: Names of the group columns, by attribute.
    """
    known = {f"known_{index}": joined[name].count() for index, name in enumerate(columns.values())}
    parts = engine.fetch(
        joined.group_by("version", "decision").agg(
            rows=joined.count(),
            labelled=joined.label.count(),
            first=joined.time.min(),
            last=joined.time.max(),
            **known,
        )
    ).to_pylist()
    parts.sort(
        key=lambda part: (part["version"], 2 if part["decision"] is None else part["decision"])
    )
    times = rows.group_by(KEYS).agg(times=rows.count())
    repeated = times.filter(times.times > 1)
    duplicates = engine.fetch(
        repeated.agg(predictions=repeated.count(), surplus=(repeated.times - 1).sum())
    ).to_pylist()[0]
    return RowFacts(
        decision_counts=tuple(
            DecisionCount(
                version=part["version"],
                decision=part["decision"],
                rows=part["rows"],
                labelled=part["labelled"],
            )
            for part in parts
        ),
        grouped={a: sum(p[f"known_{index}"] for p in parts) for index, a in enumerate(columns)},
        first=min((part["first"] for part in parts), default=None),
        last=max((part["last"] for part in parts), default=None),
        duplicated=duplicates["predictions"],
        surplus=duplicates["surplus"] or 0,
        copied=_copied(engine, rows, repeated) if duplicates["predictions"] else 0,
    )


def _copied(engine: Engine, rows: Any, repeated: Any) -> int:
    """Number of rows that are copies of others; only repeated predictions are looked at."""
    columns = [*KEYS, "time", "version", "decision", "score", "logit"]
    times = (
        rows.select(*columns)
        .semi_join(repeated, KEYS)
        .group_by(columns)
        .agg(times=lambda same: same.count())
    )
    copied = engine.fetch(times.agg(copied=(times.times - 1).sum()))["copied"][0].as_py()
    return int(copied or 0)


def outcome_facts(
    engine: Engine,
    outcomes: Any,
    rows: Any,
    fields: Sequence[str],
    until: dt.datetime | None,
    without_prediction: int | None,
) -> OutcomeFacts:
    """Compute the facts about outcomes.

    Args:
        engine: Engine that runs the queries.
        outcomes: Ibis table of all outcomes.
        rows: Ibis table of the window's predictions: the keys and `time`.
        fields: Columns of outcomes: `label` and the group columns.
        until: End of the window.
        without_prediction: Number of predictions that are not in the model's log.
    """
    by_prediction = outcomes_per_prediction(outcomes, fields)
    totals = engine.fetch(
        by_prediction.agg(
            predictions=by_prediction.count(),
            repeated=(by_prediction.times > 1).cast("int64").sum(),
            **{f"conflict_{i}": by_prediction[f"conflict_{i}"].sum() for i in range(len(fields))},
        )
    ).to_pylist()[0]
    values = {f"values_{index}": outcomes[name].count() for index, name in enumerate(fields)}
    sources = engine.fetch(
        outcomes.group_by("source").agg(rows=outcomes.count(), **values)
    ).to_pylist()
    delays = engine.fetch(_delays(outcomes, rows, until)).to_pylist()[0]
    return OutcomeFacts(
        rows=sum(source["rows"] for source in sources),
        predictions=totals["predictions"],
        repeated=totals["repeated"] or 0,
        conflicts={field: totals[f"conflict_{i}"] or 0 for i, field in enumerate(fields)},
        values={field: sum(s[f"values_{i}"] for s in sources) for i, field in enumerate(fields)},
        sources={
            s["source"]: s["rows"]
            for s in sorted(sources, key=lambda s: (s["source"] is None, s["source"] or ""))
        },
        without_prediction=without_prediction,
        in_window=delays["outcomes"],
        late=delays["outcomes"] - (delays["in_time"] or 0),
        median_delay=None if delays["median"] is None else float(delays["median"]),
        longest_delay=None if delays["longest"] is None else float(delays["longest"]),
    )


def _delays(outcomes: Any, rows: Any, until: dt.datetime | None) -> Any:
    # The first of several log rows of a prediction counts.
    predicted = rows.group_by(KEYS).agg(predicted_at=rows.time.min())
    matched = outcomes.select(*KEYS, "received_at").join(predicted, KEYS)
    # In whole seconds, since engines round fractions in different ways.
    delay = (
        matched.received_at.truncate("s").epoch_seconds()
        - matched.predicted_at.truncate("s").epoch_seconds()
    )
    before_end = (
        matched.count() if until is None else (matched.received_at < until).cast("int64").sum()
    )
    return matched.agg(
        outcomes=matched.count(), in_time=before_end, median=delay.median(), longest=delay.max()
    )
