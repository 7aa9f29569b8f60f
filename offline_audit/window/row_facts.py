"""Facts about a window that need a look at its rows, each found by the engine in one pass."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offline_audit.window.engine import Engine
from offline_audit.window.outcomes import KEYS, told_per_prediction

__all__ = ["OutcomeFacts", "RowFacts", "Share", "outcome_facts", "row_facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Rows of one version and decision, and of how many of them more is known.

    Attributes:
        version: Of the model.
        decision: None where the log has none.
        rows: How many.
        labelled: Of them with a label.
    """

    version: str
    decision: int | None
    rows: int
    labelled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """About the predictions of a window.

    Attributes:
        shares: Rows and labels, by version and decision.
        grouped: Rows whose group is known, by protected attribute.
        first: Time of the first row; None without any.
        last: Time of the last row.
        duplicated: Pairs of request id and row that stand there more than once.
        surplus: Rows that would not be there if each stood there once.
    """

    shares: tuple[Share, ...]
    grouped: Mapping[str, int]
    first: dt.datetime | None
    last: dt.datetime | None
    duplicated: int
    surplus: int

    @property
    def rows(self) -> int:
        """Of the window."""
        return sum(share.rows for share in self.shares)

    @property
    def labelled(self) -> int:
        """Rows with a label."""
        return sum(share.labelled for share in self.shares)

    @property
    def by_decision(self) -> dict[int | None, tuple[int, int]]:
        """Rows, and labelled rows, by decision."""
        found: dict[int | None, tuple[int, int]] = {}
        for share in self.shares:
            rows, labelled = found.get(share.decision, (0, 0))
            found[share.decision] = (rows + share.rows, labelled + share.labelled)
        return found

    @property
    def by_version(self) -> dict[str, int]:
        """Rows by version."""
        found: dict[str, int] = {}
        for share in self.shares:
            found[share.version] = found.get(share.version, 0) + share.rows
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeFacts:
    """About the outcomes that were read for a window.

    Attributes:
        rows: Outcomes, repetitions included.
        predictions: Pairs of request id and row that they tell of.
        repeated: Pairs that they tell of more than once.
        conflicts: Pairs for which they say different things, by field.
        told: Outcomes that say something, by field.
        sources: Outcomes by the way they came.
        without_prediction: Pairs that are nowhere in the model's log; None if that cannot be said.
        of_window: Outcomes of predictions of the window.
        late: Of these, received after the window's end; 0 where it has none.
        median_delay: Seconds from a prediction of the window to an outcome of it; None without any.
        longest_delay: The same for the slowest.
    """

    rows: int
    predictions: int
    repeated: int
    conflicts: Mapping[str, int]
    told: Mapping[str, int]
    sources: Mapping[str | None, int]
    without_prediction: int | None
    of_window: int
    late: int
    median_delay: float | None
    longest_delay: float | None


def row_facts(engine: Engine, joined: Any, rows: Any, columns: Mapping[str, str]) -> RowFacts:
    """About rows with what is known of them.

    Args:
        engine: That computes.
        joined: An Ibis table of `time`, `version`, `decision`, `label` and groups.
        rows: One of the same rows with their keys, which need no join to be counted.
        columns: Names of the columns of groups, by attribute.
    """
    known = {f"known_{place}": joined[name].count() for place, name in enumerate(columns.values())}
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
    several = times.filter(times.times > 1)
    counted = engine.fetch(
        several.agg(pairs=several.count(), surplus=(several.times - 1).sum())
    ).to_pylist()[0]
    return RowFacts(
        shares=tuple(
            Share(**{name: part[name] for name in ("version", "decision", "rows", "labelled")})
            for part in parts
        ),
        grouped={a: sum(p[f"known_{place}"] for p in parts) for place, a in enumerate(columns)},
        first=min((part["first"] for part in parts), default=None),
        last=max((part["last"] for part in parts), default=None),
        duplicated=counted["pairs"],
        surplus=counted["surplus"] or 0,
    )


def outcome_facts(
    engine: Engine,
    told: Any,
    rows: Any,
    fields: Sequence[str],
    until: dt.datetime | None,
    without_prediction: int | None,
) -> OutcomeFacts:
    """About outcomes.

    Args:
        engine: That computes.
        told: An Ibis table of all outcomes.
        rows: One of the window's predictions: the keys and `time`.
        fields: What outcomes may tell: `label` and the columns of groups.
        until: End of the window.
        without_prediction: As it was counted.
    """
    each = told_per_prediction(told, fields)
    conflicts = {f"conflict_{p}": each[f"conflict_{p}"].sum() for p in range(len(fields))}
    pairs = engine.fetch(
        each.agg(
            predictions=each.count(), repeated=(each.times > 1).cast("int64").sum(), **conflicts
        )
    ).to_pylist()[0]
    said = {f"told_{place}": told[name].count() for place, name in enumerate(fields)}
    sources = engine.fetch(told.group_by("source").agg(rows=told.count(), **said)).to_pylist()
    delays = engine.fetch(_delays(told, rows, until)).to_pylist()[0]
    return OutcomeFacts(
        rows=sum(source["rows"] for source in sources),
        predictions=pairs["predictions"],
        repeated=pairs["repeated"] or 0,
        conflicts={f: pairs[f"conflict_{p}"] or 0 for p, f in enumerate(fields)},
        told={f: sum(s[f"told_{p}"] for s in sources) for p, f in enumerate(fields)},
        sources={
            s["source"]: s["rows"]
            for s in sorted(sources, key=lambda s: (s["source"] is None, s["source"] or ""))
        },
        without_prediction=without_prediction,
        of_window=delays["outcomes"],
        late=delays["outcomes"] - (delays["in_time"] or 0),
        median_delay=None if delays["median"] is None else float(delays["median"]),
        longest_delay=None if delays["longest"] is None else float(delays["longest"]),
    )


def _delays(told: Any, rows: Any, until: dt.datetime | None) -> Any:
    # Of a prediction that was logged twice the first counts.
    predicted = rows.group_by(KEYS).agg(predicted_at=rows.time.min())
    met = told.select(*KEYS, "received_at").join(predicted, KEYS)
    # In whole seconds, since engines round the rest in different ways.
    delay = (
        met.received_at.truncate("s").epoch_seconds()
        - met.predicted_at.truncate("s").epoch_seconds()
    )
    in_time = met.count() if until is None else (met.received_at < until).cast("int64").sum()
    return met.agg(
        outcomes=met.count(), in_time=in_time, median=delay.median(), longest=delay.max()
    )
