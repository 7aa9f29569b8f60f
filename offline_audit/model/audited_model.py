"""How audits ask a model for decisions: in batches, cached, from where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.bundle import Bundle, BundleSpec
from offline_audit.errors import AuditInputError, ModelFailedError, ModelUnreachableError
from offline_audit.model.batches import Asking, Progress
from offline_audit.model.cache import DecisionCache
from offline_audit.model.local import FunctionModel, as_function
from offline_audit.model.outputs import (
    Codes,
    DecisionRule,
    Failures,
    Features,
    Output,
    RowModel,
    Undecided,
    check_favourable,
)
from offline_audit.rendering import count
from offline_audit.validation import require_whole

__all__ = ["AuditedModel"]


class AuditedModel:
    """A model that audits ask for decisions, whichever way it is called.

    Made by `of`, `from_function`, `from_bundle` or `from_endpoint`. A batch on which the model
    fails is halved until the rows that it fails on stand alone: these get no decision, and are
    counted. A model that fails on everything is an error.

    Args:
        source: What answers.
        name: What to call it.
        cache: What it has answered; None to ask every time.

    Attributes:
        name: What to call it, in reports.
    """

    def __init__(self, source: RowModel, *, name: str, cache: DecisionCache | None = None) -> None:
        self._source, self._cache, self.name = source, cache, name
        self._asking, self._failures = Asking(source), Failures()

    @classmethod
    def of(cls, model: AuditedModel | Bundle | Path | str | Callable[..., Any]) -> AuditedModel:
        """Whatever decides: a bundle or the path of one, a torch module, a function.

        Raises:
            AuditInputError: It is none of these.
            BundleError: There is no sound bundle at the path.
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
        """A function from float32 rows `[n, d]` to decisions or scores, or a torch module.

        Args:
            function: Answers `[n]` or `[n, 1]`: booleans, 0 and 1, or scores.
            threshold: Decision 1 from this score on; scores are refused without it.
            favourable: The decision that is favourable.
            batch_rows: Most rows of a call.
            identity: What tells this model from any other, such as its name and version; a cache
                needs it.
            cache: File that decisions are kept in, and looked up before the function is called.

        Raises:
            AuditInputError: What was given cannot be used.
            DecisionCacheError: The cache is another model's, or cannot be used.
        """
        if not callable(function):
            raise AuditInputError(
                "model: a function from rows to decisions is needed, such as a model's predict; or "
                f"a bundle, or the path of one; not a {type(function).__name__}"
            )
        if cache is not None and not identity:
            raise AuditInputError("identity: a cache needs it, to tell this function from others")
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
        )

    @classmethod
    def from_bundle(
        cls,
        bundle: Bundle | Path | str,
        *,
        batch_rows: int = 65_536,
        cache: Path | str | None = None,
    ) -> AuditedModel:
        """The classifier of a bundle, which decides as its manifest says; imports torch.

        Args:
            bundle: The bundle, or its path.
            batch_rows: Most rows of a call.
            cache: File that decisions are kept in; seldom worth it, since asking is quick.

        Raises:
            BundleError: There is no sound bundle at the path, or its classifier is none.
            DecisionCacheError: The cache is another model's, or cannot be used.
        """
        from offline_audit.model.torch_module import bundle_function

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
        """A model behind a sidecar, or behind any server of the protocol.

        People whom an audit makes up enter the log, the metrics and the drift watch of a sidecar
        that serves production, as if they had come. Point this at a replica that keeps no log, or
        use the bundle.

        What was decided is kept in memory, and so asked for once. While the endpoint is down or
        busy a batch is asked again, after pauses that grow.

        Args:
            endpoint: Such as `127.0.0.1:8081`.
            model: Name of the model.
            version: Its version; empty lets the server choose.
            manifest: That of its bundle, which says the next four.
            class_names: How a sidecar calls classes 0 and 1.
            favourable: The class that is favourable; 1 if nothing says so.
            threshold: On the probability of class 1, for servers that say no decisions.
            output: What their scores are, likewise.
            timeout: Seconds that one call may take.
            batch_rows: Most rows of a call.
            retries: Most times that a batch is asked again.
            patience: Seconds after which a batch is not asked again.
            identity: What tells this model from any other in a cache, instead of endpoint, model
                and version: where a replica at another address is to go on, or a server has no
                versions.
            cache: File that decisions are kept in too, from which another run goes on.

        Raises:
            AuditInputError: What was given does not tell how the endpoint decides.
            DecisionCacheError: The cache is another model's, or cannot be used.
        """
        from offline_audit.model.endpoint import EndpointModel, EndpointRule

        if cache is not None and not version and not identity:
            raise AuditInputError(
                "version: a cache needs it, or identity, to tell this version from those to come"
            )
        rule = EndpointRule.told(
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
        )

    @property
    def failures(self) -> Failures:
        """Rows that got no decision, of all that were asked for so far."""
        return self._failures

    @property
    def warnings(self) -> tuple[str, ...]:
        """The same in words, which hold no value of a person."""
        return self._failures.warnings

    def __repr__(self) -> str:
        return f"AuditedModel({self.name})"

    def decide(self, features: ArrayLike, *, progress: Progress | None = None) -> NDArray[np.int8]:
        """Whether each row has the favourable decision, `[n, d]` to `[n]`.

        Args:
            features: As the model takes them; left as they are.
            progress: Called as rows are done.

        Returns:
            1 where the decision is favourable, 0 where it is not, -1 where there is none; see
            `failures`.

        Raises:
            AuditInputError: The features, or the model's answers, cannot be used.
            ModelFailedError: The model decides nothing of what it is asked.
            ModelUnreachableError: The endpoint is down or busy for too long. What it has decided is
                kept: ask again, or run again with the same cache, to go on from there.
            DecisionCacheError: The cache cannot be written.
        """
        rows = self._checked(features)
        try:
            codes = self._asked(rows, progress)
        finally:
            self._source.rest()
        self._failures = self._failures.plus(codes, self._asking.reasons)
        return np.maximum(codes, np.int8(-1))

    def _checked(self, features: ArrayLike) -> Features:
        try:
            with np.errstate(over="ignore"):
                rows = np.asarray(features, np.float32)
        except (TypeError, ValueError):
            raise AuditInputError("features: numbers [n, d] are needed") from None
        if rows.ndim != 2:
            raise AuditInputError(f"features: rows [n, d] are needed, not {rows.ndim} axes")
        if self._source.width not in (None, rows.shape[1]):
            raise AuditInputError(
                f"features: {count(rows.shape[1], 'column')}, but the model takes "
                f"{self._source.width}"
            )
        return rows

    def _asked(self, rows: Features, progress: Progress | None) -> Codes:
        """Codes of all rows; with a cache, only rows that it does not know are asked, once each."""
        if self._cache is None:
            codes = np.full(len(rows), Undecided.UNASKED, np.int8)
            for places, found in self._asking.batches(rows, np.arange(len(rows)), progress):
                codes[places] = found
            return codes
        digests = self._cache.digests(rows)
        codes = self._cache.codes(digests)
        first: dict[bytes, int] = {}
        for place in np.flatnonzero(codes == Undecided.UNASKED).tolist():
            first.setdefault(digests[place], place)
        self._asking.note_decided(rows, codes)
        unknown = np.array([*first.values()], np.intp)
        try:
            for places, found in self._asking.batches(rows, unknown, progress):
                self._cache.keep([digests[place] for place in places.tolist()], found)
        except (ModelFailedError, ModelUnreachableError) as error:
            raise type(error)(f"{error}{self._kept(digests)}") from None
        return self._cache.codes(digests)

    def _kept(self, digests: Sequence[bytes]) -> str:
        """How to go on from what is known."""
        assert self._cache is not None
        known = int((self._cache.codes(digests) >= 0).sum())
        if not known:
            return ""
        told = f"; {known:,} of {count(len(digests), 'row')} are decided and kept in "
        if self._cache.path is None:
            return f"{told}memory: ask again to go on from there, or give a cache to go on later"
        return f"{told}{self._cache.path}: run again with the same cache to go on from there"


def _finite(name: str, value: Any) -> float:
    kinds = (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not np.isfinite(value):
        raise AuditInputError(f"{name}: a finite number is needed")
    return float(value)
