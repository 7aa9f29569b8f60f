"""Every setting of evenhand, one frozen part per component; `monitor.config` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from monitor.bundle.manifest import DEFAULT_MAX_BYTES, DEFAULT_PROBE_ROWS, Sha256
from monitor.scoring.baseline import Signal
from monitor.setting_types import NamedPath, Port, Settings
from monitor.traffic.settings import OutcomesConfig, RetentionConfig, TrafficConfig

__all__ = [
    "AttributePolicy",
    "BundleConfig",
    "ComputeConfig",
    "Config",
    "DriftConfig",
    "LogConfig",
    "MetricsConfig",
    "MonitoringConfig",
    "PolicyConfig",
    "ServerConfig",
]

TensorName = Annotated[str, Field(min_length=1, max_length=200)]
PolicyAction = Literal["observe", "flag", "withhold", "review"]
Rule = Literal["either", "likely_flip", "unusual", "both"]


class BundleConfig(Settings):
    """Which bundle is loaded, and how far it is trusted."""

    path: NamedPath | None = Field(
        None, description="Path of the bundle: a directory or a `.tar` file."
    )
    manifest_sha256: Sha256 | None = Field(
        None,
        description="SHA-256 digest that the manifest must have. Pin it if the bundle's storage is "
        "less trusted than this config. Compiled code runs from a pinned bundle only.",
    )
    max_bytes: int = Field(
        DEFAULT_MAX_BYTES, ge=1, strict=True, description="Largest bundle that is loaded."
    )
    probe_rows: int = Field(
        DEFAULT_PROBE_ROWS,
        ge=2,
        le=65536,
        strict=True,
        description="Number of probe rows that a classifier is tested on before it is used.",
    )


class ComputeConfig(Settings):
    """Use of the processor."""

    threads: int = Field(
        1,
        ge=1,
        le=1024,
        strict=True,
        description="Threads that torch uses for one batch. More than one rarely helps small "
        "classifiers.",
    )


class ServerConfig(Settings):
    """Addresses, tensor names and load limits of the sidecar."""

    host: Annotated[str, Field(min_length=1)] = Field(
        "127.0.0.1",
        description="Address that both transports listen on. Any address but loopback accepts "
        "requests from other machines: `0.0.0.0` in a pod.",
    )
    grpc_port: Port = Field(8081, description="Port of the gRPC transport; 0 selects a free one.")
    rest_port: Port = Field(
        8080, description="Port of the REST transport and of `/metrics`; 0 selects a free one."
    )
    acknowledge: Literal["local", "never"] = Field(
        "local",
        description="Who may acknowledge alarms over REST: clients that connect from 127.0.0.1 or "
        "::1 (`local`), or nobody (`never`). Set `never` if a proxy in the pod forwards clients' "
        "requests from a loopback address.",
    )
    input_name: TensorName = Field(
        "features",
        description="Name of the input tensor that holds all features. One tensor per feature, "
        "named after the feature, is always accepted too.",
    )
    output_name: TensorName = Field(
        "score", description="Name of the output tensor with the classifier's own output."
    )
    non_finite: Literal["refuse", "pass"] = Field(
        "refuse",
        description="What happens to a request with NaN or infinite values: reject it, or pass it "
        "to the classifier and return the verdict `unknown`.",
    )
    max_message_bytes: int = Field(
        4 << 20, ge=1024, le=1 << 30, strict=True, description="Largest request that is accepted."
    )
    max_rows: int = Field(
        10_000, ge=1, le=1_000_000, strict=True, description="Most rows that one request may have."
    )
    max_in_flight: int = Field(
        1024,
        ge=1,
        le=1_000_000,
        strict=True,
        description="Most requests that may be in flight. Further requests are rejected at once "
        "(RESOURCE_EXHAUSTED, HTTP 429).",
    )
    max_wait_seconds: float = Field(
        2.0,
        gt=0,
        le=3600,
        description="A request that has waited longer is rejected (RESOURCE_EXHAUSTED, HTTP 429).",
    )
    drain_seconds: float = Field(
        10.0,
        ge=0,
        le=3600,
        description="Time that requests in flight get to finish when the sidecar stops.",
    )


class MonitoringConfig(Settings):
    """When predictions are scored."""

    mode: Literal["inline", "async", "off"] = Field(
        "inline",
        description="`inline` scores a prediction before the response is sent, so that policy can "
        "act. `async` responds first; verdicts are in the metrics and the log only. `off` serves "
        "predictions without scoring them.",
    )
    batch_window_seconds: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Longest time that concurrent requests wait to share one batch. A batch starts "
        "earlier once it has as many requests as the last one, or once the sidecar has been idle "
        "for a millisecond. A single request never waits.",
    )
    max_batch_rows: int = Field(
        256,
        ge=1,
        le=65536,
        strict=True,
        description="Most rows of one batch. Larger requests take several.",
    )
    async_rows: int = Field(
        20_000,
        ge=1,
        le=10_000_000,
        strict=True,
        description="Most rows that wait to be scored in mode `async`. Further rows are not "
        "scored, and counted.",
    )


class AttributePolicy(Settings):
    """Overrides for one protected attribute; unset fields take the values of `policy`."""

    action: PolicyAction | None = None
    rule: Rule | None = None
    signal: Signal | None = None
    alpha: Annotated[float, Field(gt=0, lt=1)] | None = None
    flip_probability: Annotated[float, Field(gt=0, le=1)] | None = None


class PolicyConfig(Settings):
    """What happens to a prediction that depends too much on a protected group."""

    action: PolicyAction = Field(
        "observe",
        description="`observe` counts the prediction. `flag` adds the reason to the response. "
        "`withhold` does not return the prediction. `review` withholds it and records it for "
        "human review.",
    )
    rule: Rule = Field(
        "either",
        description="When the verdict is `above`, and policy acts: `likely_flip` if the flip "
        "probability is at least `flip_probability`, `unusual` if the conformal p-value is at most "
        "`alpha`, `either`, or `both`.",
    )
    signal: Signal = Field(
        "expected_change",
        description="Signal whose p-value says whether a prediction is unusual. "
        "`prediction_sensitivity` is the signal of Maughan and Near's paper.",
    )
    alpha: float = Field(
        0.01,
        gt=0,
        lt=1,
        description="A prediction is unusual if its p-value is at most alpha.",
    )
    flip_probability: float = Field(
        0.5,
        gt=0,
        le=1,
        description="A prediction is a likely flip if its flip probability is at least this.",
    )
    attributes: Mapping[str, AttributePolicy] = Field(
        {},
        description="Values of the five fields above for single protected attributes, such as "
        "`{sex: {action: withhold}}`.",
    )
    withheld: Literal["masked", "fallback", "error"] = Field(
        "masked",
        description="What a client receives instead of a withheld prediction: NaN in a tensor of "
        "the same shape, the response for the probability `fallback`, or FAILED_PRECONDITION "
        "(HTTP 422).",
    )
    fallback: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Probability of class 1 that replaces a withheld prediction."
    )
    review_path: NamedPath | None = Field(
        None,
        description="Directory of the predictions for human review, readable by the sidecar's user "
        "only. The action `review` requires it.",
    )
    review_max_bytes: int = Field(
        1 << 30,
        ge=1 << 16,
        strict=True,
        description="Disk quota of `review_path`. When it is reached, nothing more is recorded, "
        "which counts as a fault.",
    )
    on_fault: Literal["pass", "withhold"] = Field(
        "pass",
        description="What happens to a prediction that cannot be scored: monitoring failed, or the "
        "verdict is `unknown`.",
    )

    @model_validator(mode="after")
    def _has_what_its_actions_need(self) -> Self:
        actions = {self.action, *(a.action for a in self.attributes.values())}
        if self.withheld == "fallback" and self.fallback is None:
            raise ValueError("policy.withheld is fallback: set policy.fallback")
        if "review" in actions and self.review_path is None:
            raise ValueError("the action review requires policy.review_path")
        return self


class MetricsConfig(Settings):
    """Prometheus metrics at `/metrics`."""

    enabled: bool = Field(default=True, description="Whether metrics are collected.")
    exemplars: bool = Field(
        default=True,
        description="Whether the histograms of the signals have request ids of predictions above "
        "the baseline as exemplars (OpenMetrics format only).",
    )
    max_attributes: int = Field(
        20,
        ge=1,
        le=100,
        strict=True,
        description="Most protected attributes with their own series, in the manifest's order.",
    )


class DriftConfig(Settings):
    """Drift detection on the stream of predictions."""

    enabled: bool = Field(default=True, description="Whether drift is monitored.")
    level: float = Field(
        0.01,
        gt=0,
        lt=1,
        description="Error level of every confidence band and of the separation test.",
    )
    run_length: float = Field(
        1e6,
        ge=1e4,
        le=1e30,
        description="Lower bound on the mean number of predictions between two false alarms of a "
        "change detector.",
    )
    window: int = Field(
        10_000, ge=40, strict=True, description="Predictions in the rolling band; a multiple of 40."
    )
    state_path: NamedPath | None = Field(
        None, description="File that the drift state is saved to, so that it survives a restart."
    )
    save_seconds: float = Field(
        10.0,
        gt=0,
        le=86400,
        description="Interval between two saves. The state is also saved on shutdown.",
    )

    @model_validator(mode="after")
    def _window_is_possible(self) -> Self:
        if self.window % 40 or self.window > self.run_length:
            raise ValueError("drift.window must be a multiple of 40, and at most drift.run_length")
        return self


class LogConfig(Settings):
    """The application's log on stderr. It never contains feature values or groups."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged."
    )
    format: Literal["auto", "json", "text"] = Field(
        "auto",
        description="`json`: one JSON object per line. `text`: plain text. `auto`: text if stderr "
        "is a terminal, otherwise JSON.",
    )
    libraries: Literal["info", "warning", "error"] = Field(
        "warning",
        description="Lowest level of messages of other packages that are logged, if `level` is not "
        "higher. Their debug messages, which may quote values, are never logged.",
    )


class Config(Settings):
    """All settings of evenhand, one part per component."""

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

    @model_validator(mode="after")
    def _subjects_need_a_key_and_both_logs(self) -> Self:
        needed = {
            "outcomes.path": self.outcomes.path,
            "traffic.path": self.traffic.path,
            "traffic.key_path": self.traffic.key_path,
        }
        missing = [name for name, value in needed.items() if value is None]
        if self.outcomes.subjects and missing:
            raise ValueError(f"outcomes.subjects needs {' and '.join(missing)}")
        return self
