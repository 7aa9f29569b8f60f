"""Rules made of conditions, and the search for the rule that best separates members from others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.encoding import number_before
from offline_audit.fliptest.counts import round_to, spread_of
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features

if TYPE_CHECKING:
    from monitor.bundle.inputs import Step

__all__ = ["Condition", "Rule", "all_hold", "best_rule"]

Bools = NDArray[np.bool_]

# Gain that each further condition must add, in share of members inside minus share of others.
_MARGIN = 0.05
# Smallest leaf of the tree, as a share of the rows to which it is fitted.
_SMALLEST_LEAF = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Limits of one variable, or some of its categories.

    Attributes:
        variable: Name of the variable.
        low: Smallest value; None without a lower limit.
        high: Upper limit, itself excluded; None without an upper limit.
        given: Both limits as numbers before their encoding, rounded; None without an encoding.
        encoded: Whether the limits are shown as encoded, because their encoding reverses the order.
        among: Allowed categories, "0" or "1" of a binary; empty for a number.
        without: Excluded categories.
    """

    variable: str
    low: float | None = None
    high: float | None = None
    given: tuple[float | None, float | None] | None = None
    encoded: bool = False
    among: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def holds(self, features: Features, columns: Columns) -> Bools:
        """Rows for which the condition is true, `[n, d]` to bool `[n]`."""
        variable = next(v for v in columns.variables if v.name == self.variable)
        values = features[:, variable.columns[0]]
        if variable.kind == "category":
            allowed = np.array([name in self.among for name in variable.categories])
            return allowed[category_codes(features, variable)]
        if variable.kind == "binary":
            return np.asarray((values == 1) == ("1" in self.among))
        mask = np.ones(len(features), bool)
        if self.low is not None:
            mask &= values >= self.low
        if self.high is not None:
            mask &= values < self.high
        return mask

    def __str__(self) -> str:
        if {*self.among, *self.without} == {"0", "1"}:
            return f"{self.variable} = {self.among[0]}"
        if self.among and len(self.among) <= len(self.without):
            return f"{self.variable} is {' or '.join(self.among)}"
        if self.among:
            return f"{self.variable} is not {' or '.join(self.without)}"
        low, high = (self.low, self.high) if self.given is None else self.given
        name = f"{self.variable} (encoded)" if self.encoded else self.variable
        if low is not None and high is not None:
            return f"{low:,.12g} ≤ {name} < {high:,.12g}"
        limit = f"< {high:,.12g}" if low is None else f"≥ {low:,.12g}"
        return f"{name} {limit}"

    def in_given_units(self, steps: Sequence[Step]) -> Condition:
        """The condition with its limits as numbers before some steps, which people know."""
        if not steps:
            return self
        limits = [
            None if limit is None else number_before(limit, steps)
            for limit in (self.low, self.high)
        ]
        if [limit is None for limit in limits] != [self.low is None, self.high is None]:
            return replace(self, encoded=True)
        low, high = (None if limit is None else float(f"{limit:.4g}") for limit in limits)
        return replace(self, given=(low, high))


Rule = tuple[Condition, ...]


def all_hold(rule: Rule, features: Features, columns: Columns) -> Bools:
    """Rows for which all conditions are true, `[n, d]` to bool `[n]`; all rows without any."""
    mask = np.ones(len(features), bool)
    for condition in rule:
        mask &= condition.holds(features, columns)
    return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predictor:
    """One input column of the tree.

    Attributes:
        variable: Variable of the column.
        category: Category that the column indicates, "1" of a binary; ignored for a number.
        values: Value of the variable, or whether it has the category, `[n]`.
    """

    variable: Variable
    category: str
    values: NDArray[Any]

    def condition(self, threshold: float, *, above: bool) -> Condition:
        """Condition for values above a threshold of the tree, or for the others."""
        name = self.variable.name
        if self.variable.kind in ("binary", "category"):
            categories = self.variable.categories or ("0", "1")
            among = tuple(c for c in categories if (c == self.category) == above)
            without = tuple(c for c in categories if c not in among)
            return Condition(variable=name, among=among, without=without)
        whole = self.variable.kind == "integer"
        # Whole numbers above 4.5 are those of at least 5.
        limit = math.floor(threshold) + 1 if whole else threshold
        limit = round_to(limit, spread_of(self.values), whole=whole)
        if above:
            return Condition(variable=name, low=limit)
        return Condition(variable=name, high=limit)


def best_rule(
    features: Features, members: Bools, columns: Columns, *, smallest: int, most: int, seed: int
) -> Rule:
    """Rule with the largest gain on these rows; empty if no rule has a positive gain.

    Args:
        features: Features, `[n, d]`.
        members: Mask of the members, `[n]`.
        columns: Description of the columns.
        smallest: Smallest number of people inside, and outside.
        most: Largest number of conditions.
        seed: Seed of ties between splits of the tree.
    """
    rules = {
        _merged_conditions(steps)
        for branch in _branches(features, members, columns, smallest, most, seed)
        for size in range(1, len(branch) + 1)
        for steps in combinations(branch, size)
    }
    masks = {condition: condition.holds(features, columns) for rule in rules for condition in rule}
    best: Rule = ()
    best_gain = 0.0
    # Shorter rules first. Sorting by text makes ties independent of the order of the set.
    for rule in sorted(rules, key=lambda rule: (len(rule), [str(c) for c in rule])):
        inside = np.logical_and.reduce([masks[condition] for condition in rule])
        gain = float(inside[members].mean() - inside[~members].mean())
        longer = len(rule) - max(len(best), 1)
        if gain > best_gain + _MARGIN * longer and min(inside.sum(), (~inside).sum()) >= smallest:
            best, best_gain = rule, gain
    steps = {variable.name: variable.steps for variable in columns.variables}
    return tuple(condition.in_given_units(steps[condition.variable]) for condition in best)


def _branches(
    features: Features, members: Bools, columns: Columns, smallest: int, most: int, seed: int
) -> Iterator[Rule]:
    """Conditions from the root of a decision tree to each of its leaves."""
    # Imported here because it is slow and only explanations need it.
    from sklearn.tree import DecisionTreeClassifier

    predictors = [p for variable in columns.variables for p in _predictors(features, variable)]
    tree = DecisionTreeClassifier(
        max_depth=most,
        min_samples_leaf=max(smallest, int(_SMALLEST_LEAF * len(members))),
        class_weight="balanced",
        random_state=seed % (1 << 32),
    )
    values = np.column_stack([predictor.values for predictor in predictors]).astype(np.float32)
    nodes = tree.fit(values, members).tree_

    def below(node: int, steps: Rule) -> Iterator[Rule]:
        if nodes.children_left[node] < 0:
            yield steps
            return
        predictor, threshold = predictors[nodes.feature[node]], float(nodes.threshold[node])
        for children, above in ((nodes.children_left, False), (nodes.children_right, True)):
            step = predictor.condition(threshold, above=above)
            yield from below(children[node], (*steps, step))

    return below(0, ())


def _predictors(features: Features, variable: Variable) -> Iterator[_Predictor]:
    if variable.kind == "category":
        codes = category_codes(features, variable)
        # Categories after the last that occurs would be constant columns.
        for code, name in enumerate(variable.categories[: codes.max() + 1]):
            yield _Predictor(variable=variable, category=name, values=codes == code)
    else:
        yield _Predictor(variable=variable, category="1", values=features[:, variable.columns[0]])


def _merged_conditions(steps: Sequence[Condition]) -> Rule:
    """One condition per variable, equivalent to all of its steps."""
    merged: dict[str, Condition] = {}
    for step in steps:
        before = merged.get(step.variable, step)
        merged[step.variable] = Condition(
            variable=step.variable,
            low=max((x for x in (before.low, step.low) if x is not None), default=None),
            high=min((x for x in (before.high, step.high) if x is not None), default=None),
            among=tuple(name for name in before.among if name in step.among),
            without=tuple(dict.fromkeys((*before.without, *step.without))),
        )
    return tuple(merged[name] for name in sorted(merged))
