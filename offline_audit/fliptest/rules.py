"""Rules made of conditions, and the one that best separates members from others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.fliptest.disclosure import round_to, spread_of
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features

__all__ = ["Condition", "all_hold", "best_rule"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One variable within limits, or in some of its categories.

    Attributes:
        variable: Its name.
        low: It is at least this; None without a limit.
        high: It is below this; None without a limit.
        among: Categories that it may have, "0" or "1" of a binary; empty for a number.
        without: The other categories.
    """

    variable: str
    low: float | None = None
    high: float | None = None
    among: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def holds(self, features: Features, columns: Columns) -> Bools:
        """For whom it is true, `[n, d]` to bool `[n]`."""
        variable = next(each for each in columns.variables if each.name == self.variable)
        values = features[:, variable.columns[0]]
        if variable.kind == "category":
            allowed = np.array([name in self.among for name in variable.categories])
            return allowed[category_codes(features, variable)]
        if variable.kind == "binary":
            return np.asarray((values == 1) == ("1" in self.among))
        found = np.ones(len(features), bool)
        if self.low is not None:
            found &= values >= self.low
        if self.high is not None:
            found &= values < self.high
        return found

    def __str__(self) -> str:
        if {*self.among, *self.without} == {"0", "1"}:
            return f"{self.variable} = {self.among[0]}"
        if self.among and len(self.among) <= len(self.without):
            return f"{self.variable} is {' or '.join(self.among)}"
        if self.among:
            return f"{self.variable} is not {' or '.join(self.without)}"
        if self.low is not None and self.high is not None:
            return f"{self.low:,.12g} ≤ {self.variable} < {self.high:,.12g}"
        limit = f"< {self.high:,.12g}" if self.low is None else f"≥ {self.low:,.12g}"
        return f"{self.variable} {limit}"


def all_hold(conditions: Sequence[Condition], features: Features, columns: Columns) -> Bools:
    """For whom all are true, `[n, d]` to bool `[n]`; for everyone if there are none."""
    found = np.ones(len(features), bool)
    for condition in conditions:
        found &= condition.holds(features, columns)
    return found


Rule = tuple[Condition, ...]

# A longer rule is taken if for each condition more it is better by this, in share of members
# inside less share of others inside.
_MARGIN = 0.05
# Of the people that the rule is found on; smaller parts are not split off.
_SMALLEST_PART = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What the tree may ask of people.

    Attributes:
        variable: About which variable.
        category: Which of its categories, "1" of a binary; not read for a number.
        answers: Everyone's value, or whether it is this category, `[n]`.
    """

    variable: Variable
    category: str
    answers: NDArray[Any]

    def condition(self, threshold: float, *, above: bool) -> Condition:
        """What it means to be above a threshold of the tree, or not."""
        name = self.variable.name
        if self.variable.kind in ("binary", "category"):
            every = self.variable.categories or ("0", "1")
            among = tuple(each for each in every if (each == self.category) == above)
            without = tuple(each for each in every if each not in among)
            return Condition(variable=name, among=among, without=without)
        whole = self.variable.kind == "integer"
        # Whole numbers above 4.5 are those from 5 on.
        limit = math.floor(threshold) + 1 if whole else threshold
        limit = round_to(limit, spread_of(self.answers), whole=whole)
        return (
            Condition(variable=name, low=limit) if above else Condition(variable=name, high=limit)
        )


def best_rule(
    features: Features, members: Bools, columns: Columns, *, smallest: int, most: int, seed: int
) -> Rule:
    """The rule that is best on these people; empty if none is better than none.

    Args:
        features: The people, `[n, d]`.
        members: Who is to be named, bool `[n]`.
        columns: What the columns are.
        smallest: So many people at least are inside, and outside.
        most: Conditions.
        seed: Of ties between splits of the tree.
    """
    rules = {
        _joined(steps)
        for branch in _branches(features, members, columns, smallest, most, seed)
        for size in range(1, len(branch) + 1)
        for steps in combinations(branch, size)
    }
    held = {each: each.holds(features, columns) for rule in rules for each in rule}
    best: Rule = ()
    gain = 0.0
    # Shorter ones first; in the order of their words, so that ties do not hang on a set's order.
    for rule in sorted(rules, key=lambda rule: (len(rule), [str(each) for each in rule])):
        inside = np.logical_and.reduce([held[condition] for condition in rule])
        found = float(inside[members].mean() - inside[~members].mean())
        longer = len(rule) - max(len(best), 1)
        if found > gain + _MARGIN * longer and min(inside.sum(), (~inside).sum()) >= smallest:
            best, gain = rule, found
    return best


def _branches(
    features: Features, members: Bools, columns: Columns, smallest: int, most: int, seed: int
) -> Iterator[Rule]:
    """Conditions from the root of a decision tree to each of its leaves."""
    # Here, since only those who ask for a rule should wait for it.
    from sklearn.tree import DecisionTreeClassifier

    asked = [each for variable in columns.variables for each in _questions(features, variable)]
    tree = DecisionTreeClassifier(
        max_depth=most,
        min_samples_leaf=max(smallest, int(_SMALLEST_PART * len(members))),
        class_weight="balanced",
        random_state=seed % (1 << 32),
    )
    answers = np.column_stack([each.answers for each in asked]).astype(np.float32)
    nodes = tree.fit(answers, members).tree_

    def below(node: int, steps: Rule) -> Iterator[Rule]:
        if nodes.children_left[node] < 0:
            yield steps
            return
        question, threshold = asked[nodes.feature[node]], float(nodes.threshold[node])
        for children, above in ((nodes.children_left, False), (nodes.children_right, True)):
            step = question.condition(threshold, above=above)
            yield from below(children[node], (*steps, step))

    return below(0, ())


def _questions(features: Features, variable: Variable) -> Iterator[_Question]:
    if variable.kind == "category":
        codes = category_codes(features, variable)
        # Of the last ones, which no one has, there is nothing to ask.
        for code, name in enumerate(variable.categories[: codes.max() + 1]):
            yield _Question(variable=variable, category=name, answers=codes == code)
    else:
        values = features[:, variable.columns[0]]
        yield _Question(variable=variable, category="1", answers=values)


def _joined(steps: Sequence[Condition]) -> Rule:
    """One condition for each variable, that says what all of its steps say."""
    found: dict[str, Condition] = {}
    for step in steps:
        before = found.get(step.variable, step)
        found[step.variable] = Condition(
            variable=step.variable,
            low=max((x for x in (before.low, step.low) if x is not None), default=None),
            high=min((x for x in (before.high, step.high) if x is not None), default=None),
            among=tuple(name for name in before.among if name in step.among),
            without=tuple(dict.fromkeys((*before.without, *step.without))),
        )
    return tuple(found[name] for name in sorted(found))
