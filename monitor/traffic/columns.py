"""The named columns of the log: what an analyst sees, and what the audits rely on.

Of every prediction: request_id, row, time; the features by name; score (the probability of class
1), logit, decision (0 or 1), boundary_distance; of every protected attribute
prediction_sensitivity_…, flip_probability_…, expected_change_…, p_value_…, verdict_…; action.
Model, version, date and hour are in the path. A protected attribute that is itself a feature is
not there: it goes to the outcomes' side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from monitor.bundle.manifest import BundleSpec, Feature

__all__ = [
    "FORMAT",
    "METADATA_KEY",
    "SIGNALS",
    "FeatureColumn",
    "TrafficColumns",
    "Treatment",
    "about_file",
    "fresh_words",
    "group_column",
    "outcome_schema",
    "with_metadata",
]

FORMAT = 1
# In the metadata of every Parquet file: what its columns are of, as JSON.
METADATA_KEY = b"evenhand"
TIME = pa.timestamp("us", tz="UTC")
WORD = pa.dictionary(pa.int32(), pa.string())
SIGNALS = ("prediction_sensitivity", "flip_probability", "expected_change", "p_value", "verdict")
_BEFORE = ("request_id", "row", "time")
_BEHIND = ("score", "logit", "decision", "boundary_distance")
_IN_PATH = ("model", "version", "date", "hour")
# What reading a window adds.
_IN_WINDOWS = ("stratum_rows",)

# What is written of a feature: its value; a keyed hash of it; nothing; the start of its bucket.
Treatment = Literal["keep", "hash", "drop", "bucket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureColumn:
    """A feature as the log holds it.

    Attributes:
        name: Of the column.
        feature: Name in the manifest.
        place: Among the encoded features.
        kind: Of the feature.
        treatment: What is written of it.
    """

    name: str
    feature: str
    place: int
    kind: str
    treatment: Treatment

    @property
    def type(self) -> pa.DataType:
        """In Arrow."""
        return pa.string() if self.treatment == "hash" else pa.float32()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficColumns:
    """The columns of one model's log.

    Attributes:
        features: In the order of the manifest, without those that are not written.
        attributes: Names of the protected attributes.
    """

    features: tuple[FeatureColumn, ...]
    attributes: tuple[str, ...]

    @classmethod
    def of(cls, spec: BundleSpec, treatments: Mapping[str, Treatment] | None = None) -> Self:
        """As a bundle names them; a feature is kept unless something else is said of it."""
        attributes = tuple(attribute.name for attribute in spec.protected_attributes)
        told, hidden = treatments or {}, spec.protected_features
        # Engines do not tell names apart by case.
        joined = ("label", *map(group_column, attributes), *_IN_WINDOWS)
        taken = {n.casefold() for n in (*_own_names(attributes), *_IN_PATH, *joined)}
        columns = []
        for place, feature in enumerate(spec.features):
            treatment = told.get(feature.name, "keep")
            if feature.name not in hidden and treatment != "drop":
                name = _free_name(feature, taken)
                columns.append(
                    FeatureColumn(
                        name=name,
                        feature=feature.name,
                        place=place,
                        kind=feature.kind,
                        treatment=treatment,
                    )
                )
        return cls(features=tuple(columns), attributes=attributes)

    @property
    def schema(self) -> pa.Schema:
        """In Arrow, in the order in which an analyst sees them."""
        fields = [("request_id", pa.string()), ("row", pa.int32()), ("time", TIME)]
        fields += [(column.name, column.type) for column in self.features]
        fields += [("score", pa.float32()), ("logit", pa.float32()), ("decision", pa.int8())]
        fields += [("boundary_distance", pa.float32())]
        for attribute in self.attributes:
            fields += [(f"{signal}_{attribute}", _TYPES[signal]) for signal in SIGNALS]
        return pa.schema([*fields, ("action", WORD)])

    def to_json(self) -> dict[str, Any]:
        """For the header of a segment and the metadata of a file."""
        features = [
            {name: getattr(c, name) for name in ("name", "feature", "place", "kind", "treatment")}
            for c in self.features
        ]
        return {"features": features, "attributes": list(self.attributes)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """From there."""
        return cls(
            features=tuple(FeatureColumn(**column) for column in found["features"]),
            attributes=tuple(found["attributes"]),
        )


_TYPES = {
    "prediction_sensitivity": pa.float32(),
    "flip_probability": pa.float32(),
    "expected_change": pa.float32(),
    "p_value": pa.float64(),
    "verdict": WORD,
}


def group_column(attribute: str) -> str:
    """What the outcomes call the group of a protected attribute."""
    return f"group_{attribute}"


def outcome_schema(attributes: tuple[str, ...]) -> pa.Schema:
    """The columns of outcomes in Arrow; the label and the groups are optional.

    `observed_at` decides which of several outcomes holds; `source` is rpc, rest, file or feature.
    """
    return pa.schema(
        [
            ("request_id", pa.string()),
            ("row", pa.int32()),
            ("label", pa.int8()),
            *((group_column(attribute), WORD) for attribute in attributes),
            ("observed_at", TIME),
            ("received_at", TIME),
            ("source", WORD),
        ]
    )


def with_metadata(schema: pa.Schema, about: Mapping[str, Any]) -> pa.Schema:
    """A schema that says what it is of."""
    return schema.with_metadata({METADATA_KEY: json.dumps(about).encode()})


def about_file(schema: pa.Schema) -> dict[str, Any]:
    """What a file of the log says of itself; nothing if it is of another kind."""
    try:
        found = json.loads((schema.metadata or {})[METADATA_KEY])
    except (KeyError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def fresh_words(table: pa.Table) -> pa.Table:
    """The same table, whose dictionaries hold no word of rows that were taken out of it."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            words = table[field.name].cast(field.type.value_type).cast(field.type)
            table = table.set_column(place, field, words)
    return table


def _own_names(attributes: tuple[str, ...]) -> list[str]:
    return [
        *_BEFORE,
        *_BEHIND,
        *(f"{signal}_{attribute}" for attribute in attributes for signal in SIGNALS),
        "action",
    ]


def _free_name(feature: Feature, taken: set[str]) -> str:
    """The feature's own name, or one like it where ours or another's is the same."""
    name = feature.name if feature.name.casefold() not in taken else f"feature_{feature.name}"
    further, found = 2, name
    while found.casefold() in taken:
        found, further = f"{name}_{further}", further + 1
    taken.add(found.casefold())
    return found
