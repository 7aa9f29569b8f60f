"""Validation of a map: transported rows compared with members of the target group.

As the paper does (section 5.1): Kolmogorov–Smirnov feature by feature, how well features predict
each other, and the distance beside that of exact transport. Beyond it: whether a classifier can
tell transported people from real members, which sees joint structure of any kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import ot
from numpy.typing import NDArray
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from offline_audit.maps.columns import Columns, Scaling, Variable, category_places
from offline_audit.maps.draws import one_counterpart
from offline_audit.maps.transport_map import Cost, Features, MapMethod, Progress, TransportMap

__all__ = ["MapValidation", "ValidatedMap", "VariableFit", "fit_validated", "validate_map"]

Float = NDArray[np.float64]
# How far off a map may be, beyond what chance explains.
_KS, _REGRESSION, _AUC, _DISTANCE = 0.05, 0.2, 0.6, 3.0
_LEVEL = 0.01
# People of each group, at most, for the classifier and for exact transport.
_TOLD_APART, _EXACT = 10_000, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableFit:
    """How well one variable of transported people agrees with the target's.

    Attributes:
        name: Of the variable.
        ks: Kolmogorov–Smirnov statistic; of a category the largest difference of shares.
        regression: Mean squared error with which the others predict it (by a linear regression
            fitted on the target), of transported rows minus that of the target, as a share of its
            variance; the largest of its columns for a category.
    """

    name: str
    ks: float
    regression: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValidation:
    """What was found on people that the map was not fitted to.

    Attributes:
        rows: People transported, and members of the target beside them.
        variables: Each on its own, and from the others.
        auc: How well a classifier tells transported people from members: .5 not at all, 1 always.
        auc_error: Its standard error.
        distance: Mean cost between people and their counterparts.
        exact_distance: The least possible mean cost on the same people, by exact transport.
        failures: What is wrong, in words; a map with any is no evidence.
    """

    rows: tuple[int, int]
    variables: tuple[VariableFit, ...]
    auc: float
    auc_error: float
    distance: float
    exact_distance: float
    failures: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether the map may serve as evidence."""
        return not self.failures


def validate_map(
    fitted: TransportMap,
    source: Features,
    target: Features,
    columns: Columns,
    cost: Cost,
    *,
    seed: int = 0,
) -> MapValidation:
    """Hold transported people against members of the target.

    Args:
        fitted: The map.
        source: People that it was not fitted to, `[n, d]`.
        target: Members of the target that it was not fitted to, `[m, d]`.
        columns: What the columns are.
        cost: Between people and their counterparts.
        seed: Of the choices among many people.
    """
    rng = np.random.default_rng(seed)
    transported = one_counterpart(fitted, source)
    scaling = Scaling.of(source, target, columns)
    regression, noise = _regression(
        scaling.scaled(transported), scaling.scaled(target), columns, rng
    )
    fits = tuple(
        VariableFit(
            name=variable.name,
            ks=_ks(transported, target, variable),
            regression=float(max(regression[list(variable.columns)], key=abs)),
        )
        for variable in columns.variables
    )
    auc, error = _told_apart(transported, target, rng)
    distance, exact = _distances(transported, source, target, scaling, cost, rng)
    sizes = len(transported), len(target)
    level = _LEVEL / len(columns.variables)
    limit = _KS + float(stats.kstwo.isf(level, max(round(math.prod(sizes) / sum(sizes)), 1)))
    failures = [
        f"{fit.name} has another distribution than in the target group (KS {fit.ks:.3f}, limit "
        f"{limit:.3f})"
        for fit in fits
        if fit.ks > limit
    ]
    failures += [
        f"{fit.name} depends on the other features differently than in the target group (mean "
        f"squared error {fit.regression:+.2f} of its variance)"
        for fit, variable in zip(fits, columns.variables, strict=True)
        if any(abs(regression[c]) > _REGRESSION + 4 * noise[c] for c in variable.columns)
    ]
    if auc - 2.33 * error > _AUC:
        failures.append(
            f"a classifier separates transported rows from the target group (AUC {auc:.2f}, "
            f"limit {_AUC:g})"
        )
    if distance > _DISTANCE * exact + 1e-9:
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
        failures=tuple(failures),
    )


def _ks(transported: Features, target: Features, variable: Variable) -> float:
    if variable.kind == "category":
        size = len(variable.columns) + 1
        shares = [
            np.bincount(category_places(people, variable), minlength=size) / len(people)
            for people in (transported, target)
        ]
        return float(np.abs(shares[0] - shares[1]).max())
    column = variable.columns[0]
    return float(
        stats.ks_2samp(transported[:, column], target[:, column], method="asymp").statistic
    )


def _regression(
    transported: Float, target: Float, columns: Columns, rng: np.random.Generator
) -> tuple[Float, Float]:
    """Difference of mean squared errors, and its standard error, of each column, `[d]` each.

    Learned on one half of the target and tried on the other, both ways round: on people whom it
    was learned from, a regression on many features errs too little. The outermost values of a
    column count as far out as the one of two hundred, since a single one would decide.
    """
    low, high = np.quantile(target, [0.005, 0.995], axis=0)
    transported, target = (np.clip(people, low, high) for people in (transported, target))
    mine, theirs = np.zeros(transported.shape), np.zeros(target.shape)
    halves = np.array_split(rng.permutation(len(target)), 2)
    for learn, test in (halves, halves[::-1]):
        mean = target[learn].mean(0)
        weights = _residual_weights(target[learn], columns)
        mine += ((transported - mean) @ weights) ** 2 / 2
        theirs[test] = ((target[test] - mean) @ weights) ** 2
    variance = np.maximum(target.var(0), 1e-9)
    noise = np.sqrt(mine.var(0) / len(mine) + theirs.var(0) / len(theirs))
    return (mine.mean(0) - theirs.mean(0)) / variance, noise / variance


def _residual_weights(people: Float, columns: Columns) -> Float:
    """Turns differences to the mean into what regressions on the other variables leave, `[d, d]`.

    All regressions at once: blocks of the inverse covariance hold their coefficients.
    """
    spread = np.atleast_2d(np.cov(people, rowvar=False))
    ridge = 1e-6 * np.maximum(np.diag(spread), 1e-3)
    precision = np.linalg.inv(spread + np.diag(ridge))
    weights = np.empty_like(precision)
    for variable in columns.variables:
        at = list(variable.columns)
        weights[:, at] = precision[:, at] @ np.linalg.inv(precision[np.ix_(at, at)])
    return weights


def _told_apart(
    transported: Features, target: Features, rng: np.random.Generator
) -> tuple[float, float]:
    """AUC of a classifier on people it has not learned from, and its standard error."""
    n = min(len(transported), len(target), _TOLD_APART)
    both = np.concatenate(
        [people[rng.choice(len(people), n, replace=False)] for people in (transported, target)]
    )
    labels = np.repeat([0, 1], n)
    order = rng.permutation(2 * n)
    learn, test = order[:n], order[n:]
    if len(np.unique(labels[learn])) < 2 or len(np.unique(labels[test])) < 2:
        return 0.5, 0.5
    model = HistGradientBoostingClassifier(max_iter=60, random_state=int(rng.integers(2**31)))
    model.fit(both[learn], labels[learn])
    auc = float(roc_auc_score(labels[test], model.predict_proba(both[test])[:, 1]))
    ones = int(labels[test].sum())
    # The largest variance that an AUC can have (Birnbaum and Klose 1957).
    return auc, math.sqrt(max(auc * (1 - auc), 1e-6) / max(min(ones, n - ones), 1))


def _distances(
    transported: Features,
    source: Features,
    target: Features,
    scaling: Scaling,
    cost: Cost,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Mean cost of the map, and the least one, on the same people."""
    n = min(len(source), len(target), _EXACT)
    some = rng.choice(len(source), n, replace=False)
    here = scaling.scaled(source[some])
    there = scaling.scaled(target[rng.choice(len(target), n, replace=False)])
    mass = np.full(n, 1 / n)
    exact = float(ot.emd2(mass, mass, cost.pairwise(here, there), numItermax=2_000_000))
    return float(cost.matched(here, scaling.scaled(transported[some])).mean()), exact


# Failures of a map that are told.
_MOST_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedMap:
    """By which people are transported.

    Attributes:
        map: Fitted to everyone; a slow one to one half.
        validation: Of the map that was fitted to one half, on the other.
    """

    map: TransportMap
    validation: MapValidation

    @property
    def unsound(self) -> str | None:
        """Why it is no evidence, the first few things of it; None if it is sound."""
        failures = self.validation.failures
        if not failures:
            return None
        more = f"; and {len(failures) - _MOST_TOLD} more" if len(failures) > _MOST_TOLD else ""
        return f"the map is not sound: {'; '.join(failures[:_MOST_TOLD])}{more}."


def fit_validated(
    source: Features,
    target: Features,
    columns: Columns,
    method: MapMethod,
    *,
    seed: int,
    tell: Progress,
) -> ValidatedMap:
    """Fit to one half of each group and try on the other; then, if that is quick, fit to all."""
    halves = [_halves(len(group), seed) for group in (source, target)]
    (here, unseen), (there, members) = halves
    part = method.fit(source[here], target[there], columns, seed=seed, progress=tell)
    validation = validate_map(
        part, source[unseen], target[members], columns, method.cost, seed=seed
    )
    whole = method.fit(source, target, columns, seed=seed) if method.quick else part
    return ValidatedMap(map=whole, validation=validation)


def _halves(n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    order = np.random.default_rng([seed, n]).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])
