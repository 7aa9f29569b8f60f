"""Features of logged predictions, to compare classifiers on real traffic."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet as pq

from monitor.bundle.encoding import Encoding
from monitor.bundle.manifest import BundleSpec
from monitor.errors import EncodingError, TrafficError
from monitor.traffic.columns import ENCODED_REQUEST, TrafficColumns, log_metadata
from monitor.traffic.raw_columns import encoded_rows
from monitor.traffic.store import Store

__all__ = ["LoggedFeatures", "read_logged_features"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFeatures:
    """Features of the newest logged predictions of a model's version.

    Attributes:
        features: Features in manifest order, float32 `[n, d]`, all finite.
        skipped: Number of rows with a feature that is not finite, or without raw inputs, which
            are left out.
        since: Time of the first row.
        until: Time of the last row.
    """

    features: NDArray[np.float32]
    skipped: int
    since: dt.datetime
    until: dt.datetime


def read_logged_features(log: Store | Path | str, spec: BundleSpec, most: int) -> LoggedFeatures:
    """Read the features of the newest predictions of a bundle's model and version.

    Only Parquet files are read, which do not yet contain a running sidecar's open segment.

    Args:
        log: Traffic log.
        spec: Manifest of the bundle that served the predictions.
        most: Largest number of rows.

    Raises:
        TrafficError: The log cannot be read, has no such predictions, or does not contain the
            values of all features.
    """
    store = log if isinstance(log, Store) else Store.open(log)
    model = f"{spec.model.name} version {spec.model.version}"
    folder = f"model={spec.model.name}/version={spec.model.version}"
    tables: list[pa.Table] = []
    try:
        # Paths begin with date and hour, so the last is the newest.
        for file in reversed(store.files(folder, ".parquet")):
            tables.insert(0, _read(store, file.path, spec))
            if sum(map(len, tables)) >= most:
                break
    except (OSError, pa.ArrowException) as error:
        # Arrow's message may quote a value.
        raise TrafficError(f"{store.location}: cannot be read: {type(error).__name__}") from None
    table = pa.concat_tables(tables) if tables else None
    if table is None or not len(table):
        raise TrafficError(f"{store.location}: contains no predictions of {model}")
    table = table.sort_by("time").slice(max(len(table) - most, 0))
    features = _features(table, spec, store.location)
    finite = np.isfinite(features).all(1)
    return LoggedFeatures(
        features=np.ascontiguousarray(features[finite]),
        skipped=int((~finite).sum()),
        since=table["time"][0].as_py(),
        until=table["time"][-1].as_py(),
    )


def _features(table: pa.Table, spec: BundleSpec, location: str) -> NDArray[np.float32]:
    """Encoded features `[n, d]`; NaN where a request had no raw inputs."""
    encoding = Encoding.of(spec)
    if encoding is None:
        return np.stack([column.to_numpy() for column in table.columns[1:]], 1)
    try:
        return encoded_rows(table, encoding, encoding.names)
    except EncodingError as error:
        raise TrafficError(
            f"{location}: input {error.name!r} {error.reason} in {error.rows} rows, which this "
            "bundle refuses; use the bundle that was deployed"
        ) from None


def _read(store: Store, path: str, spec: BundleSpec) -> pa.Table:
    """Time and features of a file, in manifest order."""
    with store.open_file(path) as stream:
        file = pq.ParquetFile(stream)
        content = log_metadata(file.schema_arrow).get("columns")
        if content is None:
            raise TrafficError(f"{store.location}: {path} is not a file of a traffic log")
        columns = {c.feature: c for c in TrafficColumns.from_json(content).features}
        names = []
        sources = [raw.name for raw in spec.inputs] or [feature.name for feature in spec.features]
        for source in sources:
            column = columns.get(source)
            if column is None or column.treatment != "keep":
                state = "not logged" if column is None else f"logged with {column.treatment!r}"
                raise TrafficError(
                    f"{store.location}: feature {source!r} is {state}, so the classifier "
                    "cannot be run on logged rows; use --data with the rows of a table"
                )
            names.append(column.name)
        further = [ENCODED_REQUEST] if spec.inputs else []
        chosen = ["time", *names, *further]
        table = file.read(columns=chosen).select(chosen)
        # Names of columns may differ between files, for example after a rename.
        return table.rename_columns(["time", *sources, *further])
