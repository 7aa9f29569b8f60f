"""Precision and recall of each map for the decisions that truly change, in several settings."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.claims import Claim, Say, Scale, print_wide
from benchmarks.fliptest_designs import CORRELATED, MULTIMODAL
from benchmarks.structural_models import HIRING, INSURANCE
from benchmarks.subject import Society, train_classifier
from monitor import World, decide
from offline_audit import AuditedModel, Columns, map_method
from offline_audit.fliptest.flipset import DecidedRows, Flipset, counterparts_of
from offline_audit.maps import MAPS
from offline_audit.maps.transport_map import TransportMap
from offline_audit.maps.validation import MapValidation, validate_map

__all__ = ["measure_maps"]

Bools = NDArray[np.bool_]

# Development used seeds below 100 only.
_SEED = 1000
_DEFAULT = "joint_quantile"
_DRAWS = 8
_WORLD = "world (mixed)"
_SOCIETIES: Mapping[str, Society] = {
    _WORLD: World(),
    "hiring (mixed, correlated)": HIRING,
    "insurance (mixed, scale)": INSURANCE,
    "correlated": CORRELATED,
    "multimodal": MULTIMODAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One map on one society and direction.

    Attributes:
        precision: Share of the flipset whose decision truly changes.
        recall: Share of true changes that are in the flipset.
        share: Estimated share that flips.
        truth: True share that flips.
        validation: Validation of the map on held-out people.
        seconds: Time to fit the map and transport everyone.
    """

    precision: float
    recall: float
    share: float
    truth: float
    validation: MapValidation
    seconds: float


def measure_maps(scale: Scale, say: Say) -> list[Claim]:
    """Fit every map to the people that it transports, in every setting and both directions."""
    n, rounds = scale.pick(full=(10_000, 3), quick=(3_000, 1), smoke=(300, 1))
    maps = [name for name in MAPS if name != "wgan" or not scale.small]
    results: dict[tuple[str, str], list[_Row]] = {}
    chosen = (_WORLD, "correlated") if scale is Scale.SMOKE else tuple(_SOCIETIES)
    for name, society in ((name, _SOCIETIES[name]) for name in chosen):
        for number in range(rounds):
            for method in maps:
                # The paper's network takes minutes, so it runs once.
                if method == "wgan" and (number or name not in (_WORLD, "correlated")):
                    continue
                say(f"{name}, {method}, round {number + 1} of {rounds}")
                results.setdefault((name, method), []).extend(
                    _rows(society, method, n, _SEED + 10 * number)
                )
    _print(results, n)
    return _claims(results, n)


def _rows(society: Society, method: str, n: int, seed: int) -> list[_Row]:
    attribute = society.attributes[0]
    classifier = train_classifier(society.people(4 * n, seed=seed), seed=seed)
    judge = partial(decide, classifier)
    people = society.people(8 * n, seed=seed + 1)
    groups = people.groups[attribute.name]
    members = [np.flatnonzero(groups == group) for group in (0, 1)]
    rows = []
    for source, target in ((1, 0), (0, 1)):
        here, fresh_here = members[source][:n], members[source][n : 2 * n]
        there, fresh_there = members[target][:n], members[target][n : 2 * n]
        twins = people.counterfactual(attribute.name, attribute.groups[target])
        decided = DecidedRows(
            features=people.features[here], decisions=judge(people.features[here])
        )
        columns = Columns(features=society.features, one_hot_groups=society.one_hot_groups)
        started = time.perf_counter()
        map_ = map_method(method)
        fitted: TransportMap = map_.fit(
            people.features[here], people.features[there], columns, seed=seed
        )
        flipset, _ = counterparts_of(decided, fitted, AuditedModel.from_function(judge), _DRAWS)
        seconds = time.perf_counter() - started
        validation = validate_map(
            fitted,
            people.features[fresh_here],
            people.features[fresh_there],
            columns,
            map_.cost,
            seed=seed,
        )
        truth = judge(twins[here]) != decided.decisions
        rows.append(_row(flipset, truth, validation, seconds))
    return rows


def _row(flipset: Flipset, truth: Bools, validation: MapValidation, seconds: float) -> _Row:
    members = flipset.members("advantaged") | flipset.members("disadvantaged")
    return _Row(
        precision=float(truth[members].mean()) if members.any() else 0.0,
        recall=float(members[truth].mean()) if truth.any() else 1.0,
        share=flipset.gross,
        truth=float(truth.mean()),
        validation=validation,
        seconds=seconds,
    )


def _claims(results: Mapping[tuple[str, str], list[_Row]], n: int) -> list[Claim]:
    claims = []
    world = results[_WORLD, _DEFAULT]
    for what, worst in (
        ("precision of the flipset", min(r.precision for r in world)),
        ("recall of the true changes", min(r.recall for r in world)),
    ):
        claims.append(
            Claim(
                claim=f"{_WORLD}, proxy-biased, {n:,} per group, {_DEFAULT}: {what}",
                figure=100 * worst,
                unit="%, worst direction and seed",
                side="at least",
                bar=80,
                rounds=len(world),
            )
        )
    societies = list(dict.fromkeys(name for name, _ in results))
    failed = [
        name for name in societies for row in results[name, _DEFAULT] if not row.validation.passed
    ]
    claims.append(
        Claim(
            claim=f"{_DEFAULT}: maps that fail validation in any setting",
            figure=len(failed),
            unit="maps",
            side="at most",
            bar=0,
            rounds=sum(len(results[name, _DEFAULT]) for name in societies),
            details={"failed": ", ".join(sorted(set(failed))) or "none"},
        )
    )
    behind = {name: _behind(results, name) for name in societies}
    worst_name = max(behind, key=lambda name: behind[name])
    claims.append(
        Claim(
            claim=f"{_DEFAULT}: distance to the best validated map, mean of precision and recall",
            figure=100 * behind[worst_name],
            unit="points",
            side="at most",
            bar=2,
            rounds=len(results),
            details={"where": worst_name},
        )
    )
    return claims


def _behind(results: Mapping[tuple[str, str], list[_Row]], name: str) -> float:
    best = max(
        (
            _score(rows)
            for (society, _), rows in results.items()
            if society == name and all(row.validation.passed for row in rows)
        ),
        default=math.nan,
    )
    return best - _score(results[name, _DEFAULT])


def _score(rows: list[_Row]) -> float:
    return statistics.mean((row.precision + row.recall) / 2 for row in rows)


def _print(results: Mapping[tuple[str, str], list[_Row]], n: int) -> None:
    table = Table(title=f"Maps against true counterfactuals, {n:,} per group, both directions")
    for heading in ("setting", "map"):
        table.add_column(heading)
    for heading in (
        *("precision", "recall", "flips", "truth", "worst KS", "regression"),
        *("AUC", "distance / exact", "validated", "s"),
    ):
        table.add_column(heading, justify="right")
    for (society, method), rows in results.items():
        checks = [row.validation for row in rows]
        table.add_row(
            society,
            method,
            *(f"{100 * _mean(rows, of):.1f}%" for of in ("precision", "recall", "share", "truth")),
            f"{max(fit.ks for check in checks for fit in check.variables):.3f}",
            f"{max((f.regression for c in checks for f in c.variables), key=abs):+.2f}",
            f"{max(check.auc for check in checks):.2f}",
            f"{max(c.distance / max(c.exact_distance, 1e-9) for c in checks):.2f}",
            f"{sum(check.passed for check in checks)} of {len(checks)}",
            f"{_mean(rows, 'seconds'):.2f}",
        )
    print_wide(table)


def _mean(rows: list[_Row], of: str) -> float:
    return float(np.mean([getattr(row, of) for row in rows]))
