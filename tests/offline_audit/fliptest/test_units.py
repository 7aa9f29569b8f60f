"""People with several rows: FlipTest permutes, resamples, validates and counts them as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import AuditInputError, Columns, flip_test
from offline_audit.fliptest.flipset import DecidedRows, Flipset
from offline_audit.fliptest.resampling import rate_mismatch
from offline_audit.maps.transport_map import SQUARED_L2
from offline_audit.maps.validation import validate_map

PEOPLE = 300
RNG = np.random.default_rng(21)
GROUPS = np.repeat(["a", "b"], PEOPLE // 2)
FEATURES = RNG.normal(size=(PEOPLE, 2)) + (GROUPS == "b")[:, None] * 0.8
UNITS = np.repeat(np.arange(PEOPLE), RNG.integers(3, 6, PEOPLE))


def model(rows):
    return rows @ np.array([1.0, 0.7], np.float32) > 0.4


def flips_of(people=slice(None), units=None, **options):
    return flip_test(
        model,
        FEATURES[people],
        GROUPS[people],
        units=units,
        **{"n_resamples": 19, "n_bootstrap": 10, "explain": False, "progress": False, **options},
    )


def test_units_of_one_row_each_are_the_default():
    plain, units = flips_of(), flips_of(units=np.arange(PEOPLE))
    for one, other in zip(plain.directions, units.directions, strict=True):
        assert one.gross.value == other.gross.value
        assert one.rows == other.rows


def test_intervals_of_copies_with_units_are_as_wide_as_those_of_people():
    widths = {}
    for name, people, units in (
        ("people", slice(None), None),
        ("copies", UNITS, None),
        ("units", UNITS, UNITS),
    ):
        for refits in (0, 40):
            result = flips_of(people, units, map="gaussian", n_resamples=0, n_bootstrap=refits)
            low, high = result.directions[0].gross.interval
            widths[name, refits] = high - low
    # The standard error of a standard deviation of 40 values is 11%.
    assert widths["units", 40] == pytest.approx(widths["people", 40], rel=4 * 0.11)
    assert widths["units", 0] == pytest.approx(widths["people", 0], rel=0.15)
    for refits in (0, 40):
        assert widths["copies", refits] < 0.7 * widths["units", refits]


def test_a_group_of_few_people_is_not_tested_however_many_rows_it_has():
    few = np.concatenate([np.arange(40), np.arange(PEOPLE // 2, PEOPLE)])
    units = np.repeat(few, 5)
    result = flips_of(units, units)
    assert result.directions[0].reason.startswith("a has 40 units; at least 100 are required")


def test_a_person_in_two_groups_is_an_error():
    units = np.arange(PEOPLE)
    units[-1] = 0
    with pytest.raises(AuditInputError, match=r"units: 1 unit with rows in more than one group"):
        flips_of(units=units)


@pytest.mark.parametrize("units", [np.arange(3), [None] * PEOPLE])
def test_invalid_units_are_rejected(units):
    with pytest.raises(AuditInputError, match="units"):
        flips_of(units=units)


def test_units_of_a_frame_may_be_one_of_its_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(FEATURES[UNITS], columns=["x", "y"])
    result = flip_test(
        lambda rows: model(rows.to_numpy(np.float32)),
        frame,
        GROUPS[UNITS],
        units=pd.Series([f"person {unit}" for unit in UNITS]),
        n_resamples=0,
        n_bootstrap=0,
        explain=False,
        progress=False,
    )
    assert result.directions[0].rows[0] == int((GROUPS[UNITS] == "a").sum())


def test_features_are_explained_by_one_row_of_each_person():
    """No figure may describe fewer than ten people, however many rows they have."""
    flipset = Flipset(
        features=FEATURES[UNITS].astype(np.float32),
        counterparts=FEATURES[None, UNITS].astype(np.float32),
        decisions=model(FEATURES[UNITS]),
        counterpart_decisions=model(FEATURES[UNITS])[None],
        units=UNITS,
    )
    people = flipset.one_per_unit(0)
    assert len(people) == PEOPLE
    assert people.units is None
    np.testing.assert_array_equal(people.features, FEATURES.astype(np.float32))
    result = flips_of(UNITS, UNITS, explain=True, n_resamples=0)
    for direction in result.directions:
        assert {report.group for report in direction.transparency.values()} == {PEOPLE // 2}
        described = direction.marginals["advantaged"]
        assert described.members + described.others == PEOPLE // 2


def test_shares_of_few_people_are_withheld():
    rows = np.zeros((200, 1), np.float32)
    decisions = np.arange(200) < 50
    decided = DecidedRows(features=rows, decisions=decisions, units=np.arange(200) // 10)
    assert decided.n_units() == 20
    assert decided.n_units(decisions) == 5


class Identity:
    """A map that moves no row."""

    splits = False

    def transport(self, features, n_counterparts=1):
        return features[None]


def test_copies_do_not_make_a_map_fail_validation():
    """Eight copies of each row hide most of the noise from a check of rows."""
    columns, rng = Columns.numeric(["x", "y"]), np.random.default_rng(5)
    units = np.repeat(np.arange(60), 8)
    failures = {True: 0, False: 0}
    for seed in range(8):
        source, target = rng.normal(size=(2, 60, 2)).astype(np.float32)[:, units]
        for known in failures:
            result = validate_map(
                Identity(),
                source,
                target,
                columns,
                SQUARED_L2,
                seed=seed,
                units=(units, units + 60) if known else (None, None),
            )
            failures[known] += not result.passed
    assert failures[False] >= 6
    assert failures[True] <= 1


def test_the_rate_check_allows_for_the_noise_of_people():
    decisions = np.repeat(np.arange(40) < 20, 25)
    rates = np.repeat(np.arange(40) < 26, 25)
    rows = np.zeros((1_000, 1), np.float32)
    for units, fails in ((None, True), (np.repeat(np.arange(40), 25), False)):
        flipset = Flipset(
            features=rows,
            counterparts=rows[None],
            decisions=decisions,
            counterpart_decisions=rates[None],
            units=units,
        )
        target = DecidedRows(
            features=rows, decisions=decisions, units=None if units is None else units + 40
        )
        assert (rate_mismatch(flipset, target) is not None) == fails
