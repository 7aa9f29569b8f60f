"""The columns of the log, for analysts and audits.

Per prediction: request_id, row, time; the features, or raw inputs, by name; score (the probability
of class 1), logit, decision (0 or 1), boundary_distance, unknown_reason (why the row is unlike the
training rows and has no other scores); per protected attribute prediction_sensitivity_…,
flip_probability_…, expected_change_…, p_value_…, likely_flip_…, unusual_…, verdict_…; action.
Model, version, date and hour are in the path. A protected attribute that is itself a feature is
stored with the outcomes instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from monitor.bundle.inputs import UNSEEN, RawCategory, RawNumber
from monitor.bundle.manifest import BundleSpec, Feature

__all__ = [
    "ENCODED_REQUEST",
    "FORMAT",
    "METADATA_KEY",
    "SIGNALS",
    "SUBJECT",
    "FeatureColumn",
    "TrafficColumns",
    "Treatment",
    "group_column",
    "log_metadata",
    "outcome_schema",
    "rebuild_dictionaries",
    "with_metadata",
]

FORMAT = 1
# Column of outcomes with the pseudonym of the person that a row is about.
SUBJECT = "evenhand_subject"
# Whether a request had encoded features instead of raw inputs, which are null then.
ENCODED_REQUEST = "encoded_request"
# Key of the JSON in the metadata of every Parquet file that describes its columns.
METADATA_KEY = b"evenhand"
TIME = pa.timestamp("us", tz="UTC")
WORD = pa.dictionary(pa.int32(), pa.string())
SIGNALS = (
    *("prediction_sensitivity", "flip_probability", "expected_change", "p_value"),
    *("likely_flip", "unusual", "verdict"),
)
_ROW_NAMES = ("request_id", "row", "time")
_RESULT_NAMES = ("score", "logit", "decision", "boundary_distance", "unknown_reason")
_IN_PATH = ("model", "version", "date", "hour")
# Columns that a window adds when it is read.
_IN_WINDOWS = ("stratum_rows",)

# What is written for a feature: its value, a keyed hash, nothing, or the lower end of its bucket.
Treatment = Literal["keep", "hash", "drop", "bucket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureColumn:
    """A column of the log that contains a feature or a raw input.

    Attributes:
        name: Name of the column.
        feature: Name of the feature or raw input in the manifest.
        index: Index of the feature in the classifier's input, or of the raw input.
        kind: Kind of the feature; `number` or `category` for a raw input.
        treatment: What is written for the feature.
        categories: Categories of a raw input, in the order of their codes.
    """

    name: str
    feature: str
    index: int
    kind: str
    treatment: Treatment
    categories: tuple[str, ...] = ()

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        if self.treatment == "hash":
            return pa.string()
        return {"category": WORD, "number": pa.float64()}.get(self.kind, pa.float32())

    @property
    def words(self) -> list[str]:
        """Text of every category's code; the last one stands for categories that are not listed."""
        unlisted = UNSEEN if UNSEEN not in self.categories else f"({UNSEEN})"
        return [*self.categories, unlisted]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficColumns:
    """The columns of one model's log.

    Attributes:
        features: Columns of features in the manifest's order, without dropped ones.
        attributes: Names of the protected attributes.
        raw: Whether the features are raw inputs.
    """

    features: tuple[FeatureColumn, ...]
    attributes: tuple[str, ...]
    raw: bool = False

    @classmethod
    def of(cls, spec: BundleSpec, treatments: Mapping[str, Treatment] | None = None) -> Self:
        """Columns for a bundle; features without a treatment are kept."""
        attributes = tuple(attribute.name for attribute in spec.protected_attributes)
        treatments, protected = treatments or {}, spec.protected_features
        sources: tuple[Feature | RawNumber | RawCategory, ...] = spec.features
        if spec.inputs:
            sources, protected = spec.inputs, spec.protected_inputs
        # Query engines ignore the case of names.
        joined = ("label", *map(group_column, attributes), *_IN_WINDOWS, ENCODED_REQUEST)
        joined = joined if spec.inputs else joined[:-1]
        taken = {n.casefold() for n in (*_own_names(attributes), *_IN_PATH, *joined)}
        columns = []
        for index, feature in enumerate(sources):
            treatment = treatments.get(feature.name, "keep")
            if feature.name not in protected and treatment != "drop":
                name = _free_name(feature, taken)
                columns.append(
                    FeatureColumn(
                        name=name,
                        feature=feature.name,
                        index=index,
                        kind=feature.kind,
                        treatment=treatment,
                        categories=getattr(feature, "categories", ()),
                    )
                )
        return cls(features=tuple(columns), attributes=attributes, raw=bool(spec.inputs))

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the columns, in order."""
        fields = [("request_id", pa.string()), ("row", pa.int32()), ("time", TIME)]
        fields += [(column.name, column.type) for column in self.features]
        fields += [(ENCODED_REQUEST, pa.bool_())] if self.raw else []
        fields += [("score", pa.float32()), ("logit", pa.float32()), ("decision", pa.int8())]
        fields += [("boundary_distance", pa.float32()), ("unknown_reason", WORD)]
        for attribute in self.attributes:
            fields += [(f"{signal}_{attribute}", _TYPES[signal]) for signal in SIGNALS]
        return pa.schema([*fields, ("action", WORD)])

    def to_json(self) -> dict[str, Any]:
        """The columns as JSON, for the header of a segment and the metadata of a file."""
        features = [
            {name: getattr(c, name) for name in ("name", "feature", "index", "kind", "treatment")}
            for c in self.features
        ]
        for written, column in zip(features, self.features, strict=True):
            if column.categories:
                written["categories"] = list(column.categories)
        content = {"features": features, "attributes": list(self.attributes)}
        return content | ({"raw": True} if self.raw else {})

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Columns from the JSON of `to_json`."""
        return cls(
            features=tuple(
                FeatureColumn(**column | {"categories": tuple(column.get("categories", ()))})
                for column in content["features"]
            ),
            attributes=tuple(content["attributes"]),
            raw=content.get("raw", False),
        )


_TYPES = {
    "prediction_sensitivity": pa.float32(),
    "flip_probability": pa.float32(),
    "expected_change": pa.float32(),
    "p_value": pa.float64(),
    "likely_flip": pa.bool_(),
    "unusual": pa.bool_(),
    "verdict": WORD,
}


def group_column(attribute: str) -> str:
    """Column of outcomes with the group of a protected attribute."""
    return f"group_{attribute}"


def outcome_schema(attributes: tuple[str, ...], *, subjects: bool = False) -> pa.Schema:
    """Arrow schema of outcomes; the label, the groups and the subject may be null.

    Of several outcomes of a row, the latest by `observed_at` counts. `source` is rpc, rest, file or
    feature: groups and subjects from the request itself.
    """
    return pa.schema(
        [
            ("request_id", pa.string()),
            ("row", pa.int32()),
            ("label", pa.int8()),
            *((group_column(attribute), WORD) for attribute in attributes),
            *([(SUBJECT, pa.string())] if subjects else []),
            ("observed_at", TIME),
            ("received_at", TIME),
            ("source", WORD),
        ]
    )


def with_metadata(schema: pa.Schema, about: Mapping[str, Any]) -> pa.Schema:
    """A schema with a description of its columns in the metadata."""
    return schema.with_metadata({METADATA_KEY: json.dumps(about).encode()})


def log_metadata(schema: pa.Schema) -> dict[str, Any]:
    """Metadata of a file of the log; empty if it is another kind of file."""
    try:
        metadata = json.loads((schema.metadata or {})[METADATA_KEY])
    except (KeyError, ValueError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def rebuild_dictionaries(table: pa.Table) -> pa.Table:
    """The table with dictionaries that contain only values of its remaining rows."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            words = table[field.name].cast(field.type.value_type).cast(field.type)
            table = table.set_column(index, field, words)
    return table


def _own_names(attributes: tuple[str, ...]) -> list[str]:
    return [
        *_ROW_NAMES,
        *_RESULT_NAMES,
        *(f"{signal}_{attribute}" for attribute in attributes for signal in SIGNALS),
        "action",
    ]


def _free_name(feature: Feature | RawNumber | RawCategory, taken: set[str]) -> str:
    """Name of a feature's column: the feature's own name, changed if it is already taken."""
    name = feature.name if feature.name.casefold() not in taken else f"feature_{feature.name}"
    unique, suffix = name, 2
    while unique.casefold() in taken:
        unique, suffix = f"{name}_{suffix}", suffix + 1
    taken.add(unique.casefold())
    return unique
