"""Validation of a map: transported rows compared with members of the target group.

As in the paper (section 5.1): the Kolmogorov–Smirnov statistic of each feature, how well features
predict each other, and the transport cost compared with exact transport. In addition: whether a
classifier can distinguish transported rows from members, which detects any joint difference.

A map is validated only if the rows could have shown that it is bad: see `detectable`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import ot
from numpy.typing import NDArray
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from offline_audit.maps.columns import Columns, Scaling, Variable, category_codes
from offline_audit.maps.detectable import (
    AUC_ERRORS,
    LARGEST_AUC,
    LARGEST_DISTANCE,
    LARGEST_KS,
    LARGEST_REGRESSION,
    REGRESSION_ERRORS,
    Detectable,
)
from offline_audit.maps.transport_map import (
    Cost,
    Features,
    TransportMap,
    one_counterpart,
)
from offline_audit.units import UnitRows, effective_rows

__all__ = [
    "MapState",
    "MapValidation",
    "Units",
    "VariableFit",
    "validate_map",
]

Float = NDArray[np.float64]
Bools = NDArray[np.bool_]
# Unit of each row of one group, `[n]`; None if each row is its own unit.
Units = NDArray[np.int64] | None
_LEVEL = 0.01
# Largest numbers of rows per group for the classifier and for exact transport.
_CLASSIFIER_ROWS, _EXACT_ROWS = 10_000, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFit:
    """Agreement of one variable between transported rows and the target.

    Attributes:
        name: Name of the variable.
        ks: Kolmogorov–Smirnov statistic; for a category the largest difference of shares.
        regression: Mean squared error of a linear regression on the other variables, fitted to the
            target: that of transported rows minus that of the target, as a share of the variance.
            For a category the largest of its columns.
    """

    name: str
    ks: float
    regression: float


MapState = Literal["validated", "failed", "not shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValidation:
    """Result of the validation of a map on rows that it was not fitted to.

    Attributes:
        rows: Numbers of transported rows and of target rows.
        variables: Agreement of each variable.
        auc: AUC of a classifier of transported rows against target rows; 0.5 if they agree.
        auc_error: Standard error of the AUC.
        distance: Mean transport cost of the map.
        exact_distance: Lowest possible mean cost on the same rows, by exact transport.
        detectable: Smallest deviations that are found in 80% of samples of this size.
        failures: Failed checks, in words. No p-value is reported for a map with any.
    """

    rows: tuple[int, int]
    variables: tuple[VariableFit, ...]
    auc: float
    auc_error: float
    distance: float
    exact_distance: float
    detectable: Detectable
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed; on few rows, a bad map often passes."""
        return not self.failures

    @property
    def state(self) -> MapState:
        """Whether the map is shown to be good, or bad, or neither, as the rows are too few."""
        if self.failures:
            return "failed"
        return "validated" if self.detectable.sufficient else "not shown"

    @property
    def statement(self) -> str:
        """The state and the power of the validation, in words."""
        rows = f"{self.rows[0]:,} held-out people"
        start = {
            "validated": f"Map validated on {rows}",
            "failed": f"Map failed validation on {rows}",
            "not shown": (
                f"Map not validated: no check failed on {rows}, but they are too few to show a bad "
                "map"
            ),
        }[self.state]
        worst = max(self.variables, key=lambda fit: fit.ks)
        return (
            f"{start}. Largest KS {worst.ks:.3f} ({worst.name}), AUC {self.auc:.2f} between "
            f"transported rows and members, mean cost {self.distance:.2f} (exact transport between "
            f"samples: {self.exact_distance:.2f}). Found in 80% of such samples: {self.detectable}."
        )


def validate_map(
    fitted: TransportMap,
    source: Features,
    target: Features,
    columns: Columns,
    cost: Cost,
    *,
    seed: int = 0,
    units: tuple[Units, Units] = (None, None),
) -> MapValidation:
    """Compare transported rows with rows of the target.

    Args:
        fitted: The map.
        source: Source rows that it was not fitted to, `[n, d]`.
        target: Target rows that it was not fitted to, `[m, d]`.
        columns: Description of the columns.
        cost: Transport cost of a pair.
        seed: Seed of the samples and splits.
        units: Units of the source rows and of the target rows.
    """
    rng = np.random.default_rng(seed)
    transported = one_counterpart(fitted, source)
    scaling = Scaling.of(source, target, columns)
    sizes = len(transported), len(target)
    effective = effective_rows(units[0], sizes[0]), effective_rows(units[1], sizes[1])
    regression, noise, target_errors = _regression(
        scaling.scaled(transported), scaling.scaled(target), columns, rng, effective
    )
    fits = tuple(
        VariableFit(
            name=variable.name,
            ks=_ks(transported, target, variable),
            regression=float(max(regression[list(variable.columns)], key=abs)),
        )
        for variable in columns.variables
    )
    auc, error, test_rows = _classifier_auc(transported, target, rng, units)
    costs, exact = _costs(transported, source, target, scaling, cost, rng)
    distance = float(costs.mean())
    # Bonferroni over the variables, with the effective size of a two-sample test.
    level = _LEVEL / len(columns.variables)
    harmonic = max(round(math.prod(effective) / sum(effective)), 1)
    limit = LARGEST_KS + float(stats.kstwo.isf(level, harmonic))
    failures = [
        f"{fit.name} has a different distribution than in the target group (KS {fit.ks:.3f}, limit "
        f"{limit:.3f})"
        for fit in fits
        if fit.ks > limit
    ]
    failures += [
        f"{fit.name} depends on the other features differently than in the target group (mean "
        f"squared error {fit.regression:+.2f} of its variance)"
        for fit, variable in zip(fits, columns.variables, strict=True)
        if any(
            abs(regression[c]) > LARGEST_REGRESSION + REGRESSION_ERRORS * noise[c]
            for c in variable.columns
        )
    ]
    # One-sided 99% bound.
    if auc - AUC_ERRORS * error > LARGEST_AUC:
        failures.append(
            f"a classifier separates transported rows from the target group (AUC {auc:.2f}, "
            f"limit {LARGEST_AUC:g})"
        )
    if distance > LARGEST_DISTANCE * exact + 1e-9:
        failures.append(
            f"the mean transport cost is {distance / max(exact, 1e-12):.1f} times the optimal cost"
        )
    return MapValidation(
        rows=sizes,
        variables=fits,
        auc=auc,
        auc_error=error,
        distance=distance,
        exact_distance=exact,
        detectable=Detectable.of(
            ks_limit=limit,
            rows=(round(effective[0]), round(effective[1])),
            errors=target_errors[:, _varies(target)],
            test_rows=test_rows,
            costs=costs,
        ),
        failures=tuple(failures),
    )


def _ks(transported: Features, target: Features, variable: Variable) -> float:
    if variable.kind == "category":
        size = len(variable.columns) + 1
        shares = [
            np.bincount(category_codes(rows, variable), minlength=size) / len(rows)
            for rows in (transported, target)
        ]
        return float(np.abs(shares[0] - shares[1]).max())
    column = variable.columns[0]
    return float(
        stats.ks_2samp(transported[:, column], target[:, column], method="asymp").statistic
    )


def _regression(
    transported: Float,
    target: Float,
    columns: Columns,
    rng: np.random.Generator,
    effective: tuple[float, float],
) -> tuple[Float, Float, Float]:
    """Difference of mean squared errors, its standard error, and the errors of the target rows.

    Shapes `[d]`, `[d]` and `[m, d]`, all as shares of the variance of each column.
    Regressions are cross-fitted on the halves of the target, because the error on rows that a
    regression was fitted to is too small. Values are clipped to the central 99% of each column,
    because a single outlier could dominate the error.
    """
    low, high = np.quantile(target, [0.005, 0.995], axis=0)
    transported, target = (np.clip(rows, low, high) for rows in (transported, target))
    transported_error, target_error = np.zeros(transported.shape), np.zeros(target.shape)
    halves = np.array_split(rng.permutation(len(target)), 2)
    for train, test in (halves, halves[::-1]):
        mean = target[train].mean(0)
        weights = _residual_weights(target[train], columns)
        # Averaged over the two regressions.
        transported_error += ((transported - mean) @ weights) ** 2 / 2
        target_error[test] = ((target[test] - mean) @ weights) ** 2
    variance = np.maximum(target.var(0), 1e-9)
    noise = np.sqrt(transported_error.var(0) / effective[0] + target_error.var(0) / effective[1])
    difference = transported_error.mean(0) - target_error.mean(0)
    return difference / variance, noise / variance, target_error / variance


def _residual_weights(rows: Float, columns: Columns) -> Float:
    """Matrix from deviations to the residuals of regressions on the other variables, `[d, d]`.

    All regressions at once: with precision matrix P, the residuals of block B are
    (x − μ) P[:, B] P[B, B]⁻¹.
    """
    covariance = np.atleast_2d(np.cov(rows, rowvar=False))
    # A small ridge makes the matrix invertible for collinear columns.
    ridge = 1e-6 * np.maximum(np.diag(covariance), 1e-3)
    precision = np.linalg.inv(covariance + np.diag(ridge))
    weights = np.empty_like(precision)
    for variable in columns.variables:
        at = list(variable.columns)
        weights[:, at] = precision[:, at] @ np.linalg.inv(precision[np.ix_(at, at)])
    return weights


def _varies(rows: Features) -> Bools:
    """Columns in which more rows than `LARGEST_KS` differ from the most frequent value, `[d]`.

    An error in the dependence of another column concerns no more rows than the check of its
    distribution allows.
    """
    frequent = [np.unique(column, return_counts=True)[1].max() for column in rows.T]
    return np.asarray(np.array(frequent) < (1 - LARGEST_KS) * len(rows))


def _classifier_auc(
    transported: Features,
    target: Features,
    rng: np.random.Generator,
    units: tuple[Units, Units],
) -> tuple[float, float, int]:
    """AUC of a classifier on held-out rows, its standard error, and their number by class."""
    n = min(len(transported), len(target), _CLASSIFIER_ROWS)
    samples = [rng.choice(len(rows), n, replace=False) for rows in (transported, target)]
    both = np.concatenate([transported[samples[0]], target[samples[1]]])
    labels = np.repeat([0, 1], n)
    order, share = rng.permutation(2 * n), 1.0
    if units[0] is not None and units[1] is not None:
        sampled = np.concatenate([units[0][samples[0]], units[1][samples[1]]])
        share = effective_rows(sampled, 2 * n) / (2 * n)
        # Sorted by unit in random order: copies of a row must not be in both parts.
        owners = UnitRows.of(sampled)
        order = owners.rows(rng.permutation(len(owners)))
    train, test = order[:n], order[n:]
    # With one class only, an AUC is not defined.
    if len(np.unique(labels[train])) < 2 or len(np.unique(labels[test])) < 2:
        return 0.5, 0.5, 1
    model = HistGradientBoostingClassifier(max_iter=60, random_state=int(rng.integers(2**31)))
    model.fit(both[train], labels[train])
    auc = float(roc_auc_score(labels[test], model.predict_proba(both[test])[:, 1]))
    ones = int(labels[test].sum())
    rows = max(round(min(ones, n - ones) * share), 1)
    # Upper bound of the variance of an AUC (Birnbaum and Klose 1957).
    return auc, math.sqrt(max(auc * (1 - auc), 1e-6) / rows), rows


def _costs(
    transported: Features,
    source: Features,
    target: Features,
    scaling: Scaling,
    cost: Cost,
    rng: np.random.Generator,
) -> tuple[Float, float]:
    """Cost of each transported row, `[k]`, and the lowest possible mean cost, on one sample."""
    n = min(len(source), len(target), _EXACT_ROWS)
    sample = rng.choice(len(source), n, replace=False)
    sources = scaling.scaled(source[sample])
    targets = scaling.scaled(target[rng.choice(len(target), n, replace=False)])
    mass = np.full(n, 1 / n)
    exact = float(ot.emd2(mass, mass, cost.pairwise(sources, targets), numItermax=2_000_000))
    return cost.matched(sources, scaling.scaled(transported[sample])), exact
