"""Decisions of the audited model: in batches, cached, resumed where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.bundle import Bundle, BundleSpec
from offline_audit.errors import AuditInputError, ModelFailedError, ModelUnreachableError
from offline_audit.model.cache import DecisionCache
from offline_audit.model.decisions import (
    BatchedCalls,
    Codes,
    DecisionRule,
    Failures,
    Features,
    Output,
    Progress,
    RowModel,
    Undecided,
    check_favourable,
)
from offline_audit.model.local import FunctionModel, as_function, bundle_function
from offline_audit.rendering import count
from offline_audit.validation import ordered_columns, require_whole

__all__ = ["AuditedModel"]


class AuditedModel:
    """The model that an audit examines: a function, a torch module, a bundle or an endpoint.

    Create it with `of`, `from_function`, `from_bundle` or `from_endpoint`. If the model fails on a
    batch, the batch is halved until the failing rows are isolated. Those rows get no decision and
    are counted in `failures`. It is an error if the model fails on every row.

    Args:
        source: The model that decides batches of rows.
        name: Name in reports.
        cache: Earlier decisions; None to call the model every time.
        manifest: Description of the model's columns, by which data frames are ordered.
        keeps_type: Whether rows keep the type in which they come; otherwise they become float32.

    Attributes:
        name: Name in reports.
        manifest: Description of the model's columns; None if it is not known.
    """

    def __init__(
        self,
        source: RowModel,
        *,
        name: str,
        cache: DecisionCache | None = None,
        manifest: BundleSpec | None = None,
        keeps_type: bool = False,
    ) -> None:
        self._source, self._cache, self.name, self.manifest = source, cache, name, manifest
        self._keeps_type = keeps_type
        self._calls, self._failures = BatchedCalls(source), Failures()

    @classmethod
    def of(cls, model: AuditedModel | Bundle | Path | str | Callable[..., Any]) -> AuditedModel:
        """The audited model for a bundle or its path, a torch module or a function.

        Raises:
            AuditInputError: The model has none of these types.
            BundleError: There is no valid bundle at the path.
        """
        if isinstance(model, AuditedModel):
            return model
        if isinstance(model, Bundle | Path | str):
            return cls.from_bundle(model)
        return cls.from_function(model)

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        threshold: float | None = None,
        favourable: Literal[0, 1] = 1,
        batch_rows: int = 65_536,
        identity: str = "",
        cache: Path | str | None = None,
    ) -> AuditedModel:
        """A function from rows `[n, d]` to decisions or scores, or a torch module.

        Args:
            function: Returns `[n]` or `[n, 1]`: booleans, 0 and 1, or scores. It gets rows of the
                type that they have; a module gets the type of its parameters.
            threshold: Lowest score of decision 1; required if the function returns scores.
            favourable: The favourable decision.
            batch_rows: Largest number of rows per call.
            identity: Unique name of the model, such as name and version; required with a cache.
            cache: File in which decisions are stored and looked up.

        Raises:
            AuditInputError: An argument is invalid.
            DecisionCacheError: The cache belongs to another model, or cannot be used.
        """
        if not callable(function):
            raise AuditInputError(
                "model: must be a function from rows to decisions, such as a model's predict, a "
                f"torch module, a bundle or the path of a bundle; got {type(function).__name__}"
            )
        if cache is not None and not identity:
            raise AuditInputError(
                "identity: required with a cache; give the name and version of the model"
            )
        rule = DecisionRule(
            threshold=None if threshold is None else _finite("threshold", threshold),
            favourable=check_favourable(favourable),
        )
        key = ("function", identity, rule.threshold, rule.favourable)
        return cls(
            FunctionModel(
                as_function(function), rule, batch_rows=require_whole("batch_rows", batch_rows, 1)
            ),
            name=identity or f"function {getattr(function, '__name__', type(function).__name__)}",
            cache=None if cache is None else DecisionCache(key, cache),
            keeps_type=True,
        )

    @classmethod
    def from_bundle(
        cls,
        bundle: Bundle | Path | str,
        *,
        batch_rows: int = 65_536,
        cache: Path | str | None = None,
    ) -> AuditedModel:
        """The classifier of a bundle, with the decision rule of its manifest; imports torch.

        Args:
            bundle: The bundle, or its path.
            batch_rows: Largest number of rows per call.
            cache: File in which decisions are stored; rarely useful, because calls are fast.

        Raises:
            BundleError: There is no valid bundle at the path, or its classifier is invalid.
            DecisionCacheError: The cache belongs to another model, or cannot be used.
        """
        if not isinstance(bundle, Bundle):
            bundle = Bundle.read(bundle)
        manifest = bundle.manifest
        rule = DecisionRule.of_output(
            manifest.classifier.output, manifest.decision.threshold, manifest.decision.favourable
        )
        source = FunctionModel(
            bundle_function(bundle),
            rule,
            batch_rows=require_whole("batch_rows", batch_rows, 1),
            width=manifest.width,
        )
        key = ("bundle", bundle.manifest_sha256)
        return cls(
            source,
            name=f"bundle of {manifest.model.name} {manifest.model.version}",
            cache=None if cache is None else DecisionCache(key, cache),
            manifest=manifest,
        )

    @classmethod
    def from_endpoint(
        cls,
        endpoint: str,
        *,
        model: str,
        version: str = "",
        manifest: BundleSpec | None = None,
        class_names: Sequence[str] | None = None,
        favourable: Literal[0, 1] | None = None,
        threshold: float | None = None,
        output: Output | None = None,
        timeout: float = 30.0,
        batch_rows: int = 1_000,
        retries: int = 8,
        patience: float = 120.0,
        identity: str = "",
        cache: Path | str | None = None,
    ) -> AuditedModel:
        """A model behind a sidecar, or behind any server of the Open Inference Protocol.

        Audits send synthetic rows. A sidecar that serves production would log them, count them in
        its metrics and watch them for drift like any request. Use a replica without a log, or the
        bundle.

        Decisions are cached in memory. While the endpoint is unavailable or busy, a batch is
        retried with exponential backoff.

        Args:
            endpoint: Address, such as `127.0.0.1:8081`.
            model: Name of the model.
            version: Version of the model; empty for the server's default.
            manifest: Manifest of its bundle, which provides the next four arguments.
            class_names: Names of the sidecar for classes 0 and 1.
            favourable: The favourable class; 1 by default.
            threshold: Threshold on the probability of class 1, for servers that return no
                decisions.
            output: Kind of score, for servers that return no decisions.
            timeout: Seconds per request.
            batch_rows: Largest number of rows per request.
            retries: Largest number of retries per batch.
            patience: Seconds after which a batch is not retried.
            identity: Unique name of the model in a cache, instead of endpoint, model and version.
                For replicas at other addresses and servers without versions.
            cache: File in which decisions are also stored, so that another run can resume.

        Raises:
            AuditInputError: An argument is invalid, or the decision rule is incomplete.
            DecisionCacheError: The cache belongs to another model, or cannot be used.
        """
        from offline_audit.model.endpoint import EndpointModel, EndpointRule

        if cache is not None and not version and not identity:
            raise AuditInputError(
                "version: a cache requires it, or identity, to identify the model"
            )
        rule = EndpointRule.of(
            manifest,
            class_names=class_names,
            favourable=None if favourable is None else check_favourable(favourable),
            threshold=None if threshold is None else _finite("threshold", threshold),
            output=output,
        )
        source = EndpointModel(
            endpoint,
            model=model,
            version=version,
            rule=rule,
            timeout=_finite("timeout", timeout),
            batch_rows=require_whole("batch_rows", batch_rows, 1),
            retries=require_whole("retries", retries, 0),
            patience=_finite("patience", patience),
            width=None if manifest is None else manifest.width,
        )
        key = ("endpoint", *((identity,) if identity else (endpoint, model, version)), repr(rule))
        return cls(
            source,
            name=f"{model}{' ' * bool(version)}{version} at {endpoint}",
            cache=DecisionCache(key, cache),
            manifest=manifest,
        )

    @property
    def failures(self) -> Failures:
        """Rows without a decision, of all rows requested so far."""
        return self._failures

    @property
    def warnings(self) -> tuple[str, ...]:
        """The failures as sentences, which quote no value of a row."""
        return self._failures.warnings

    def __repr__(self) -> str:
        return f"AuditedModel({self.name})"

    def decide(self, features: ArrayLike, *, progress: Progress | None = None) -> NDArray[np.int8]:
        """Whether each row gets the favourable decision, `[n, d]` to `[n]`.

        Args:
            features: Rows in the model's format; not modified. The columns of a data frame are
                ordered by name if the manifest is known.
            progress: Called with the number of rows done and n.

        Returns:
            1 for the favourable decision, 0 for the unfavourable one, -1 for none; see `failures`.

        Raises:
            AuditInputError: The features or the model's outputs are invalid.
            ModelFailedError: The model decides none of the rows.
            ModelUnreachableError: The endpoint was unavailable or busy for too long. Decisions so
                far are cached: call again, or run again with the same cache, to continue.
            DecisionCacheError: The cache cannot be written.
        """
        rows = self._checked(features)
        try:
            codes = self._codes(rows, progress)
        finally:
            self._source.close()
        self._failures = self._failures.plus(codes, self._calls.reasons)
        return np.maximum(codes, np.int8(-1))

    def _checked(self, features: Any) -> Features:
        if self.manifest is not None and hasattr(features, "iloc"):
            names = [feature.name for feature in self.manifest.features]
            features = features[ordered_columns(features, names)]
        try:
            rows = np.asarray(features)
            if rows.dtype.kind not in "biuf":
                rows = rows.astype(np.float64)
            if not self._keeps_type:
                with np.errstate(over="ignore"):
                    rows = rows.astype(np.float32, copy=False)
        except (TypeError, ValueError):
            raise AuditInputError("features: must be an array of numbers [n, d]") from None
        if rows.ndim != 2:
            raise AuditInputError(f"features: must have shape [n, d]; got {rows.ndim} axes")
        if self._source.width not in (None, rows.shape[1]):
            raise AuditInputError(
                f"features: got {count(rows.shape[1], 'column')}; the model takes "
                f"{self._source.width}"
            )
        return rows

    def _codes(self, rows: Features, progress: Progress | None) -> Codes:
        """Codes of all rows; with a cache, the model is called once per unknown distinct row."""
        if self._cache is None:
            codes = np.full(len(rows), Undecided.PENDING, np.int8)
            for indices, decided in self._calls.decide(rows, np.arange(len(rows)), progress):
                codes[indices] = decided
            return codes
        digests = self._cache.digests(rows)
        codes = self._cache.codes(digests)
        first: dict[bytes, int] = {}
        for index in np.flatnonzero(codes == Undecided.PENDING).tolist():
            first.setdefault(digests[index], index)
        self._calls.note_decided(rows, codes)
        unknown = np.array([*first.values()], np.intp)
        try:
            for indices, decided in self._calls.decide(rows, unknown, progress):
                self._cache.add([digests[index] for index in indices.tolist()], decided)
        except (ModelFailedError, ModelUnreachableError) as error:
            raise type(error)(f"{error}{self._how_to_resume(digests)}") from None
        return self._cache.codes(digests)

    def _how_to_resume(self, digests: Sequence[bytes]) -> str:
        assert self._cache is not None
        known = int((self._cache.codes(digests) >= 0).sum())
        if not known:
            return ""
        cached = f"; {known:,} of {count(len(digests), 'row')} are decided and cached in "
        if self._cache.path is None:
            return (
                f"{cached}memory: call again to continue, or set cache to continue in a later run"
            )
        return f"{cached}{self._cache.path}: run again with the same cache to continue"


def _finite(name: str, value: Any) -> float:
    kinds = (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not np.isfinite(value):
        raise AuditInputError(f"{name}: must be a finite number; got {value!r}")
    return float(value)
