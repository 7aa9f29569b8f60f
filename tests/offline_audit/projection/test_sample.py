"""Invalid arrays and options are rejected with an error that names the argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from offline_audit import AuditInputError
from tests.offline_audit.projection.projected import projected

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 400
DECISIONS = RNG.integers(0, 2, N)
DISTANCES = RNG.exponential(size=N)
GROUPS = RNG.choice(["a", "b"], N)
LABELS = RNG.integers(0, 2, N)


def changed(values, row, value):
    result = np.array(values, dtype=object if isinstance(value, str) or value is None else float)
    result[row] = value
    return result


INVALID: dict[str, dict[str, Any]] = {
    "decisions: 1 value neither 0 nor 1, the first in row 7": {
        "decisions": changed(DECISIONS, 7, 2)
    },
    "decisions: not all values are numbers": {"decisions": changed(DECISIONS, 7, "yes")},
    "decisions: one value per row": {"decisions": DECISIONS[:, None]},
    "arrays have no rows": {"decisions": [], "distances": [], "groups": []},
    "different lengths: decisions 400, distances 399": {"distances": DISTANCES[1:]},
    "distances: 1 value is NaN, the first in row 3": {"distances": changed(DISTANCES, 3, math.nan)},
    "distances: 1 value is negative, the first in row 3": {
        "distances": changed(DISTANCES, 3, -1.0)
    },
    "labels: 1 value neither 0 nor 1": {
        "labels": changed(LABELS, 5, 3),
        "criterion": "equal_opportunity",
    },
    "labels: required by the criterion equal_opportunity": {"criterion": "equal_opportunity"},
    "criterion: unknown criterion 'parity'; use one of statistical_parity": {"criterion": "parity"},
    "law: unknown law 'wald'; use one of": {"law": "wald"},
    "tolerance: must be at least 0 and below 1, not -0.1": {"tolerance": -0.1},
    "alpha: must be a number between 0 and 1, not 1": {"alpha": 1.0},
    "bandwidth: must be positive, not -1": {"law": "kernel", "bandwidth": -1.0},
    "groups: at least one protected attribute": {"groups": {}},
    "different lengths: .* groups of group 399": {"groups": GROUPS[1:]},
    r"'A ' and 'a' differ only in case or spaces": {"groups": changed(GROUPS, 9, "A ")},
    r"unexpected group 'c'; expected: a, b": {
        "groups": changed(GROUPS, 9, "c"),
        "expected_groups": ["a", "b"],
    },
    "2,000 distinct values": {
        "groups": RNG.random(2_000),
        "decisions": RNG.integers(0, 2, 2_000),
        "distances": RNG.random(2_000),
    },
    "favoured: group has no group 'z'; there are a, b": {"favoured": "z"},
    "favoured: there is no attribute sex": {"favoured": {"sex": "a"}},
    "favoured: there are several attributes": {
        "groups": {"x": GROUPS, "y": GROUPS},
        "favoured": "a",
    },
    "units: 1 row without a unit, the first is row 4": {"units": changed(np.arange(N), 4, None)},
    "units: 2 units with rows in more than one group of group": {
        "units": np.repeat(np.arange(N // 2), 2),
        "groups": np.array(["a", "b", "b", "a"] + ["a"] * (N - 4)),
    },
    "distances: 1 value is above 1e\\+100, the first in row 3": {
        "distances": changed(DISTANCES, 3, 1e307)
    },
    "tolerance: not all values are numbers": {"tolerance": "x"},
    "alpha: must be a number between 0 and 1, not .x": {"alpha": "x"},
    "alpha: must be a number between 0 and 1, not .0": {"alpha": [0.1, 0.2]},
    "smallest_expected: must be one finite number": {"smallest_expected": math.nan},
    "smallest_cell: must be a whole number of at least 1, not inf": {"smallest_cell": math.inf},
    "bandwidth: not all values are numbers": {"law": "kernel", "bandwidth": "x"},
    "expected_groups: there is no attribute sex": {"expected_groups": {"sex": ["a", "b"]}},
    "expected_groups: pass a list of names": {"expected_groups": "ab"},
    "expected_groups: pass a list": {"expected_groups": {"group": "ab"}},
    'law: with a tolerance, "kernel" needs': {"law": "kernel", "tolerance": 0.1},
}


@pytest.mark.parametrize("message", INVALID)
def test_invalid_input_is_rejected(message):
    arguments = {"decisions": DECISIONS, "distances": DISTANCES, "groups": GROUPS}
    with pytest.raises(AuditInputError, match=message):
        projected(**{**arguments, **INVALID[message]})


def test_weights_are_not_supported():
    with pytest.raises(TypeError, match="weights"):
        projected(DECISIONS, DISTANCES, GROUPS, weights=np.ones(N))


def test_a_person_with_a_partly_unknown_group_is_accepted():
    groups = np.array(["a", None, "b", "b"] * (N // 4), dtype=object)
    units = np.repeat(np.arange(N // 2), 2)
    assert projected(DECISIONS, DISTANCES, groups, units=units).p_value is not None


@pytest.mark.parametrize("kind", [list, pd.Series, lambda v: np.array(v, dtype=object)])
def test_lists_series_and_arrays_are_accepted(kind):
    result = projected(kind(DECISIONS), kind(DISTANCES), kind(GROUPS))
    assert result.p_value == projected(DECISIONS, DISTANCES, GROUPS).p_value
    as_bool = projected(DECISIONS == 1, DISTANCES, GROUPS == "a")
    assert as_bool.p_value == pytest.approx(result.p_value, rel=1e-12)


def test_input_arrays_are_not_modified():
    arrays = [DECISIONS.copy(), DISTANCES.copy(), GROUPS.copy()]
    projected(*arrays)
    for before, after in zip((DECISIONS, DISTANCES, GROUPS), arrays, strict=True):
        np.testing.assert_array_equal(before, after)
