"""The transparency report follows the paper's definitions."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from monitor import Feature, OneHotGroup, World, decide, train_subgroup_biased
from offline_audit import AuditInputError, Columns
from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.transparency import transparency_report
from offline_audit.maps.columns import Scaling
from tests.offline_audit.fliptest.synthetic_flips import (
    COLUMNS,
    SCALE,
    draw_flipset,
    model,
    report_of,
    rows_of,
)

SECTORS = ("care", "trades", "office")
COLUMN_INDICES = {
    "income": [0],
    "years": [3],
    "part_time": [4],
    "sector": [1, 2, 5],
    "town": [6, 7],
    "fixed": [8],
}


def sector_of(row):
    return int(np.argmax(row[COLUMN_INDICES["sector"]]))


def flips_one_by_one(flipset, side):
    """Yield the row, its counterpart and the decision of the row, for every flip."""
    for others in flipset.counterparts:
        for own, other in zip(flipset.features, others, strict=True):
            before, after = model(own[None])[0], model(other[None])[0]
            if (before, after) == ((1, 0) if side == "advantaged" else (0, 1)):
                yield own, other, before


def undone_by(own, other, before):
    """Names of the variables that alone undo a flip."""
    names = []
    for name, indices in COLUMN_INDICES.items():
        restored = other.copy()
        restored[indices] = own[indices]
        if model(restored[None])[0] == before:
            names.append(name)
    return names


@pytest.mark.parametrize("side", ["advantaged", "disadvantaged"])
@pytest.mark.parametrize("draws", [1, 5])
def test_figures_match_a_loop_over_all_flips(draws, side):
    flipset = draw_flipset(400, draws, shift=0.2)
    report = report_of(flipset, side, smallest_cell=2)
    part, weight, undone_by_none = 1 / draws, 0.0, 0.0
    sums: Counter[str] = Counter()
    changes: Counter[tuple[str, str]] = Counter()
    for own, other, before in flips_one_by_one(flipset, side):
        weight += part
        for name in ("income", "years", "part_time"):
            difference = float(own[COLUMN_INDICES[name][0]]) - float(other[COLUMN_INDICES[name][0]])
            sums[f"{name} mean"] += part * difference
            sums[f"{name} sign"] += part * np.sign(difference)
            sums[f"{name} changed"] += part * (difference != 0)
        names = undone_by(own, other, before)
        sums.update({f"{name} undone": part for name in names})
        undone_by_none += part * (not names)
        own_sector, other_sector = SECTORS[sector_of(own)], SECTORS[sector_of(other)]
        sums[own_sector] += part
        sums[other_sector] -= part
        changes[own_sector, other_sector] += part * (own_sector != other_sector)
    assert report.share == pytest.approx(weight / 400)
    assert report.undone_by_none == pytest.approx(undone_by_none / weight)
    for name, scale in (("income", 2.0), ("years", 3.0), ("part_time", 0.5)):
        feature = report.of(name)
        assert feature.difference == pytest.approx(sums[f"{name} mean"] / weight, abs=1e-6)
        assert feature.magnitude == pytest.approx(feature.difference / scale)
        assert feature.consistency == pytest.approx(sums[f"{name} sign"] / weight)
        assert feature.changed == pytest.approx(sums[f"{name} changed"] / weight)
    for name in ("income", "years", "part_time", "sector", "town", "fixed"):
        assert report.of(name).undone == pytest.approx(sums[f"{name} undone"] / weight)
    sector = report.of("sector")
    expected = {name: sums[name] / weight for name in SECTORS}
    assert {s.name: s.difference for s in sector.shifts} == pytest.approx(expected)
    assert sector.magnitude == pytest.approx(np.linalg.norm(list(expected.values())) / 0.8)
    assert abs(sector.consistency) == pytest.approx(max(map(abs, expected.values())))
    (pair, frequency), *_ = changes.most_common(1)
    assert (sector.commonest, sector.commonest_share) == (pair, pytest.approx(frequency / weight))


def test_a_dropped_category_is_one_of_the_categories():
    own = rows_of(np.full(40, 3.0), np.zeros(40), np.ones(40), np.zeros(40), np.full(40, 2))
    other = rows_of(np.full(40, -3.0), np.zeros(40), np.ones(40), np.zeros(40), np.zeros(40))
    flipset = Flipset(
        features=own,
        counterparts=other[None],
        decisions=np.ones(40, bool),
        counterpart_decisions=np.zeros((1, 40), bool),
    )
    town = report_of(flipset).of("town")
    assert town.commonest == ("village", "north")
    assert town.commonest_share == 1.0
    shifts = {shift.name: shift.difference for shift in town.shifts}
    # No row that flips is in the south, so it is not reported.
    assert shifts == {"village": 1.0, "north": -1.0}


@pytest.mark.parametrize("dropped", [False, True])
def test_a_category_of_two_has_the_magnitude_and_consistency_of_a_binary(dropped):
    rng = np.random.default_rng(3)
    own, other = rng.random(300) < 0.7, rng.random((2, 300)) < 0.3
    width = 1 if dropped else 2
    names = ("b=1", "b=0")[:width]
    columns = Columns(
        features=(
            Feature(name="a", kind="binary"),
            *(Feature(name=name, kind="onehot") for name in names),
        ),
        one_hot_groups=(OneHotGroup(name="b", features=names, dropped="0" if dropped else None),),
    )

    def encoded(flag):
        return np.stack([flag, flag, ~flag], -1)[..., : 1 + width].astype(np.float32)

    flipset = Flipset(
        features=encoded(own),
        counterparts=encoded(other),
        decisions=np.ones(300, bool),
        counterpart_decisions=rng.random((2, 300)) < 0.5,
    )
    scale = Scaling.of(flipset.features, flipset.counterparts[0], columns).scale
    report: Any = transparency_report(flipset, "advantaged", columns, scale, None)
    binary, category = report.of("a"), report.of("b")
    assert category.magnitude == pytest.approx(abs(binary.magnitude))
    assert category.magnitude_interval == pytest.approx(binary.magnitude_interval)
    assert abs(category.consistency) == pytest.approx(abs(binary.consistency))
    assert category.changed == pytest.approx(binary.changed)


def test_few_people_are_suppressed_and_zero_is_reported():
    flipset = draw_flipset(400, 3)
    people = int(flipset.flips("advantaged").any(0).sum())
    report = report_of(flipset, smallest_cell=people + 1)
    assert (report.people, report.members, report.share, report.asked) == (None, None, None, 0)
    assert report.features == report.by_undoing == report.by_magnitude == ()
    assert report.reason == f"fewer than {people + 1} people with advantaged flips"
    assert str(people) not in str(report).replace(str(people + 1), "")
    assert report_of(flipset, smallest_cell=people).features
    unchanged = Flipset(
        features=flipset.features,
        counterparts=flipset.features[None],
        decisions=flipset.decisions,
        counterpart_decisions=flipset.decisions[None],
    )
    no_flips = report_of(unchanged)
    assert (no_flips.people, no_flips.members, no_flips.share) == (0, 0, 0.0)
    assert "no advantaged flips" in str(no_flips)
    empty = Flipset(
        features=flipset.features[:0],
        counterparts=flipset.counterparts[:, :0],
        decisions=flipset.decisions[:0],
        counterpart_decisions=flipset.counterpart_decisions[:, :0],
    )
    assert report_of(empty).reason == "no advantaged flips"


def test_changes_of_few_people_are_not_named():
    flipset = draw_flipset(150, 1, seed=5)
    report = report_of(flipset, smallest_cell=10)
    town = report.of("town")
    assert town.changed > 0
    assert (town.commonest, town.commonest_share) == (None, None)
    assert report_of(flipset, smallest_cell=1).of("town").commonest is not None


def test_a_scale_of_zero_is_not_a_divisor():
    report: Any = transparency_report(draw_flipset(400, 1), "advantaged", COLUMNS, 0 * SCALE, None)
    assert report.of("income").magnitude == report.of("income").difference


def test_rankings_follow_their_figures():
    report = report_of(draw_flipset(2_000, 2))
    for ranking, figure in (
        (report.by_magnitude, [abs(feature.magnitude) for feature in report.by_magnitude]),
        (report.by_consistency, [abs(feature.consistency) for feature in report.by_consistency]),
        (report.by_undoing, [feature.undone for feature in report.by_undoing]),
    ):
        assert len(ranking) == 6
        assert figure == sorted(figure, reverse=True)
    assert report.features == report.by_undoing
    assert report.by_undoing[0].name == "income"
    without = report_of(draw_flipset(2_000, 2), decide=None)
    assert without.features == without.by_magnitude
    assert without.by_undoing == ()
    assert "undone" not in str(without).lower()


def test_a_report_prints_in_a_terminal_and_a_notebook_and_becomes_json():
    long_names = Columns(
        features=(
            COLUMNS.features[0].model_copy(update={"name": "<b>" + "long " * 20}),
            *COLUMNS.features[1:],
        ),
        one_hot_groups=COLUMNS.one_hot_groups,
    )
    flipset = draw_flipset(2_000, 3)
    flipset.features[:, 0] *= 1e5
    flipset.counterparts[:, :, 0] *= 1e5
    report = transparency_report(flipset, "advantaged", long_names, SCALE * [1e5, *[1] * 8], model)
    printed = str(report)
    assert max(map(len, printed.splitlines())) <= 100
    assert "have the favourable decision, but their counterparts do" in " ".join(printed.split())
    assert "for at least half of their counterparts" in printed
    assert "Most frequent change: " in " ".join(printed.split())
    assert "<b>" not in report._repr_html_()
    data = json.loads(json.dumps(report.to_dict()))
    assert data["by_undoing"][0] == report.by_undoing[0].name
    assert data["features"][0]["undone"] == report.features[0].undone


def test_different_widths_are_rejected():
    with pytest.raises(
        AuditInputError, match="9 columns are described, but features have 9 columns and scale"
    ):
        transparency_report(draw_flipset(50, 1), "advantaged", COLUMNS, SCALE[:3], None)


@pytest.mark.parametrize(("origin", "target"), [("woman", "man"), ("man", "woman")])
def test_career_gaps_undo_flips_where_the_model_is_biased_by_them(origin, target):
    """The subgroup-biased classifier depends on sex only through career gaps."""
    world = World()
    columns = Columns(features=world.features, one_hot_groups=world.one_hot_groups)
    classifier = train_subgroup_biased(world.people(20_000, seed=1), seed=0)
    people = world.people(16_000, seed=2)
    rows = people.groups["sex"] == world.attributes[0].groups.index(origin)
    own, twins = people.features[rows], people.counterfactual("sex", target)[rows]
    flipset = Flipset(
        features=own,
        counterparts=twins[None],
        decisions=decide(classifier, own),
        counterpart_decisions=decide(classifier, twins)[None],
    )
    scale = Scaling.of(own, people.features[~rows], columns).scale
    for side in ("advantaged", "disadvantaged"):
        report: Any = transparency_report(
            flipset, side, columns, scale, lambda x: decide(classifier, x).astype(np.int8)
        )
        assert report.people > 50
        assert report.by_undoing[0].name == report.by_consistency[0].name == "career_gap_months"
        assert report.by_undoing[0].undone == 1.0
        assert report.by_undoing[1].undone == 0.0
        assert report.undone_by_none == 0.0


def test_a_category_of_few_people_is_not_named():
    n = 60
    town = np.zeros(n)
    town[:3] = 1
    own = rows_of(np.full(n, 3.0), np.zeros(n), np.ones(n), np.zeros(n), town)
    other = rows_of(np.full(n, -3.0), np.zeros(n), np.ones(n), np.zeros(n), np.full(n, 2))
    flipset = Flipset(
        features=own,
        counterparts=other[None],
        decisions=np.ones(n, bool),
        counterpart_decisions=np.zeros((1, n), bool),
    )
    shifts = {s.name: s.difference for s in report_of(flipset).of("town").shifts}
    # The shift of north would reveal that of south: all shifts add up to 0.
    assert shifts == {"village": -1.0, "the rest": 1.0}
    unsuppressed = report_of(flipset, smallest_cell=1).of("town")
    assert {shift.name for shift in unsuppressed.shifts} == {"north", "south", "village"}
