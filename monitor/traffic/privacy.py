"""Pseudonyms of request ids, and treatment of features: kept, hashed, bucketed or dropped."""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.encoding import MISSING, NOT_LISTED
from monitor.bundle.inputs import RawCategory, RawNumber
from monitor.bundle.manifest import BundleSpec, Feature
from monitor.errors import ConfigError
from monitor.traffic.columns import FeatureColumn, TrafficColumns
from monitor.traffic.settings import FeatureTreatment

__all__ = ["FeatureGuard", "Pseudonyms", "treatments"]

_SHORTEST_KEY = 16
_BUCKETS = 20
# Relative rounding error of a float32.
_ROUNDING = float(np.finfo(np.float32).eps)
_CACHED_HASHES = 65536


class Pseudonyms:
    """Keyed pseudonyms of request ids.

    Attributes:
        fingerprint: Identifier of the key that does not reveal it; None without a key.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = None if key is None else hashlib.blake2b(key, digest_size=32).digest()
        self.fingerprint = None if key is None else self._hash(b"fingerprint of the key", 8)

    @classmethod
    def read(cls, path: Path | None) -> Self:
        """Pseudonyms with the key in a file; without a file, request ids are not changed.

        Raises:
            ConfigError: The file cannot be read, or the key is too short.
        """
        if path is None:
            return cls(None)
        try:
            key = path.read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"traffic.key_path: {path}: {error.strerror or error}") from None
        if len(key) < _SHORTEST_KEY:
            raise ConfigError(
                f"traffic.key_path: the key in {path} has {len(key)} bytes; at least "
                f"{_SHORTEST_KEY} are required (create one with `head -c 32 /dev/urandom`)"
            )
        return cls(key)

    @property
    def enabled(self) -> bool:
        """Whether there is a key; without one request ids are not changed."""
        return self._key is not None

    def of(self, request_id: str) -> str:
        """Name of a request in the log."""
        return request_id if self._key is None else self._hash(request_id.encode(), 16)

    def of_subject(self, subject: str) -> str:
        """Name of a person in the outcomes, which differs from that of a request with this id."""
        assert self._key is not None, "the config requires a key for subjects"
        return self._hash(b"subject\0" + subject.encode(), 16)

    def of_value(self, feature: str, value: float) -> int:
        """Keyed hash of a feature's value."""
        # Adding 0.0 turns -0.0 into 0.0.
        return self.of_bytes(feature, np.float32(value + 0.0).tobytes())

    def of_bytes(self, feature: str, data: bytes) -> int:
        """Keyed hash of a feature's value as bytes."""
        name = hashlib.blake2b(feature.encode(), digest_size=8).digest()
        digest = hashlib.blake2b(data, digest_size=8, key=self._key or b"", salt=name)
        return int.from_bytes(digest.digest(), "little")

    def _hash(self, data: bytes, size: int) -> str:
        return hashlib.blake2b(data, digest_size=size, key=self._key or b"").hexdigest()


def treatments(
    spec: BundleSpec, configured: Mapping[str, FeatureTreatment]
) -> dict[str, FeatureTreatment]:
    """Treatments by raw input, or by encoded feature if the bundle has no raw inputs.

    The name of a one-hot group covers all its columns.

    Raises:
        ConfigError: A feature is unknown, or cannot be bucketed.
    """
    groups = {group.name: group.features for group in spec.one_hot_groups}
    features: dict[str, Feature | None] = {feature.name: feature for feature in spec.features}
    if spec.inputs:
        groups, features = {}, {raw.name: _as_feature(raw, features) for raw in spec.inputs}
    by_feature: dict[str, FeatureTreatment] = {}
    for name, treatment in configured.items():
        if name not in features and name not in groups:
            close = difflib.get_close_matches(name, [*features, *groups], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"traffic.features.{name}: the bundle has no such feature{hint}")
        for column in groups.get(name, (name,)):
            by_feature[column] = treatment
        if treatment.treatment == "bucket":
            by_feature[name] = _bucket(name, features.get(name), treatment)
    return by_feature


def _as_feature(
    raw: RawNumber | RawCategory, features: Mapping[str, Feature | None]
) -> Feature | None:
    """A raw number as a numeric feature, with a range if it is not changed by the encoding."""
    if isinstance(raw, RawCategory):
        return None
    own = features[raw.columns[0]]
    if raw.steps or own is None:
        return Feature(name=raw.name, kind="numeric")
    return Feature(name=raw.name, kind="numeric", low=own.low, high=own.high)


def _bucket(name: str, feature: Feature | None, treatment: FeatureTreatment) -> FeatureTreatment:
    """The treatment with a bucket width, by default a twentieth of the feature's range."""
    if feature is None or feature.kind != "numeric":
        raise ConfigError(
            f"traffic.features.{name}: only numeric features can be bucketed; use keep, "
            "hash or drop"
        )
    if treatment.width is not None:
        return treatment
    if feature.low is None or feature.high is None or feature.low == feature.high:
        raise ConfigError(
            f"traffic.features.{name}: the bundle has no range for this feature; set a "
            f"width, such as {{treatment: bucket, width: 10}}"
        )
    return treatment.model_copy(update={"width": (feature.high - feature.low) / _BUCKETS})


class FeatureGuard:
    """Applies the treatments to encoded features."""

    def __init__(
        self,
        columns: TrafficColumns,
        treatments: Mapping[str, FeatureTreatment],
        pseudonyms: Pseudonyms,
    ) -> None:
        plain = [c for c in columns.features if c.treatment != "hash"]
        self._columns = np.array([c.index for c in plain], np.intp)
        self._hashed = [c for c in columns.features if c.treatment == "hash"]
        self._widths = np.array(
            [treatments[c.feature].width if c.treatment == "bucket" else 0.0 for c in plain],
            np.float64,
        )
        self._buckets = np.flatnonzero(self._widths)
        self._pseudonyms = pseudonyms
        self._known: dict[tuple[str, float], int] = {}

    def treated(self, features: NDArray[np.floating]) -> NDArray[np.floating]:
        """Written values of encoded features or raw rows `[n, d]`, without hashed columns."""
        treated: NDArray[np.floating] = features[:, self._columns]
        if len(self._buckets):
            widths = self._widths[self._buckets]
            steps = treated[:, self._buckets].astype(np.float64) / widths
            # A value on the lower edge of a bucket belongs to it in spite of float32 rounding.
            treated[:, self._buckets] = np.floor(steps + _ROUNDING * np.abs(steps)) * widths
        return treated

    def hashed(self, features: NDArray[np.floating]) -> NDArray[np.uint64]:
        """Hashed values, `[n, h]`."""
        hashes = np.empty((len(features), len(self._hashed)), np.uint64)
        for index, column in enumerate(self._hashed):
            values = features[:, column.index].tolist()
            read = self._raw_number if column.kind in ("number", "category") else self._number
            hashes[:, index] = [read(column, value) for value in values]
        return hashes

    def _raw_number(self, column: FeatureColumn, value: float) -> int:
        """Hash of a raw input: of a number in float64, or of the text of a category."""
        is_category = column.kind == "category"
        if math.isnan(value) or (is_category and value == MISSING):
            return 0
        key = (column.feature, value)
        if (number := self._known.get(key)) is None:
            if is_category:
                data = column.words[-1 if value == NOT_LISTED else int(value)].encode()
            else:
                data = np.float64(value + 0.0).tobytes()
            number = self._remember(key, self._pseudonyms.of_bytes(column.feature, data))
        return number

    def _number(self, column: FeatureColumn, value: float) -> int:
        if math.isnan(value):
            return 0
        key = (column.feature, value)
        if (number := self._known.get(key)) is None:
            number = self._remember(key, self._pseudonyms.of_value(*key))
        return number

    def _remember(self, key: tuple[str, float], number: int) -> int:
        if len(self._known) >= _CACHED_HASHES:
            self._known.clear()
        self._known[key] = number
        return number
