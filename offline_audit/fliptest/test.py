"""FlipTest: transport each group to the others, and see whose decision would change."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from monitor.bundle import Bundle
from offline_audit.criteria import CRITERIA, Criterion
from offline_audit.errors import (
    AuditInputError,
    DecisionCacheError,
    ModelFailedError,
    ModelUnreachableError,
    OfflineAuditError,
)
from offline_audit.fliptest.direction import FlipDirection
from offline_audit.fliptest.features import People, ToldColumns, read_people
from offline_audit.fliptest.flipset import DecidedRows, Decides
from offline_audit.fliptest.options import Options, checked_options
from offline_audit.fliptest.pair import Pair, pair_steps
from offline_audit.fliptest.result import FlipTestResult
from offline_audit.fliptest.sample import Sample
from offline_audit.maps import MapMethod, map_method
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features
from offline_audit.model.audited_model import AuditedModel
from offline_audit.progress import Progress, Reporter, reporting

__all__ = ["OneThread", "flip_test"]

# What may end a test in the middle.
_ENDS = (ModelUnreachableError, ModelFailedError, DecisionCacheError)


def flip_test(
    model: AuditedModel | Bundle | Path | str | Callable[..., Any],
    features: Any,
    groups: ArrayLike | Mapping[str, ArrayLike],
    labels: ArrayLike | None = None,
    *,
    columns: ToldColumns | None = None,
    criterion: Criterion = "statistical_parity",
    reference: str | None = None,
    map: str | MapMethod = "joint_quantile",  # noqa: A002 - what users call it
    cost: str | Cost | Callable[..., Any] = SQUARED_L2,
    threshold: float | None = None,
    favourable: Literal[0, 1] = 1,
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
        features: Data frame, or array `[n, d]` of encoded columns.
        groups: Group of each row, or {attribute: groups}.
        labels: True outcomes, 1 the favourable one, for criteria other than statistical parity.
        columns: Description of the columns of an array; see `read_people`.
        criterion: `equal_opportunity` and `equalized_odds` transport rows within their label.
        reference: Group that all others are compared with; None compares every pair.
        map: Name of a method, or a method with its own options; see `offline_audit.maps`.
        cost: Transport cost that the map minimizes.
        threshold: Decision threshold for a function that returns scores.
        favourable: Favourable decision of a function.
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
    people = read_people(features, columns)
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
    sample = Sample.read(people, groups, labels, needs_labels=CRITERIA[criterion] != (None,))
    if options.reference is not None and options.reference not in sample.groups:
        raise AuditInputError(f"reference: {sample.attribute} has no group {options.reference!r}")
    asked = _model(model, people, threshold, favourable)
    before = asked.failures
    pairs = _pairs(sample, options)
    with reporting(progress, 1 + len(pairs) * pair_steps(options)) as reporter:
        reporter.doing("asking the model")
        chosen = sample.asked(options)
        decisions = np.full(len(people.features), -1, np.int8)
        decisions[chosen] = asked.decide(people.features[chosen], progress=reporter.rows)
        silent = asked.failures.since(before).warnings
        reporter.step()
        with OneThread() as span:
            free = span.freed(asked)
            found, error = _examined(sample, pairs, decisions, free, options, reporter)
    warnings = [
        *sample.warnings,
        *silent,
        *sample.left(options),
    ]
    return FlipTestResult(
        attribute=sample.attribute,
        criterion=options.criterion,
        map=options.method.name,
        cost=options.method.cost.name,
        directions=tuple(found),
        alpha=options.alpha,
        n_counterparts=options.n_counterparts,
        seed=options.seed,
        complete=error is None,
        warnings=tuple(warnings if error is None else [*warnings, f"Not complete: {error}"]),
    )


def _model(
    model: AuditedModel | Bundle | Callable[..., Any],
    people: People,
    threshold: float | None,
    favourable: Literal[0, 1],
) -> AuditedModel:
    told = isinstance(people.decode(people.features[:1]), np.ndarray)
    if isinstance(model, AuditedModel | Bundle):
        if threshold is not None or favourable != 1:
            raise AuditInputError(
                "threshold, favourable: these are for a function; a bundle and an AuditedModel "
                "know their own"
            )
        if people.columns.one_hot_groups and not told:
            raise AuditInputError(
                "features: a bundle and an AuditedModel take encoded columns, not words"
            )
        return AuditedModel.of(model)
    if told:
        return AuditedModel.from_function(model, threshold=threshold, favourable=favourable)

    def decoded(rows: NDArray[np.float32]) -> Any:
        return model(people.decode(rows))

    return AuditedModel.from_function(decoded, threshold=threshold, favourable=favourable)


def _pairs(sample: Sample, options: Options) -> list[tuple[int, int, int | None]]:
    """Places of two groups, and a label, for each that is compared."""
    places = itertools.combinations(range(len(sample.groups)), 2)
    wanted = [
        pair
        for pair in places
        if options.reference is None or options.reference in [sample.groups[g] for g in pair]
    ]
    return [(first, second, label) for label in options.labels for first, second in wanted]


def _examined(
    sample: Sample,
    pairs: list[tuple[int, int, int | None]],
    decisions: NDArray[np.int8],
    model: Decides,
    options: Options,
    reporter: Reporter,
) -> tuple[list[FlipDirection], OfflineAuditError | None]:
    """Every pair, both ways, until the model can no longer be asked."""
    found: list[FlipDirection] = []
    error: OfflineAuditError | None = None
    for first, second, label in pairs:
        pair = Pair(
            names=(sample.groups[first], sample.groups[second]),
            label=label,
            people=(
                _decided(sample, sample.rows(first, label), decisions),
                _decided(sample, sample.rows(second, label), decisions),
            ),
            columns=sample.people.columns,
            model=model,
            options=options,
        )
        selective = [sample.selective(group, decisions) for group in (first, second)]
        latest = pair.blank(selective[0] or selective[1])
        try:
            if error is None:
                for richer in pair.stages(latest, reporter):
                    latest = richer
        except _ENDS as met:
            error = met
        found += latest if error is None else _unfinished(latest)
    return found, error


def _decided(sample: Sample, rows: NDArray[np.intp], decisions: NDArray[np.int8]) -> DecidedRows:
    told = rows[decisions[rows] >= 0]
    return DecidedRows.of(sample.people.features[told], decisions[told] == 1)


def _unfinished(directions: tuple[FlipDirection, ...]) -> Iterator[FlipDirection]:
    for each in directions:
        # What was held against chance is evidence, even if it could not be explained.
        if each.reason is None and each.null is None:
            reason = "the model could no longer be asked; see the warnings."
            yield dataclasses.replace(each, reason=reason)
        else:
            yield each


class OneThread:
    """A span in which maps are fitted by one thread, and a model may have as many as before."""

    def __init__(self) -> None:
        self._pools = ThreadpoolController()
        found: dict[str, int] = {}
        for pool in self._pools.info():
            api = pool["user_api"]
            found[api] = max(found.get(api, 1), int(pool["num_threads"]))
        self._before = found
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

    def freed(self, model: Decides) -> Decides:
        """The same model, with the threads that it had outside of this span."""
        return _Freed(model, self._pools, self._before)


class _Freed:
    def __init__(self, model: Decides, pools: Any, threads: dict[str, int]) -> None:
        self._model, self._pools, self._threads = model, pools, threads

    def decide(self, features: Features) -> NDArray[np.int8]:
        with self._pools.limit(limits=self._threads):
            return self._model.decide(features)
