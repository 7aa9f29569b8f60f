"""Segments of synthetic predictions for `benchmarks.traffic`, encoded as by the sidecar."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernel_subjects import Shape
from monitor import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    OneHotGroup,
    ProtectedAttribute,
)
from monitor.batching import Waiting
from monitor.policy import Action, Verdict
from monitor.scoring.scorer import ScoringResult
from monitor.scoring.scores import ScoreColumns
from monitor.traffic.columns import FORMAT, TrafficColumns
from monitor.traffic.privacy import FeatureGuard, Pseudonyms
from monitor.traffic.records import TrafficEncoder
from monitor.traffic.segment import header_bytes, record_bytes

if TYPE_CHECKING:
    import asyncio

    from monitor.batching import Share
    from monitor.scoring.scorer import Scorer

__all__ = ["about_traffic", "synthetic_features", "synthetic_spec", "write_segment"]

# Start of an hour, so that a segment becomes one file.
START = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)
_ATTRIBUTES = {"sex": ("female", "male"), "ethnicity": ("a", "b", "c")}
# Number of rows of the baseline that p-values are ranks in.
_BASELINE = 8_000
_UNUSUAL = 0.01
_LIKELY = 0.5


def synthetic_spec(shape: Shape, *, attributes: int = 2) -> BundleSpec:
    """Spec with the features of a shape and up to two protected attributes."""
    kinds: tuple[tuple[Literal["numeric", "integer", "binary"], int], ...] = (
        ("numeric", shape.numeric),
        ("integer", shape.integer),
        ("binary", shape.binary),
    )
    groups, size = shape.one_hot
    one_hot = tuple(
        OneHotGroup(name=f"c{group}", features=tuple(f"c{group}={value}" for value in range(size)))
        for group in range(groups)
    )
    return BundleSpec(
        model=Model(name="judged", version="1"),
        classifier=ClassifierFile(output="logit"),
        features=(
            *(
                Feature(name=f"{kind} {i}", kind=kind)
                for kind, count in kinds
                for i in range(count)
            ),
            *(Feature(name=name, kind="onehot") for group in one_hot for name in group.features),
        ),
        one_hot_groups=one_hot,
        protected_attributes=tuple(
            ProtectedAttribute(name=name, groups=names)
            for name, names in list(_ATTRIBUTES.items())[:attributes]
        ),
        decision=Decision(),
        fitted=Fitted.now(seed=0, rows=0),
    )


def synthetic_features(shape: Shape, rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Synthetic rows, `[n, d]`; all differ if a feature is numeric."""
    groups, size = shape.one_hot
    chosen = rng.integers(size, size=(rows, groups))
    columns = [
        rng.normal(size=(rows, shape.numeric)),
        rng.poisson(4, size=(rows, shape.integer)),
        rng.random((rows, shape.binary)) < 0.3,
        (chosen[:, :, None] == np.arange(size)).reshape(rows, -1),
    ]
    return np.concatenate([column.astype(np.float32) for column in columns], axis=1)


def write_segment(
    path: Path, spec: BundleSpec, features: NDArray[np.float32], *, batch: int, seed: int = 0
) -> TrafficColumns:
    """Write a segment of predictions on rows `[n, d]`, in batches of requests of one row."""
    columns = TrafficColumns.of(spec)
    about = about_traffic(spec, columns, segment=path.stem)
    with path.open("wb") as file:
        file.write(header_bytes({**about, "begun": START.isoformat()}))
        file.writelines(_records(spec, columns, features, batch, np.random.default_rng(seed)))
    return columns


def about_traffic(spec: BundleSpec, columns: TrafficColumns, *, segment: str) -> dict[str, Any]:
    """Metadata that the sidecar writes to a segment and to its Parquet files."""
    return {
        "format": FORMAT,
        "kind": "traffic",
        "model": spec.model.name,
        "version": spec.model.version,
        "bundle": "0" * 64,
        "pseudonyms": None,
        "evenhand": "benchmark",
        "columns": columns.to_json(),
        "attributes": {a.name: list(a.groups) for a in spec.protected_attributes},
        "class_names": list(spec.decision.class_names),
        "favourable": spec.decision.favourable,
        "threshold": spec.decision.threshold,
        "segment": segment,
    }


def _records(
    spec: BundleSpec,
    columns: TrafficColumns,
    features: NDArray[np.float32],
    batch: int,
    rng: np.random.Generator,
) -> Iterator[bytes]:
    pseudonyms = Pseudonyms(None)
    groups = {a.name: len(a.groups) for a in spec.protected_attributes}
    layout = ScoreColumns.of(groups)
    # The encoder uses the scorer only for rows without scores; here all rows have scores.
    scorer = cast("Scorer", None)
    encoder = TrafficEncoder(
        columns, layout, FeatureGuard(columns, {}, pseudonyms), pseudonyms, scorer
    )
    run = rng.bytes(8).hex()
    results = _results(len(features), layout, rng)
    # The rows are spread over 50 minutes, so that they stay within one hour.
    step = 3_000_000_000_000 // len(features)
    begun = int(START.timestamp()) * 1_000_000_000
    for start in range(0, len(features), batch):
        rows = features[start : start + batch]
        waiting = [_waiting(f"{run}-{start + i + 1}", rows[i : i + 1]) for i in range(len(rows))]
        part = {name: values[start : start + batch] for name, values in results.items()}
        payload = encoder.payload(waiting, rows, ScoringResult(**part))
        yield record_bytes(payload, rows=len(rows), first_row=start, time=begun + step * start)


def _results(rows: int, layout: ScoreColumns, rng: np.random.Generator) -> Mapping[str, Any]:
    """Arrays of a scoring result; scores differ between rows, as those of a network do."""
    scores = rng.normal(size=(rows, layout.width)).astype(np.float32)
    scores[:, layout.boundary_distance] = np.abs(scores[:, layout.logit]) / 2
    scores[:, layout.signed_margin] = scores[:, layout.logit]
    scores[:, layout.unlike] = 0
    for own in layout.attributes.values():
        scores[:, own.flip_probability] = rng.beta(0.3, 3, size=rows)
        scores[:, own.expected_change] = rng.gamma(2, 0.05, size=rows)
    ranks = rng.integers(1, _BASELINE + 2, size=(rows, len(layout.attributes)))
    p_values = ranks / (_BASELINE + 1)
    flips = [own.flip_probability for own in layout.attributes.values()]
    likely_flip, unusual = scores[:, flips] >= _LIKELY, p_values < _UNUSUAL
    verdicts = np.where(likely_flip | unusual, Verdict.ABOVE, Verdict.WITHIN)
    actions = np.where((verdicts == Verdict.ABOVE).any(1), Action.FLAG, Action.NONE)
    return {
        "output": scores[:, layout.logit],
        "scores": scores,
        "p_values": p_values,
        "likely_flip": likely_flip,
        "unusual": unusual,
        "verdicts": verdicts.astype(np.int8),
        "actions": actions.astype(np.int8),
    }


def _waiting(name: str, features: NDArray[np.float32]) -> Waiting:
    """A request whose response nobody waits for."""
    future = cast("asyncio.Future[Share]", None)
    return Waiting(name, 0, features, 0.0, future)
