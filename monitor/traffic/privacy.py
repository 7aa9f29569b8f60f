"""What is written of people: pseudonyms for request ids, and less than the value of a feature."""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature
from monitor.errors import ConfigError
from monitor.settings import FeatureTreatment
from monitor.traffic.columns import TrafficColumns

__all__ = ["FeatureGuard", "Pseudonyms", "treatments"]

_SHORTEST_KEY = 16
_BUCKETS = 20
# As far as a float32 may lie from the number that it stands for, and a little more.
_ROUNDING = float(np.finfo(np.float32).eps)
_REMEMBERED = 65536


class Pseudonyms:
    """Names for request ids that only who has the key can tell.

    Attributes:
        fingerprint: Tells keys apart and says nothing of the key; None where ids stay as they are.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = None if key is None else hashlib.blake2b(key, digest_size=32).digest()
        self.fingerprint = None if key is None else self._hash(b"fingerprint of the key", 8)

    @classmethod
    def read(cls, path: Path | None) -> Self:
        """With the key in a file, or none.

        Raises:
            ConfigError: The file cannot be read, or is no key.
        """
        if path is None:
            return cls(None)
        try:
            key = path.read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"traffic.key_path: {path}: {error.strerror or error}") from None
        if len(key) < _SHORTEST_KEY:
            raise ConfigError(
                f"traffic.key_path: {path} holds {len(key)} bytes; a key has {_SHORTEST_KEY} or "
                "more, such as `head -c 32 /dev/urandom` gives"
            )
        return cls(key)

    @property
    def kept(self) -> bool:
        """Whether request ids stay as they are."""
        return self._key is None

    def of(self, request_id: str) -> str:
        """What the log calls a request."""
        return request_id if self._key is None else self._hash(request_id.encode(), 16)

    def of_value(self, feature: str, value: float) -> int:
        """A number that stands for a feature's value, and for no other's."""
        name = hashlib.blake2b(feature.encode(), digest_size=8).digest()
        # Zero has two signs, and is one value.
        found = hashlib.blake2b(
            np.float32(value + 0.0).tobytes(), digest_size=8, key=self._key or b"", salt=name
        )
        return int.from_bytes(found.digest(), "little")

    def _hash(self, data: bytes, size: int) -> str:
        return hashlib.blake2b(data, digest_size=size, key=self._key or b"").hexdigest()


def treatments(
    spec: BundleSpec, told: Mapping[str, FeatureTreatment]
) -> dict[str, FeatureTreatment]:
    """What is written of each encoded feature of which something is said, by its name.

    A one-hot group's name stands for all its columns.

    Raises:
        ConfigError: There is no such feature, or it has no buckets, or none of a known width.
    """
    groups = {group.name: group.features for group in spec.one_hot_groups}
    features = {feature.name: feature for feature in spec.features}
    found: dict[str, FeatureTreatment] = {}
    for name, treatment in told.items():
        if name not in features and name not in groups:
            close = difflib.get_close_matches(name, [*features, *groups], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"traffic.features.{name}: the bundle has no such feature{hint}")
        for column in groups.get(name, (name,)):
            found[column] = treatment
        if treatment.treatment == "bucket":
            found[name] = _bucket(name, features.get(name), treatment)
    return found


def _bucket(name: str, feature: Feature | None, told: FeatureTreatment) -> FeatureTreatment:
    """The treatment with a width: a twentieth of the feature's range unless one is given."""
    if feature is None or feature.kind != "numeric":
        raise ConfigError(
            f"traffic.features.{name}: it is no number, and only numbers have buckets; keep, hash "
            "or drop it"
        )
    if told.width is not None:
        return told
    if feature.low is None or feature.high is None or feature.low == feature.high:
        raise ConfigError(
            f"traffic.features.{name}: the bundle knows no range of it; give a width, such as "
            f"{{treatment: bucket, width: 10}}"
        )
    return told.model_copy(update={"width": (feature.high - feature.low) / _BUCKETS})


class FeatureGuard:
    """Turns encoded features into what may be written of them."""

    def __init__(
        self,
        columns: TrafficColumns,
        told: Mapping[str, FeatureTreatment],
        pseudonyms: Pseudonyms,
    ) -> None:
        plain = [c for c in columns.features if c.treatment != "hash"]
        self._places = np.array([c.place for c in plain], np.intp)
        self._hashed = [c for c in columns.features if c.treatment == "hash"]
        self._widths = np.array(
            [told[c.feature].width if c.treatment == "bucket" else 0.0 for c in plain], np.float64
        )
        self._buckets = np.flatnonzero(self._widths)
        self._pseudonyms = pseudonyms
        self._known: dict[tuple[str, float], int] = {}

    def kept(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values that are written, of encoded features `[n, d]`: all columns but hashed ones."""
        kept: NDArray[np.float32] = features[:, self._places]
        if len(self._buckets):
            widths = self._widths[self._buckets]
            steps = kept[:, self._buckets].astype(np.float64) / widths
            # A value on the edge of a bucket is in it, however float32 rounds.
            kept[:, self._buckets] = np.floor(steps + _ROUNDING * np.abs(steps)) * widths
        return kept

    def hashed(self, features: NDArray[np.float32]) -> NDArray[np.uint64]:
        """Numbers that stand for values, `[n, h]`."""
        found = np.empty((len(features), len(self._hashed)), np.uint64)
        for place, column in enumerate(self._hashed):
            values = features[:, column.place].tolist()
            found[:, place] = [self._number(column.feature, value) for value in values]
        return found

    def _number(self, feature: str, value: float) -> int:
        if math.isnan(value):
            return 0
        key = (feature, value)
        if (found := self._known.get(key)) is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._pseudonyms.of_value(feature, value)
        return found
