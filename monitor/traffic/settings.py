"""Settings of the traffic log, the outcomes and their retention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from monitor.setting_types import Days, NamedPath, Settings, StoreAddress

__all__ = ["FeatureTreatment", "OutcomesConfig", "RetentionConfig", "TrafficConfig"]


class FeatureTreatment(Settings):
    """How one feature is written to the log."""

    treatment: Literal["keep", "hash", "drop", "bucket"]
    width: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_the_treatment_alone(cls, value: Any) -> Any:
        return {"treatment": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _width_belongs_to_a_bucket(self) -> Self:
        if self.width is not None and self.treatment != "bucket":
            raise ValueError(f"width applies to bucket only, but the treatment is {self.treatment}")
        return self


class TrafficConfig(Settings):
    """The traffic log: every prediction, for audits and for accountability."""

    path: NamedPath | None = Field(
        None,
        description="Directory of the log, one per sidecar. Without it nothing is logged.",
    )
    store: StoreAddress | None = Field(
        None,
        description="Where the log's Parquet files are stored, if not in `path`: another "
        "directory, or object storage such as `s3://bucket/prefix`, without credentials (set "
        "those in the environment). Several sidecars may share it.",
    )
    durability: Literal["process", "interval", "always"] = Field(
        "interval",
        description="What a logged prediction survives. `process`: the end of the process. "
        "`interval`: also a power failure, except for the last `sync_seconds`. `always`: also a "
        "power failure, since every response waits for fsync.",
    )
    sync_seconds: float = Field(
        1.0, gt=0, le=3600, description="Interval between two fsyncs, with `interval`."
    )
    max_write_seconds: Annotated[float, Field(gt=0, le=60)] | None = Field(
        0.1,
        description="How long a response waits for a write. While a slower write is pending, rows "
        "are dropped and counted. `null` waits for as long as the write takes, and writes in the "
        "event loop instead of a thread.",
    )
    roll_bytes: int = Field(
        64 << 20,
        ge=1 << 16,
        le=1 << 30,
        strict=True,
        description="Size at which a segment is converted to Parquet.",
    )
    roll_seconds: float = Field(
        300.0, gt=0, le=86400, description="Age at which a segment is converted to Parquet."
    )
    max_bytes: int = Field(
        10 << 30, ge=1 << 20, strict=True, description="Disk quota of everything in `path`."
    )
    when_full: Literal["drop_oldest", "stop"] = Field(
        "drop_oldest",
        description="What happens when the disk quota is reached: the oldest files are deleted, "
        "or new rows are dropped. Both are counted.",
    )
    features: Mapping[str, FeatureTreatment] = Field(
        {},
        description="How single features, or a one-hot group, are written: `keep`, `drop`, "
        "`hash` (with the key), `bucket` (the lower end of the value's bucket; its width is a "
        "twentieth of the range in the bundle, or set it with `{treatment: bucket, width: 5}`).",
    )
    key_path: NamedPath | None = Field(
        None,
        description="File with a secret key. With it the log holds pseudonyms instead of request "
        "ids.",
    )

    @model_validator(mode="after")
    def _hash_needs_a_key(self) -> Self:
        hashed = [name for name, feature in self.features.items() if feature.treatment == "hash"]
        if hashed and self.key_path is None:
            raise ValueError(f"traffic.features.{hashed[0]}: hash needs traffic.key_path")
        return self


class OutcomesConfig(Settings):
    """Outcomes: true labels and protected groups, stored apart from the traffic."""

    path: NamedPath | None = Field(
        None,
        description="Directory that only the sidecar's user can read. Without it outcomes are "
        "rejected.",
    )
    store: StoreAddress | None = Field(
        None,
        description="Where the Parquet files of outcomes are stored, if not in `path`; as "
        "`traffic.store`.",
    )
    max_bytes: int = Field(
        10 << 30,
        ge=1 << 20,
        strict=True,
        description="Disk quota of everything in `path`. When it is reached, outcomes are "
        "rejected.",
    )
    subjects: bool = Field(
        default=False,
        description="Whether a keyed pseudonym of the person behind a request is recorded, from "
        "the request parameter `evenhand_subject`. Requires `outcomes.path`, `traffic.path` and "
        "`traffic.key_path`.",
    )


class RetentionConfig(Settings):
    """Retention in days; `evenhand log expire` deletes what is older."""

    traffic_days: Days | None = Field(
        None, description="Days that the traffic log is kept. Unset: no limit."
    )
    outcomes_days: Days | None = Field(
        None, description="Days that outcomes are kept. Unset: no limit."
    )
    findings_days: Days | None = Field(
        None, description="Days that findings of audits are kept. Unset: no limit."
    )
