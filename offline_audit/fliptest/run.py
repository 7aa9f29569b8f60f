"""FlipTest: carry people of each group to the others, and see whose decision becomes another."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.bundle import Bundle
from offline_audit.audited_model import AuditedModel
from offline_audit.errors import (
    AuditInputError,
    DecisionCacheError,
    ModelFailedError,
    ModelUnreachableError,
    OfflineAuditError,
)
from offline_audit.fliptest.counterparts import Asked, Decides
from offline_audit.fliptest.options import Options, checked_options
from offline_audit.fliptest.pair import Pair, pair_steps
from offline_audit.fliptest.people import People, ToldColumns, read_people
from offline_audit.fliptest.progress import ShowProgress, Watch, watched
from offline_audit.fliptest.result import FlipDirection, FlipTestResult
from offline_audit.fliptest.sample import Sample
from offline_audit.fliptest.threads import OneThread
from offline_audit.maps import MapMethod, map_method
from offline_audit.maps.costs import SQUARED_L2, Cost
from offline_audit.projection.criteria import CRITERIA, Criterion

__all__ = ["flip_test"]

# What may end a test in the middle.
_ENDS = (ModelUnreachableError, ModelFailedError, DecisionCacheError)


def flip_test(
    model: AuditedModel | Bundle | Path | str | Callable[..., Any],
    features: Any,
    groups: ArrayLike | Mapping[str, ArrayLike],
    *,
    labels: ArrayLike | None = None,
    criterion: Criterion = "statistical_parity",
    columns: ToldColumns | None = None,
    map: str | MapMethod = "joint_quantile",  # noqa: A002 - what users call it
    cost: str | Cost | Callable[..., Any] = SQUARED_L2,
    reference: str | None = None,
    threshold: float | None = None,
    favourable: Literal[0, 1] = 1,
    draws: int = 8,
    permutations: int | None = None,
    resamples: int | None = None,
    level: float = 0.05,
    most_rows: int = 100_000,
    smallest_group: int = 100,
    smallest_cell: int = 10,
    explain: bool = True,
    seed: int = 0,
    progress: ShowProgress | bool | None = None,
) -> FlipTestResult:
    """Whose decision would be another, had they belonged to another group, and through what?

    Each member of a group is carried to another by a transport map, which makes the groups'
    features alike and changes each person as little as that takes; the model decides on both
    (Black, Yeom and Fredrikson 2020, sections 3 and 4).

    H0 of the p-value: features are distributed alike in both groups, so that flips are noise of the
    map. A small p says that more decisions flip than that explains, not that the features through
    which they do are no good reason.

    Args:
        model: What decides: a function of rows, a bundle or its path, or an `AuditedModel`.
        features: A data frame, or an array `[n, d]` of encoded columns.
        groups: Each person's group, or {attribute: groups}.
        labels: True outcomes, 1 the favourable one, for criteria other than statistical parity.
        criterion: `equal_opportunity` and `equalized_odds` carry people within their label.
        columns: What the columns of an array are; see `read_people`.
        map: Name of a method, or one with options of its own; see `offline_audit.maps`.
        cost: That the map keeps small.
        reference: Compare with this group only; None: every pair.
        threshold: For a function that gives scores.
        favourable: The decision of a function that is favourable.
        draws: Counterparts of each person, where the map splits.
        permutations: For the null; None: 499, or none where the map is slow to fit.
        resamples: For intervals; None: 100, or none where the map is slow to fit.
        level: Of `rejected`.
        most_rows: Of a group; from larger ones a sample is drawn.
        smallest_group: With fewer members a group takes no part.
        smallest_cell: Figures of fewer people are withheld.
        explain: Whether to name features and subgroups.
        seed: Of whatever is random.
        progress: Told of steps; True for a bar, False for none, None for a bar on a terminal.

    Raises:
        AuditInputError: What was given cannot be used.
        ModelFailedError: The model decides nothing.
        ModelUnreachableError: The endpoint does not answer.
        DecisionCacheError: Decisions cannot be kept.

    The last three from the start only: once people are decided, what was found until then is
    returned instead, marked as not complete.
    """
    if isinstance(model, Bundle | Path | str):
        model = model if isinstance(model, Bundle) else Bundle.read(model)
        columns = model.manifest if columns is None else columns
    people = read_people(features, columns)
    options = checked_options(
        criterion=criterion,
        method=map_method(map, cost),
        reference=reference,
        draws=draws,
        permutations=permutations,
        resamples=resamples,
        level=level,
        most_rows=most_rows,
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
    with watched(progress, 1 + len(pairs) * pair_steps(options)) as watch:
        watch.on("asking the model")
        chosen = sample.asked(options)
        decisions = np.full(len(people.features), -1, np.int8)
        decisions[chosen] = asked.decide(people.features[chosen], progress=watch.rows)
        silent = asked.failures.since(before).warnings
        watch.step()
        with OneThread() as span:
            free = span.freed(asked)
            found, error = _examined(sample, pairs, decisions, free, options, watch)
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
        level=options.level,
        draws=options.draws,
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
    watch: Watch,
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
                for richer in pair.stages(latest, watch):
                    latest = richer
        except _ENDS as met:
            error = met
        found += latest if error is None else _unfinished(latest)
    return found, error


def _decided(sample: Sample, rows: NDArray[np.intp], decisions: NDArray[np.int8]) -> Asked:
    told = rows[decisions[rows] >= 0]
    return Asked.of(sample.people.features[told], decisions[told] == 1)


def _unfinished(directions: tuple[FlipDirection, ...]) -> Iterator[FlipDirection]:
    for each in directions:
        # What was held against chance is evidence, even if it could not be explained.
        if each.reason is None and each.null is None:
            reason = "the model could no longer be asked; see the warnings."
            yield dataclasses.replace(each, reason=reason)
        else:
            yield each
