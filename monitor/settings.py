"""Every setting of evenhand: a frozen part for each component. `monitor.config` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from monitor.baseline import Signal
from monitor.bundle.manifest import Sha256
from monitor.bundle.reader import DEFAULT_MAX_BYTES, DEFAULT_PROBE_ROWS

__all__ = [
    "AttributePolicy",
    "BundleConfig",
    "ComputeConfig",
    "Config",
    "DriftConfig",
    "FeatureTreatment",
    "LogConfig",
    "MetricsConfig",
    "MonitoringConfig",
    "OutcomesConfig",
    "PolicyConfig",
    "RetentionConfig",
    "ServerConfig",
    "Settings",
    "TrafficConfig",
    "holds_credentials",
]


class Settings(BaseModel):
    """A frozen set of fields; an unknown one is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _named(path: Path) -> Path:
    if path == Path():
        raise ValueError("an empty path")
    return path


NamedPath = Annotated[Path, AfterValidator(_named)]
# What addresses call them.
_SECRETS = ("access_key", "secret_key", "session_token")


def holds_credentials(address: str) -> bool:
    """Whether an address such as `s3://…` names a user or a key."""
    parts = urlsplit(address)
    return "@" in parts.netloc or any(name in _SECRETS for name, _ in parse_qsl(parts.query))


def _without_credentials(address: str) -> str:
    if holds_credentials(address):
        raise ValueError("credentials belong in the environment, not in an address")
    return address


StoreAddress = Annotated[str, Field(min_length=1), AfterValidator(_without_credentials)]
Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
TensorName = Annotated[str, Field(min_length=1, max_length=200)]
PolicyAction = Literal["observe", "flag", "withhold", "review"]
Rule = Literal["p_value", "flip_probability", "either", "both"]


class BundleConfig(Settings):
    """Which bundle is read, and how far it is trusted."""

    path: NamedPath | None = Field(None, description="The bundle: a directory or a `.tar` file.")
    manifest_sha256: Sha256 | None = Field(
        None,
        description="Digest that the manifest must have. Pin it where the bundle's storage is less "
        "trusted than this config; compiled code runs from a pinned bundle only.",
    )
    max_bytes: int = Field(
        DEFAULT_MAX_BYTES, ge=1, strict=True, description="Refuse a bundle larger than this."
    )
    probe_rows: int = Field(
        DEFAULT_PROBE_ROWS,
        ge=2,
        le=65536,
        strict=True,
        description="How many made-up people a classifier is tried on before it is used.",
    )


class ComputeConfig(Settings):
    """How the machine is used."""

    threads: int = Field(
        1,
        ge=1,
        le=1024,
        strict=True,
        description="Threads that torch uses for one batch. More than one seldom pays for the "
        "small classifiers that decide on people.",
    )


class ServerConfig(Settings):
    """Where the sidecar listens, what it calls its tensors, and how much it takes on."""

    host: Annotated[str, Field(min_length=1)] = Field(
        "127.0.0.1",
        description="Address that both doors listen on. Anything but loopback lets others in: "
        "`0.0.0.0` in a pod.",
    )
    grpc_port: Port = Field(8081, description="Port of the gRPC door; 0 takes a free one.")
    rest_port: Port = Field(
        8080, description="Port of the REST door and of `/metrics`; 0 takes a free one."
    )
    acknowledge: Literal["local", "never"] = Field(
        "local",
        description="Who may acknowledge alarms over REST: whoever connects from 127.0.0.1 or ::1, "
        "or nobody. Say `never` where a proxy in the pod hands clients' requests on from there.",
    )
    input_name: TensorName = Field(
        "features",
        description="What clients call the one tensor of all features. A tensor for each feature, "
        "called by the feature's name, is always understood.",
    )
    output_name: TensorName = Field(
        "score", description="What clients call the classifier's own output."
    )
    non_finite: Literal["refuse", "pass"] = Field(
        "refuse",
        description="A request with NaN or an infinity: refuse it, or pass it to the classifier, "
        "whose answer then has the verdict `unknown`.",
    )
    max_message_bytes: int = Field(
        4 << 20, ge=1024, le=1 << 30, strict=True, description="Refuse a request larger than this."
    )
    max_rows: int = Field(
        10_000, ge=1, le=1_000_000, strict=True, description="Refuse a request of more rows."
    )
    max_in_flight: int = Field(
        1024,
        ge=1,
        le=1_000_000,
        strict=True,
        description="Requests that may be waiting for an answer; more are refused at once, as "
        "overload.",
    )
    max_wait_seconds: float = Field(
        2.0,
        gt=0,
        le=3600,
        description="A request that has waited for longer is refused, as overload.",
    )
    drain_seconds: float = Field(
        10.0,
        ge=0,
        le=3600,
        description="How long requests may still take once the sidecar is told to stop.",
    )


class MonitoringConfig(Settings):
    """When predictions are judged."""

    mode: Literal["inline", "aside", "off"] = Field(
        "inline",
        description="`inline` judges before the answer leaves, so that policy can act. `aside` "
        "answers first: verdicts are in the metrics only. `off` predicts and judges nothing.",
    )
    batch_window_seconds: float = Field(
        0.01,
        ge=0,
        le=1,
        description="How long requests may wait for others to share one pass, at most, where many "
        "come together. They leave earlier once all are there that came together before, or the "
        "sidecar has been idle for a millisecond. A request that comes alone never waits.",
    )
    max_batch_rows: int = Field(
        256, ge=1, le=65536, strict=True, description="Rows of one pass; larger requests take more."
    )
    aside_rows: int = Field(
        20_000,
        ge=1,
        le=10_000_000,
        strict=True,
        description="In mode `aside`, rows that may wait to be judged; more are not judged, and "
        "counted.",
    )


class AttributePolicy(Settings):
    """What differs for one protected attribute; a field that is not given is as for the others."""

    action: PolicyAction | None = None
    rule: Rule | None = None
    signal: Signal | None = None
    alpha: Annotated[float, Field(gt=0, lt=1)] | None = None
    flip_probability: Annotated[float, Field(gt=0, le=1)] | None = None


class PolicyConfig(Settings):
    """What is done about a prediction that depends too much on a group."""

    action: PolicyAction = Field(
        "observe",
        description="`observe` counts it. `flag` says on the answer why. `withhold` holds the "
        "prediction back. `review` does too, and records it for a person.",
    )
    rule: Rule = Field(
        "p_value",
        description="What calls for the action: a conformal p-value of at most `alpha`, a flip "
        "probability of at least `flip_probability`, either, or both.",
    )
    signal: Signal = Field(
        "expected_change",
        description="Which signal's p-value makes the verdict; `prediction_sensitivity` is the "
        "paper's.",
    )
    alpha: float = Field(
        0.01, gt=0, lt=1, description="The verdict is `above` if the p-value is at most this."
    )
    flip_probability: float = Field(
        0.5,
        gt=0,
        le=1,
        description="The bound of the rules that look at the flip probability itself.",
    )
    attributes: Mapping[str, AttributePolicy] = Field(
        {},
        description="Other values of the five fields above for single protected attributes, such "
        "as `{sex: {action: withhold}}`.",
    )
    withheld: Literal["masked", "fallback", "error"] = Field(
        "masked",
        description="What a client gets instead of a prediction that is held back: NaN in a tensor "
        "of the same shape, the answer for the probability `fallback`, or FAILED_PRECONDITION "
        "(HTTP 422).",
    )
    fallback: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Probability of class 1 that stands in for one that is held back."
    )
    review_path: NamedPath | None = Field(
        None,
        description="Folder for what a person is to look at, readable by the sidecar's user only. "
        "The action `review` needs it.",
    )
    review_max_bytes: int = Field(
        1 << 30,
        ge=1 << 16,
        strict=True,
        description="Room for it. When it is full, nothing more is recorded, which is a fault.",
    )
    on_fault: Literal["pass", "withhold"] = Field(
        "pass",
        description="What happens to a prediction that cannot be judged, since monitoring fails or "
        "nothing can be said of it.",
    )

    @model_validator(mode="after")
    def _has_what_its_actions_need(self) -> Self:
        actions = {self.action, *(a.action for a in self.attributes.values())}
        if self.withheld == "fallback" and self.fallback is None:
            raise ValueError("withheld is fallback, so policy.fallback must be given")
        if "review" in actions and self.review_path is None:
            raise ValueError("the action review needs policy.review_path")
        return self


class MetricsConfig(Settings):
    """What Prometheus can scrape at `/metrics`."""

    enabled: bool = Field(default=True, description="Whether metrics are kept at all.")
    exemplars: bool = Field(
        default=True,
        description="Whether request ids of predictions above the baseline stand beside the "
        "histograms of their signals (in the OpenMetrics format only).",
    )
    max_attributes: int = Field(
        20,
        ge=1,
        le=100,
        strict=True,
        description="Protected attributes that get series of their own, in the manifest's order.",
    )


class DriftConfig(Settings):
    """The watch over the stream of predictions."""

    enabled: bool = Field(default=True, description="Whether the stream is watched.")
    level: float = Field(0.01, gt=0, lt=1, description="Of every band, and of their separation.")
    run_length: float = Field(
        1e6,
        ge=1e4,
        le=1e30,
        description="Predictions to a false alarm of a change detector, at least, on average.",
    )
    window: int = Field(
        10_000, ge=40, strict=True, description="Predictions of the rolling band; a multiple of 40."
    )
    state_path: NamedPath | None = Field(
        None, description="File that the watch's state is kept in, so that it survives a restart."
    )
    save_seconds: float = Field(
        10.0, gt=0, le=86400, description="How often it is saved; also when the sidecar stops."
    )

    @model_validator(mode="after")
    def _window_is_possible(self) -> Self:
        if self.window % 40 or self.window > self.run_length:
            raise ValueError("drift.window must be a multiple of 40, and at most drift.run_length")
        return self


class FeatureTreatment(Settings):
    """What is written of one feature."""

    treatment: Literal["keep", "hash", "drop", "bucket"]
    width: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_word_will_do(cls, given: Any) -> Any:
        return {"treatment": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _only_a_bucket_is_wide(self) -> Self:
        if self.width is not None and self.treatment != "bucket":
            raise ValueError(f"a width is given, but the treatment is {self.treatment}")
        return self


class TrafficConfig(Settings):
    """The traffic log: what was predicted, for audits, and for those who have to answer for it."""

    path: NamedPath | None = Field(
        None,
        description="Folder of the log, one for each sidecar; without it nothing is written down.",
    )
    store: StoreAddress | None = Field(
        None,
        description="Where the log's Parquet files go if not into `path`: another folder, or "
        "object storage such as `s3://bucket/prefix`, without credentials (those belong in the "
        "environment). Many sidecars may share it.",
    )
    durability: Literal["process", "interval", "always"] = Field(
        "interval",
        description="What a prediction survives once it is answered: the end of the process; with "
        "`interval` also that of the machine, but for the last `sync_seconds`; with `always` that "
        "of the machine, for which every answer waits for the disk.",
    )
    sync_seconds: float = Field(
        1.0, gt=0, le=3600, description="How often the disk is made sure of, with `interval`."
    )
    max_write_seconds: Annotated[float, Field(gt=0, le=60)] | None = Field(
        0.1,
        description="How long answers wait for a write. Until a slower one is done, nothing is "
        "written, and what is left out is counted. `null` waits for as long as it takes, and saves "
        "the handing over to another thread.",
    )
    roll_bytes: int = Field(
        64 << 20,
        ge=1 << 16,
        le=1 << 30,
        strict=True,
        description="Size at which a segment is turned into Parquet.",
    )
    roll_seconds: float = Field(
        300.0, gt=0, le=86400, description="Age at which a segment is turned into Parquet."
    )
    max_bytes: int = Field(
        10 << 30, ge=1 << 20, strict=True, description="Room for everything in `path`."
    )
    when_full: Literal["drop_oldest", "stop"] = Field(
        "drop_oldest",
        description="What gives way when there is no room left: the oldest files, or new rows. "
        "Either is counted.",
    )
    features: Mapping[str, FeatureTreatment] = Field(
        {},
        description="What is written of single features, or of a one-hot group: `keep`, `drop`, "
        "`hash` (by the key), `bucket` (the lower end of its bucket; the width is a twentieth of "
        "the range in the bundle unless `{treatment: bucket, width: 5}` says otherwise).",
    )
    key_path: NamedPath | None = Field(
        None,
        description="File with a secret key. With it the log holds pseudonyms instead of request "
        "ids.",
    )

    @model_validator(mode="after")
    def _a_hash_has_a_key(self) -> Self:
        hashed = [name for name, told in self.features.items() if told.treatment == "hash"]
        if hashed and self.key_path is None:
            raise ValueError(f"traffic.features.{hashed[0]}: hash needs traffic.key_path")
        return self


class OutcomesConfig(Settings):
    """Outcomes: true labels and protected groups, kept apart from the traffic."""

    path: NamedPath | None = Field(
        None,
        description="Folder that only the sidecar's user can read; without it outcomes are "
        "refused.",
    )
    store: StoreAddress | None = Field(
        None, description="Where their Parquet files go if not into `path`; as for the traffic."
    )
    max_bytes: int = Field(
        10 << 30,
        ge=1 << 20,
        strict=True,
        description="Room for everything in `path`. When it is full, outcomes are refused.",
    )


class RetentionConfig(Settings):
    """For how long things are kept, in days; `evenhand log expire` deletes what is older."""

    traffic_days: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None, description="Of the traffic log; for ever unless given."
    )
    outcomes_days: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None, description="Of outcomes; likewise."
    )
    findings_days: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None, description="Of the audits' findings; likewise."
    )


class LogConfig(Settings):
    """The application's log, on stderr. It never holds a value of a person."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="From where.")
    format: Literal["json", "text"] = Field("json", description="An object a line, or plain text.")


class Config(Settings):
    """All settings of evenhand, a part for each component."""

    bundle: BundleConfig = BundleConfig()
    compute: ComputeConfig = ComputeConfig()
    server: ServerConfig = ServerConfig()
    monitoring: MonitoringConfig = MonitoringConfig()
    policy: PolicyConfig = PolicyConfig()
    metrics: MetricsConfig = MetricsConfig()
    drift: DriftConfig = DriftConfig()
    traffic: TrafficConfig = TrafficConfig()
    outcomes: OutcomesConfig = OutcomesConfig()
    retention: RetentionConfig = RetentionConfig()
    log: LogConfig = LogConfig()
