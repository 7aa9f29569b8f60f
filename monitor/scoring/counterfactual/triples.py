"""Tests of which three variables depend on each other differently in two samples.

Pairs of variables may have the same distribution in both groups while three of them do not: one may
follow the product of the others, with a sign that depends on the group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from monitor.scoring.counterfactual.pairs import Variables

__all__ = ["differing_triples"]

# Probability that any triple is found to differ if none does. Lower than that for pairs, because a
# triple may add causal orders, which the scores average over.
_LEVEL = 0.001
# Bound on rows · c³ for c columns of scores, about a tenth of a second.
_MOST_PRODUCTS = 1e9
# Fewer rows, in both samples together, are not tested.
_LEAST_ROWS = 400
# Smallest variance of a score: that of an indicator of 2% of the rows. The normal approximation
# needs enough rows with another score than the rest.
_LEAST_VARIANCE = 0.02 * 0.98


def differing_triples(
    one: NDArray[np.float32], other: NDArray[np.float32], variables: Variables
) -> list[tuple[int, int, int]]:
    """Triples of variables with different third-order moments of their scores.

    The score of an ordered feature is its centred rank among all rows, that of a category its
    centred indicator. The difference of the mean products of three of them is compared with its
    standard error, with Bonferroni's correction for all triples.

    Args:
        one: Rows of the first sample, `[n, d]`.
        other: Rows of the second one, `[m, d]`.
        variables: Columns of the variables.
    """
    owner, columns = _columns(np.concatenate([one, other]), variables)
    most = int(_MOST_PRODUCTS / max(len(owner), 1) ** 3)
    step = -(-(len(one) + len(other)) // max(most, 1))
    parts = columns[: len(one) : step], columns[len(one) :: step]
    if len(parts[0]) + len(parts[1]) < _LEAST_ROWS or len(set(owner.tolist())) < 3:
        return []
    found: dict[tuple[int, int, int], float] = {}
    tests = 0
    for first in range(len(owner) - 2):
        gap, variance = 0.0, 0.0
        for part in parts:
            products = part[:, first, None] * part[:, first + 1 :]
            mean = (products.T @ part[:, first + 1 :] / len(part)).astype(float)
            square = (products**2).T @ part[:, first + 1 :] ** 2 / len(part)
            gap = mean - gap
            variance = variance + (square - mean**2) / len(part)
        later = owner[first + 1 :]
        distinct = (later[:, None] < later) & (later[:, None] > owner[first])
        tests += int(distinct.sum())
        z = np.abs(gap) / np.sqrt(np.maximum(variance, 1e-12))
        for second, third in np.argwhere(distinct & (z > stats.norm.isf(_LEVEL / 2))):
            triple = int(owner[first]), int(later[second]), int(later[third])
            found[triple] = max(found.get(triple, 0.0), float(z[second, third]))
    critical = stats.norm.isf(_LEVEL / 2 / max(tests, 1))
    return sorted(triple for triple, z in found.items() if z > critical)


def _columns(
    rows: NDArray[np.float32], variables: Variables
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Variable of each column of scores `[c]`, and the scores of all rows `[n, c]`."""
    owner: list[int] = []
    columns = []
    for index in range(len(variables)):
        for column in variables.columns(index):
            score = rows[:, column].astype(float)
            if not variables.is_category(index):
                # A binary feature gets the score of an indicator.
                score = 2 * stats.rankdata(score) / len(rows)
            score -= score.mean()
            if score.var() >= _LEAST_VARIANCE:
                owner.append(index)
                columns.append(score)
    scores = np.column_stack(columns) if columns else np.zeros((len(rows), 0))
    return np.array(owner, np.intp), scores.astype(np.float32)
