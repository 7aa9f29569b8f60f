"""Every share that is shown is the share of raw rows, in text, HTML, data and figures alike."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.fliptest.figures import draw_marginals
from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.marginals import flipset_marginals
from offline_audit.fliptest.subgroup import _half, name_subgroup
from offline_audit.fliptest.transparency import transparency_report

TOWNS = ("north", "south", "village", "harbour", "hills")
COLUMNS = Columns(
    features=(
        Feature(name="owns", kind="binary"),
        Feature(name="dependants", kind="integer"),
        *(Feature(name=f"town={name}", kind="onehot") for name in TOWNS[:4]),
        Feature(name="phone=A191", kind="onehot"),
        Feature(name="phone=A192", kind="onehot"),
    ),
    one_hot_groups=(
        OneHotGroup(
            name="town", features=tuple(f"town={name}" for name in TOWNS[:4]), dropped=TOWNS[4]
        ),
        OneHotGroup(name="phone", features=("phone=A191", "phone=A192")),
    ),
)
SMALLEST = 10


def rows_of(owns, dependants, town, phone):
    towns = np.asarray(town)[:, None] == np.arange(4)
    phones = np.asarray(phone)[:, None] == np.arange(2)
    return np.column_stack([owns, dependants, towns, phones]).astype(np.float32)


def flipset_of(features, members, counterparts=None):
    return Flipset(
        features=features,
        counterparts=features[None] if counterparts is None else counterparts,
        decisions=np.ones(len(features), bool),
        counterpart_decisions=~members[None],
    )


def draw_flipset(seed):
    """Rows with rare values and with members who differ, so that cells of all sizes occur."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 900))
    members = rng.random(n) < rng.uniform(0.03, 0.6)

    def draw_rows():
        rare = rng.dirichlet(np.full(5, 0.5), 2)
        town = np.where(members, rng.choice(5, n, p=rare[0]), rng.choice(5, n, p=rare[1]))
        owns, phone = (rng.random(n) < np.where(members, *rng.uniform(0, 0.4, 2)) for _ in range(2))
        dependants = (rng.random(n) < rng.uniform(0, 0.3)) * rng.integers(1, rng.integers(2, 5))
        return rows_of(owns, dependants, town, phone)

    return flipset_of(draw_rows(), members, draw_rows()[None])


def values_of(features):
    """Value of each row by variable, as text."""
    phone = np.where(features[:, 6] == 1, "A191", "A192")
    town = np.where(features[:, 2:6].any(1), features[:, 2:6].argmax(1), 4)
    return {
        "owns": np.where(features[:, 0] == 1, "1", "0"),
        "town": np.array(TOWNS)[town],
        "phone": phone,
    }


def raw_shares(values, rows, names):
    """Share of rows by name; `the rest` has the values that no name lists."""
    return {
        name: float(np.mean(~np.isin(values[rows], names) if name == "the rest" else
                            values[rows] == name))
        for name in names
    }  # fmt: skip


def printed_shares(text, variable):
    """Shares of members and others by category, as a note prints them."""
    note = re.search(rf"{variable}, members \(others\): ([^;]*?%\))\.", text)
    if note is None:
        return {}
    parts = re.findall(r"([^,]+?) ([\d.]+)% \(([\d.]+)%\)", note[1])
    return {name.strip(): (float(a) / 100, float(b) / 100) for name, a, b in parts}


def binary_cells(text):
    """Shares of 1 among members and others, in the table."""
    row = re.search(r"owns\s+([\d.]+)%\s+([\d.]+)%", text)
    return None if row is None else (float(row[1]) / 100, float(row[2]) / 100)


def check_marginals(flipset):
    """Compare everything that marginals show with raw rows; return the variables with figures."""
    inside = flipset.members("advantaged")
    marginals: Any = flipset_marginals(flipset, "advantaged", COLUMNS, smallest_cell=SMALLEST)
    values = values_of(flipset.features)
    text = " ".join(str(marginals).split())
    plain = html.unescape(re.sub(r"<[^>]+>", " ", marginals._repr_html_()))
    shown = set()
    for variable in json.loads(json.dumps(marginals.to_dict()))["variables"]:
        name = variable["name"]
        if variable["reason"] is not None:
            check_suppressed(variable)
            for printed in (text, plain):
                assert name in printed.split("Suppressed", 1)[1]
                assert not printed_shares(printed, name)
            continue
        shown.add(name)
        if name == "dependants":
            numbers = flipset.features[:, 1].astype(float)
            means = numbers[inside].mean(), numbers[~inside].mean()
            assert (variable["members"], variable["others"]) == pytest.approx(means)
        else:
            expected = check_counts(variable, values[name], inside)
            for printed in (text, plain):
                check_printed(printed, variable, *expected)
    check_figure(marginals, values, inside)
    return shown


def check_suppressed(variable):
    figures = ("members", "others", "difference", "interval", "p_value", "adjusted_p_value", "test")
    assert {variable[figure] for figure in figures} == {None}
    assert variable["bins"] == []
    assert f"{SMALLEST} members or others" in variable["reason"]


def check_counts(variable, values, inside):
    """Compare counts with raw rows; return the raw shares of members and of others by name."""
    names = [b["name"] for b in variable["bins"]]
    expected = [raw_shares(values, rows, names) for rows in (inside, ~inside)]
    for role, rows, shares in zip(("members", "others"), (inside, ~inside), expected, strict=True):
        counts = [b[role] for b in variable["bins"]]
        assert sum(counts) == rows.sum()
        assert all(count == 0 or count >= SMALLEST for count in counts)
        assert [count / rows.sum() for count in counts] == pytest.approx(list(shares.values()))
    return expected


def check_printed(text, variable, members, others):
    if variable["kind"] == "binary":
        assert (variable["members"], variable["others"]) == pytest.approx(
            (members["1"], others["1"])
        )
        assert binary_cells(text) == pytest.approx((members["1"], others["1"]), abs=0.00051)
        return
    printed = printed_shares(text, variable["name"])
    assert printed.keys() == members.keys()
    for category, pair in printed.items():
        assert pair == pytest.approx((members[category], others[category]), abs=0.00051)


def check_figure(marginals, values, inside):
    figure: Any = draw_marginals(marginals, "women → men")
    panels = {axes.get_title().split("\n")[0]: axes for axes in figure.axes if axes.patches}
    assert set(panels) == {m.name for m in marginals.variables if len(m.bins) > 1}
    for name, axes in panels.items():
        if name == "dependants":
            continue
        names = [label.get_text() for label in axes.get_xticklabels()]
        everyone = np.ones(len(inside), bool)
        expected = [raw_shares(values[name], rows, names) for rows in (everyone, inside)]
        heights = [bar.get_height() / 100 for bar in axes.patches]
        assert heights == pytest.approx([shares[n] for shares in expected for n in names])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_share_of_the_marginals_is_that_of_raw_rows(seed):
    check_marginals(draw_flipset(seed))


def test_the_random_data_show_and_suppress_every_kind():
    """The test above would be empty if all variables were shown, or none."""
    shown = [check_marginals(draw_flipset(seed)) for seed in range(40)]
    for name in ("owns", "town", "phone", "dependants"):
        assert 3 < sum(name in names for names in shown) < 37


def test_equal_shares_are_not_shown_as_different():
    """65 against 65%: seven of twenty members have the other value."""
    members = np.arange(300) < 20
    phone = np.where(members, np.arange(300) >= 13, np.arange(300) % 20 >= 13)
    rng = np.random.default_rng(0)
    features = rows_of(rng.random(300) < 0.5, np.zeros(300), rng.integers(0, 2, 300), phone)
    flipset = flipset_of(features, members)
    marginals: Any = flipset_marginals(flipset, "advantaged", COLUMNS)
    variable = marginals.of("phone")
    assert variable.reason == "fewer than 10 members or others have one of its values"
    assert (variable.bins, variable.p_value, variable.interval) == ((), None, None)
    assert "100.0%" not in str(marginals)
    assert "Suppressed, as fewer than 10 members or others have one of its values: " in str(
        marginals
    )
    check_marginals(flipset)


def test_the_mean_of_a_number_does_not_reveal_the_few_who_differ():
    members = np.arange(400) < 60
    for values, shown in (
        (np.arange(400) < 4, False),
        (np.where(np.arange(400) < 4, 3, 0), False),
        ((np.arange(400) % 3 == 0), True),
        (np.arange(400), True),
        (np.zeros(400), True),
    ):
        features = rows_of(np.zeros(400), values, np.zeros(400), np.zeros(400))
        marginals: Any = flipset_marginals(flipset_of(features, members), "advantaged", COLUMNS)
        variable = marginals.of("dependants")
        assert (variable.members is not None) == shown
        assert (variable.reason is None) == shown


def check_subgroup(flipset, seed):
    members = flipset.members("advantaged")
    subgroup: Any = name_subgroup(flipset, "advantaged", COLUMNS, smallest_cell=SMALLEST, seed=seed)
    if subgroup.rule is None:
        return None
    holds = subgroup.holds(flipset.features, COLUMNS)
    first = _half(members, np.random.default_rng(seed))
    tables = [
        np.array([[np.sum(half & m & h) for h in (holds, ~holds)] for m in (members, ~members)])
        for half in (first, ~first)
    ]
    small = any(((table > 0) & (table < SMALLEST)).any() for table in tables)
    text = " ".join(str(subgroup).split())
    plain = html.unescape(re.sub(r"<[^>]+>", " ", subgroup._repr_html_()))
    pattern = r"{} on\s+([\d,]+)\s+([\d.]+)%\s+([\d,]+)\s+([\d.]+)%\s+([\d.]+)%"
    for name, table in zip(("fitted", "tested"), tables, strict=True):
        assert (getattr(subgroup, name) is None) == small
        for printed in (text, plain):
            row = re.search(pattern.format(name), printed)
            assert (row is None) == small
            if row is None:
                assert re.search(r"Counts are suppressed, as there are fewer than 10", printed)
                continue
            inside, flip, outside, other, covered = (
                float(x.replace(",", "")) for x in row.groups()
            )
            assert (inside, outside) == tuple(table.sum(0))
            rates = 100 * table[0] / table.sum(0)
            assert (flip, other) == pytest.approx(tuple(rates), abs=0.051)
            assert covered == pytest.approx(100 * table[0, 0] / table[0].sum(), abs=0.051)
    return not small


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_share_of_a_rule_is_that_of_raw_rows(seed):
    check_subgroup(draw_flipset(seed), seed % 100)


def test_random_rules_are_shown_and_suppressed():
    shown = [check_subgroup(draw_flipset(seed), seed) for seed in range(60)]
    assert min(shown.count(True), shown.count(False)) >= 3


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_shifts_of_categories_are_those_of_raw_rows_and_hide_rare_ones(seed):
    flipset = draw_flipset(seed)
    report: Any = transparency_report(
        flipset, "advantaged", COLUMNS, np.ones(8), None, smallest_cell=SMALLEST
    )
    if report.reason is not None:
        return
    members = flipset.members("advantaged")
    own, other = (
        values_of(x[members])["town"] for x in (flipset.features, flipset.counterparts[0])
    )
    shifts = {shift.name: shift.difference for shift in report.of("town").shifts}
    named = set(shifts) - {"the rest"}
    rare = [t for t in TOWNS if 0 < np.sum((own == t) | (other == t)) < SMALLEST]
    assert not named & set(rare)
    for name in named:
        assert shifts[name] == pytest.approx(np.mean(own == name) - np.mean(other == name))
    hidden = {t for t in TOWNS if t not in named and np.any((own == t) | (other == t))}
    if shifts and hidden:
        # A single hidden category would follow from the others: all differences add up to 0.
        assert len(hidden) >= 2
        rest = [np.mean(np.isin(x, list(hidden))) for x in (own, other)]
        assert shifts["the rest"] == pytest.approx(rest[0] - rest[1])
        largest = max(shifts.values(), key=abs)
        assert abs(report.of("town").consistency) == pytest.approx(abs(largest))
