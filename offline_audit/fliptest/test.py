"""FlipTest: transport each group to the others, and find whose decision would change."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from monitor.bundle import Bundle, BundleSpec
from offline_audit.criteria import Criterion
from offline_audit.errors import (
    AuditInputError,
    DecisionCacheError,
    ModelFailedError,
    ModelUnreachableError,
    OfflineAuditError,
)
from offline_audit.fliptest.flipset import DecidedRows, DecisionModel
from offline_audit.fliptest.frames import read_frame, read_raw_frame
from offline_audit.fliptest.label_counts import unidentified
from offline_audit.fliptest.options import Options, checked_options, pair_steps
from offline_audit.fliptest.other_attributes import other_attributes
from offline_audit.fliptest.pair import Pair
from offline_audit.fliptest.result import FlipDirection, FlipTestResult
from offline_audit.fliptest.sample import ColumnSpec, FeatureTable, Sample, read_array
from offline_audit.maps import MapMethod, map_method
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features
from offline_audit.model.audited_model import AuditedModel
from offline_audit.progress import Progress, Reporter, reporting
from offline_audit.rendering import some

__all__ = ["SingleThread", "flip_test", "read_features"]

# Errors of the model that end a test with an incomplete result.
_MODEL_ERRORS = (ModelUnreachableError, ModelFailedError, DecisionCacheError)


def flip_test(
    model: AuditedModel | Bundle | Path | str | Callable[..., Any],
    features: Any,
    groups: ArrayLike | Mapping[str, ArrayLike],
    labels: ArrayLike | None = None,
    units: ArrayLike | None = None,
    *,
    columns: ColumnSpec | None = None,
    protected: Collection[str] | None = None,
    criterion: Criterion = "statistical_parity",
    reference: str | None = None,
    map: str | MapMethod = "joint_quantile",  # noqa: A002 - what users call it
    cost: str | Cost | Callable[..., Any] = SQUARED_L2,
    threshold: float | None = None,
    favourable: Literal[0, 1] = 1,
    label_counts: Mapping[str, ArrayLike] | None = None,
    alpha: float = 0.05,
    n_resamples: int | None = None,
    n_bootstrap: int | None = None,
    n_counterparts: int = 8,
    max_rows: int = 100_000,
    smallest_group: int = 100,
    smallest_cell: int = 10,
    explain: bool = True,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> FlipTestResult:
    """Whose decision would change in another group, and through which features?

    A transport map sends the members of a group to another group: transported rows have the other
    group's distribution, and every row is changed as little as possible. The model decides on the
    row and on its counterparts (Black, Yeom and Fredrikson 2020, sections 3 and 4).

    H0 of the p-value: features have the same distribution in both groups, so flips are noise of
    the map. A small p-value says that more decisions flip than this noise explains. It does not
    say that the features behind the flips are unjustified.

    Args:
        model: Function of rows, bundle or its path, or an `AuditedModel`.
        features: Data frame, or array `[n, d]` of encoded columns. For a bundle, the columns of a
            data frame are taken by name; besides them it may have protected attributes and labels.
        groups: Group of each row, or {attribute: groups}.
        labels: True outcomes, 1 the favourable one, for criteria other than statistical parity.
        units: Person of each row, where people occur more than once. Units are permuted and
            resampled as a whole; features and subgroups are explained by one row of each.
        columns: Description of the columns: a manifest, `Columns` or names; see `read_features`.
        protected: Features, or groups of one-hot columns, that are other protected attributes. The
            result says how many rows a map transports to another value of them. None: those of the
            manifest, if there is one.
        criterion: `equal_opportunity` and `equalized_odds` transport rows within their label.
        reference: Group that all others are compared with; None compares every pair.
        map: Name of a method, or a method with its own options; see `offline_audit.maps`.
        cost: Transport cost that the map minimizes.
        threshold: Decision threshold for a function that returns scores.
        favourable: Favourable decision of a function.
        label_counts: Rows by label and decision, `[3, 3]`, of each group: 0, 1, unknown on both
            axes, 1 for the favourable one; required if the rows were sampled by label, since the
            labels that are missing are then counted here. None counts the rows.
        alpha: Significance level of `rejected`.
        n_resamples: Number of permutations behind the p-value. None: 499, or 0 if the map is slow.
        n_bootstrap: Number of bootstrap resamples behind the intervals. None: 100, or 0 if slow.
        n_counterparts: Number of counterparts per row where the map splits.
        max_rows: Largest number of rows of a group; larger groups are sampled.
        smallest_group: Smallest size of a group that is tested.
        smallest_cell: Smallest number of people that a published figure may describe.
        explain: Whether to report features and subgroups.
        seed: Seed of the random generator.
        progress: Progress callback; True for a bar, False for none, None for a bar on a terminal.

    Raises:
        AuditInputError: Invalid input.
        ModelFailedError: The model returns no decision at the start.
        ModelUnreachableError: The endpoint does not respond at the start.
        DecisionCacheError: The cache of decisions cannot be used at the start.

    If the model fails later, the result so far is returned with `complete=False`.
    """
    if isinstance(model, Bundle | Path | str):
        model = model if isinstance(model, Bundle) else Bundle.read(model)
        columns = model.manifest if columns is None else columns
    table = _table(model, features, columns, (groups, labels, units))
    options = checked_options(
        criterion=criterion,
        method=map_method(map, cost),
        reference=reference,
        n_counterparts=n_counterparts,
        n_resamples=n_resamples,
        n_bootstrap=n_bootstrap,
        alpha=alpha,
        max_rows=max_rows,
        smallest_group=smallest_group,
        smallest_cell=smallest_cell,
        explain=explain,
        seed=seed,
    )
    sample = Sample.read(
        table,
        groups,
        labels,
        units,
        needs_labels=options.labels != (None,),
        label_counts=label_counts,
    )
    if options.reference is not None and options.reference not in sample.groups:
        raise AuditInputError(
            f"reference: no group {options.reference!r} of {sample.attribute}; there are: "
            f"{some(sample.groups, 9)}"
        )
    manifest = columns if isinstance(columns, BundleSpec) else _manifest(model)
    others = other_attributes(manifest, protected, table.columns, sample.attribute)
    options = dataclasses.replace(options, others=others)
    audited = _audited_model(model, table, threshold, favourable)
    model_of_table = _ModelOfTable(audited, table)
    failures = audited.failures
    pairs = _pairs(sample, options)
    with reporting(progress, 1 + len(pairs) * pair_steps(options)) as reporter:
        reporter.doing("decisions of the model")
        rows = sample.drawn(options.labels, options.max_rows, options.seed)
        decisions = np.full(len(table.features), -1, np.int8)
        decisions[rows] = model_of_table.decide(table.features[rows], progress=reporter.rows)
        failure_warnings = audited.failures.since(failures).warnings
        reporter.step()
        with SingleThread() as threads:
            unlimited = threads.unlimited(model_of_table)
            directions, error = _run_pairs(sample, pairs, decisions, unlimited, options, reporter)
    warnings = [
        *sample.warnings,
        *failure_warnings,
        *sample.sampling_warnings(options.labels, options.max_rows),
    ]
    return FlipTestResult(
        attribute=sample.attribute,
        criterion=options.criterion,
        map=options.method.name,
        cost=options.method.cost.name,
        directions=tuple(directions),
        alpha=options.alpha,
        n_counterparts=options.n_counterparts,
        seed=options.seed,
        complete=error is None,
        unknown=sample.unknown,
        warnings=tuple(warnings if error is None else [*warnings, f"Not complete: {error}"]),
    )


def _table(
    model: AuditedModel | Bundle | Callable[..., Any],
    features: Any,
    columns: ColumnSpec | None,
    others: Iterable[Any],
) -> FeatureTable:
    """The table of features; a data frame has the features, or raw inputs, of a bundle by name.

    Args:
        model: The audited model.
        features: Data frame or array.
        columns: Description of the columns.
        others: Groups, labels and units, whose columns the frame may have, too.
    """
    manifest = _manifest(model)
    if manifest is None or not hasattr(features, "iloc"):
        return read_features(features, columns)
    ignored = {attribute.name for attribute in manifest.protected_attributes}
    for values in others:
        names = values if isinstance(values, Mapping) else [getattr(values, "name", None)]
        ignored |= set(map(str, names))
    raw = None
    if columns is None or columns == manifest:
        raw = read_raw_frame(features, manifest, ignored)
    if raw is not None:
        return raw
    table = read_features(features, manifest if columns is None else columns, ignored)
    if table.columns.names != tuple(feature.name for feature in manifest.features):
        raise AuditInputError(
            "columns: must name the features of the model in the order of its manifest; without "
            "columns, a data frame is ordered by name"
        )
    return table


def _manifest(model: AuditedModel | Bundle | Callable[..., Any]) -> BundleSpec | None:
    return model.manifest if isinstance(model, AuditedModel | Bundle) else None


def read_features(
    features: Any, columns: ColumnSpec | None = None, ignored: Collection[str] = ()
) -> FeatureTable:
    """Read a table of features.

    Args:
        features: Data frame, in which text becomes categories (and text again for the model), or
            an array `[n, d]` of encoded columns.
        columns: Description of the columns of an array: a manifest, `Columns`, or names only.
            Kinds that it does not give are inferred from the values: zeros and ones are binary,
            whole numbers integer, other numbers numeric. For a data frame it also selects the
            columns and their order; a frame that a manifest or `Columns` describes is already
            encoded, and the model is called with arrays. With a manifest, other columns than
            features are an error.
        ignored: Further columns that a frame described by a manifest may have.

    Raises:
        AuditInputError: Not a table of numbers and text, a value is missing, or a column does not
            match its description.
    """
    if hasattr(features, "columns") and hasattr(features, "iloc"):
        return read_frame(features, columns, ignored)
    return read_array(features, columns)


def _audited_model(
    model: AuditedModel | Bundle | Callable[..., Any],
    table: FeatureTable,
    threshold: float | None,
    favourable: Literal[0, 1],
) -> AuditedModel:
    if isinstance(model, AuditedModel | Bundle):
        if threshold is not None or favourable != 1:
            raise AuditInputError(
                "threshold, favourable: only for a function; a bundle or an AuditedModel has its "
                "own"
            )
        if table.columns.one_hot_groups and not table.is_array:
            raise AuditInputError(
                "features: this model takes encoded columns, not text; encode them as its "
                "manifest lists, or pass a function"
            )
        return AuditedModel.of(model)
    if table.is_array:
        return AuditedModel.from_function(model, threshold=threshold, favourable=favourable)

    def decoded(rows: Features) -> Any:
        return model(table.decode(rows))

    return AuditedModel.from_function(decoded, threshold=threshold, favourable=favourable)


class _ModelOfTable:
    """A model that decides on encoded rows; one that takes arrays gets the type of the table."""

    def __init__(self, model: AuditedModel, table: FeatureTable) -> None:
        self._model, self._decode = model, table.decode if table.is_array else None

    def decide(
        self, features: Features, progress: Callable[[int, int], None] | None = None
    ) -> NDArray[np.int8]:
        rows = features if self._decode is None else self._decode(features)
        return self._model.decide(rows, progress=progress)


def _pairs(sample: Sample, options: Options) -> list[tuple[int, int, int | None]]:
    """Indices of two groups, and a label, for every comparison."""
    pairs = [
        pair
        for pair in itertools.combinations(range(len(sample.groups)), 2)
        if options.reference is None or options.reference in [sample.groups[g] for g in pair]
    ]
    return [(first, second, label) for label in options.labels for first, second in pairs]


def _run_pairs(
    sample: Sample,
    pairs: list[tuple[int, int, int | None]],
    decisions: NDArray[np.int8],
    model: DecisionModel,
    options: Options,
    reporter: Reporter,
) -> tuple[list[FlipDirection], OfflineAuditError | None]:
    """Results of all pairs; after an error of the model, the stages completed before it."""
    directions: list[FlipDirection] = []
    error: OfflineAuditError | None = None
    for first, second, label in pairs:
        reason, warnings = unidentified(sample, (first, second), label, decisions, len(pairs))
        pair = Pair(
            names=(sample.groups[first], sample.groups[second]),
            label=label,
            groups=(
                _decided_rows(sample, sample.rows(first, label), decisions),
                _decided_rows(sample, sample.rows(second, label), decisions),
            ),
            columns=sample.table.columns,
            model=model,
            options=options,
            warnings=warnings,
        )
        latest = pair.blank(reason)
        try:
            if error is None:
                for stage in pair.stages(latest, reporter):
                    latest = stage
        except _MODEL_ERRORS as model_error:
            error = model_error
        directions += latest if error is None else map(_incomplete, latest)
    return directions, error


def _decided_rows(
    sample: Sample, rows: NDArray[np.intp], decisions: NDArray[np.int8]
) -> DecidedRows:
    decided = rows[decisions[rows] >= 0]
    table = sample.table
    units = None if sample.units is None else sample.units[decided]
    return DecidedRows.of(table.features[decided], decisions[decided] == 1, units, grid=table.grid)


def _incomplete(direction: FlipDirection) -> FlipDirection:
    # A direction with its null distribution has a valid p-value, even without an explanation.
    if direction.reason is not None or direction.null is not None:
        return direction
    reason = "the model failed during the test; see the warnings."
    return dataclasses.replace(direction, reason=reason)


class SingleThread:
    """Context in which maps are fitted by one thread, and the model keeps its threads.

    Limits BLAS and OpenMP while refits run, and restores the limits for each call of the model.
    """

    def __init__(self) -> None:
        self._pools = ThreadpoolController()
        limits: dict[str, int] = {}
        for pool in self._pools.info():
            api = pool["user_api"]
            limits[api] = max(limits.get(api, 1), int(pool["num_threads"]))
        self._before = limits
        self._limit: Any = None

    def __enter__(self) -> Self:
        self._limit = self._pools.limit(limits=1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limit.restore_original_limits()

    def unlimited(self, model: DecisionModel) -> DecisionModel:
        """The model with the number of threads that it has outside of this context."""
        return _UnlimitedModel(model, self._pools, self._before)


class _UnlimitedModel:
    def __init__(self, model: DecisionModel, pools: Any, threads: dict[str, int]) -> None:
        self._model, self._pools, self._threads = model, pools, threads

    def decide(self, features: Features) -> NDArray[np.int8]:
        with self._pools.limit(limits=self._threads):
            return self._model.decide(features)
