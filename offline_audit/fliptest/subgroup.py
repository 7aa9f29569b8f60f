"""A short rule that names who is in a flipset, found on one half and tested on the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.fliptest.marginals import category_codes, round_to, spread_of, told_counts
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features
from offline_audit.permutation.intervals import Interval, combined, wilson
from offline_audit.plain_words import percent
from offline_audit.presentation import TextTable, json_ready, p_words, to_html, to_text

__all__ = ["Condition", "Half", "Subgroup", "name_subgroup"]

Bools = NDArray[np.bool_]

# A longer rule is taken if for each condition more it is better by this, in share of members
# inside less share of others inside.
_MARGIN = 0.05
# Of the half that the rule is found on; smaller parts are not split off.
_SMALLEST_PART = 0.01


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What a rule does on one half of the group.

    Attributes:
        inside: People for whom the rule is true.
        outside: The others.
        flips_inside: Members of the flipset among those inside.
        flips_outside: Members among the others.
        coarse: Whether fewer than the smallest cell are told as none.
    """

    inside: int
    outside: int
    flips_inside: int
    flips_outside: int
    coarse: bool

    @property
    def share_inside(self) -> float:
        """Of those inside, that flips."""
        return self.flips_inside / max(self.inside, 1)

    @property
    def share_outside(self) -> float:
        """Of those outside, that flips."""
        return self.flips_outside / max(self.outside, 1)

    @property
    def covered(self) -> float:
        """Share of the members that the rule holds."""
        return self.flips_inside / max(self.flips_inside + self.flips_outside, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgroup:
    """A rule that names where the flips are, and whether it held on people it was not found on.

    Attributes:
        side: Which members.
        conditions: All must be true; empty if no rule was found.
        found: On the half that it was found on; None without a rule, or if too few are on both
            sides of it.
        tested: On the other half; None likewise.
        interval: Of the share of flips inside less that outside, on the other half.
        p_value: That inside no more flip than outside, on the other half (Fisher, one-sided).
        level: At which it is confirmed.
        reason: Why there is no rule; None if there is one.
        smallest_cell: Fewer people are told as none.
        seed: Of the halves.
    """

    side: Side | Literal["either"]
    conditions: tuple[Condition, ...]
    found: Half | None
    tested: Half | None
    interval: Interval | None
    p_value: float | None
    level: float
    reason: str | None
    smallest_cell: int
    seed: int

    @property
    def confirmed(self) -> bool:
        """Whether the rule holds on the other half too."""
        return self.p_value is not None and self.p_value <= self.level

    @property
    def rule(self) -> str | None:
        """The conditions in words."""
        return " and ".join(map(str, self.conditions)) or None

    def holds(self, features: Features, columns: Columns) -> Bools:
        """For whom the rule is true, `[n, d]` to bool `[n]`; for no one without a rule."""
        return _all_hold(self.conditions, features, columns) & bool(self.conditions)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        return found | {"rule": self.rule, "confirmed": self.confirmed}

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    @property
    def _title(self) -> str:
        whom = "flip either way" if self.side == "either" else f"are {self.side}"
        if self.rule is None:
            return f"No rule for those who {whom}: {self.reason}."
        sure = "" if self.confirmed else " (not confirmed)"
        return f"Those who {whom}: {self.rule}{sure}"

    @property
    def _table(self) -> TextTable | None:
        if self.found is None or self.tested is None:
            return None
        header = ("half", "inside", "flip", "outside", "flip", "members covered")
        halves = (("found on", self.found), ("tested on", self.tested))
        return TextTable(header=header, rows=tuple(_row(name, half) for name, half in halves))

    @property
    def _notes(self) -> list[str]:
        if self.interval is None:
            return []
        low, high = (100 * end for end in self.interval)
        verdict = "confirmed" if self.confirmed else "not confirmed"
        told = (
            f"On people that it was not found on, {low:+.1f} to {high:+.1f} points more flip "
            f"inside than outside: p {p_words(self.p_value)}, {verdict} at {self.level:g}."
        )
        few = any(half is not None and half.coarse for half in (self.found, self.tested))
        hidden = f"Fewer than {self.smallest_cell} people on a side of the rule are told as none."
        return [told, hidden] if few else [told]


def _row(name: str, half: Half) -> tuple[str, ...]:
    return (
        name,
        f"{half.inside:,}",
        percent(half.share_inside),
        f"{half.outside:,}",
        percent(half.share_outside),
        percent(half.covered),
    )


def name_subgroup(
    flipset: Flipset,
    side: Side | Literal["either"],
    columns: Columns,
    *,
    seed: int = 0,
    smallest_cell: int = 10,
    most_conditions: int = 3,
    level: float = 0.05,
) -> Subgroup:
    """Find a short rule for who is in the flipset, and test it on people it has not seen.

    On one half a decision tree predicts membership from people's own features. Of all rules made
    of conditions along its branches the one with the best weighted relative accuracy is taken
    (share of people inside times (share of members inside less share of members in all), which
    ranks rules as share of members inside less share of others inside does); a longer rule must
    be better by a margin. On the other half, H0: no more people flip inside than outside.

    Args:
        flipset: The people and their counterparts.
        side: Which members; `either` takes both sides together.
        columns: What the columns are.
        seed: Of the halves.
        smallest_cell: Each half needs as many members and as many others; limits are rounded, so
            that they are no one's own value.
        most_conditions: In the rule.
        level: At which the rule is confirmed.

    Raises:
        AuditInputError: Widths do not agree, or no condition is allowed.
    """
    width = flipset.features.shape[1]
    if width != len(columns):
        raise AuditInputError(f"columns: there are {len(columns)}, but features are {width} wide")
    if most_conditions < 1:
        raise AuditInputError(f"most_conditions: at least 1 is needed, not {most_conditions}")
    parts = (
        flipset.parts("advantaged") + flipset.parts("disadvantaged")
        if side == "either"
        else flipset.parts(side)
    )
    members = parts >= 0.5

    def outcome(reason: str | None, **found: Any) -> Subgroup:
        nothing = {"conditions": (), "found": None, "tested": None, "interval": None}
        return Subgroup(
            **{**nothing, "p_value": None, **found},
            side=side, level=level, reason=reason, smallest_cell=smallest_cell, seed=seed,
        )  # fmt: skip

    for who, whom in ((members, "members"), (~members, "others")):
        if who.sum() < 2 * smallest_cell:
            return outcome(f"there are fewer than {2 * smallest_cell} {whom}")
    first = _half(members, np.random.default_rng(seed))
    conditions = _best_rule(
        flipset.features[first], members[first], columns, smallest_cell, most_conditions, seed
    )
    if not conditions:
        return outcome("no feature tells them from the others")
    inside = _all_hold(conditions, flipset.features, columns)
    exact = _table(inside[~first], members[~first])
    halves = [_half_figures(_table(inside[x], members[x]), smallest_cell) for x in (first, ~first)]
    return outcome(
        None,
        conditions=conditions,
        found=halves[0],
        tested=halves[1],
        interval=_interval(halves[1], 1 - level),
        p_value=float(stats.fisher_exact(exact, alternative="greater").pvalue),
    )


def _half(members: Bools, rng: np.random.Generator) -> Bools:
    """Half of the members and half of the others, bool `[n]`."""
    chosen = np.zeros(len(members), bool)
    for who in (members, ~members):
        rows = rng.permutation(np.flatnonzero(who))
        chosen[rows[: len(rows) // 2]] = True
    return chosen


def _all_hold(conditions: Sequence[Condition], features: Features, columns: Columns) -> Bools:
    found = np.ones(len(features), bool)
    for condition in conditions:
        found &= condition.holds(features, columns)
    return found


def _table(inside: Bools, members: Bools) -> NDArray[np.int64]:
    """Members (rows: yes, no) by whether they are inside (columns: yes, no)."""
    return np.array([[int((m & i).sum()) for i in (inside, ~inside)] for m in (members, ~members)])


def _half_figures(table: NDArray[np.int64], smallest: int) -> Half | None:
    told = told_counts(table, smallest)
    if ((told > 0) & (told < smallest)).any():
        return None
    inside, outside = told.sum(0).tolist()
    return Half(
        inside=inside,
        outside=outside,
        flips_inside=int(told[0, 0]),
        flips_outside=int(told[0, 1]),
        coarse=bool((told != table).any()),
    )


def _interval(half: Half | None, level: float) -> Interval | None:
    if half is None or not half.inside or not half.outside:
        return None
    one, other = half.share_inside, half.share_outside
    ends = wilson(one, half.inside, level), wilson(other, half.outside, level)
    return combined(one, ends[0], other, ends[1])


def _best_rule(
    features: Features, members: Bools, columns: Columns, smallest: int, most: int, seed: int
) -> tuple[Condition, ...]:
    """The rule that is best on these people; empty if none is better than none."""
    rules = {
        _joined(steps)
        for branch in _branches(features, members, columns, smallest, most, seed)
        for size in range(1, len(branch) + 1)
        for steps in combinations(branch, size)
    }
    held = {each: each.holds(features, columns) for rule in rules for each in rule}
    best: tuple[Condition, ...] = ()
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
) -> Iterator[tuple[Condition, ...]]:
    """Conditions from the root of a decision tree to each of its leaves."""
    # Here, since only those who ask for a rule should wait for it.
    from sklearn.tree import DecisionTreeClassifier

    asked, answers = [], []
    for variable in columns.variables:
        if variable.kind == "category":
            codes = category_codes(features, variable)
            for name, code in zip(variable.categories, range(codes.max() + 1), strict=False):
                asked.append((variable, name, 1.0))
                answers.append(codes == code)
        else:
            values = features[:, variable.columns[0]]
            asked.append((variable, "1", spread_of(values)))
            answers.append(values)
    tree = DecisionTreeClassifier(
        max_depth=most,
        min_samples_leaf=max(smallest, int(_SMALLEST_PART * len(members))),
        class_weight="balanced",
        random_state=seed % (1 << 32),
    )
    nodes = tree.fit(np.column_stack(answers).astype(np.float32), members).tree_

    def below(node: int, steps: tuple[Condition, ...]) -> Iterator[tuple[Condition, ...]]:
        if nodes.children_left[node] < 0:
            yield steps
            return
        variable, name, spread = asked[nodes.feature[node]]
        for children, above in ((nodes.children_left, False), (nodes.children_right, True)):
            step = _condition(variable, name, spread, float(nodes.threshold[node]), above=above)
            yield from below(children[node], (*steps, step))

    return below(0, ())


def _condition(
    variable: Variable, category: str, spread: float, threshold: float, *, above: bool
) -> Condition:
    """What it means to be above a threshold of the tree, or not."""
    if variable.kind in ("binary", "category"):
        every = variable.categories or ("0", "1")
        among = tuple(name for name in every if (name == category) == above)
        without = tuple(name for name in every if name not in among)
        return Condition(variable=variable.name, among=among, without=without)
    whole = variable.kind == "integer"
    # Whole numbers above 4.5 are those from 5 on.
    limit = round_to(math.floor(threshold) + 1 if whole else threshold, spread, whole=whole)
    if above:
        return Condition(variable=variable.name, low=limit)
    return Condition(variable=variable.name, high=limit)


def _joined(steps: Sequence[Condition]) -> tuple[Condition, ...]:
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
