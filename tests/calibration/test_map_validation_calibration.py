"""A map that is called validated could have been shown to be bad: power of the validation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from offline_audit import Columns
from offline_audit.maps import detectable
from offline_audit.maps.transport_map import SQUARED_L2
from offline_audit.maps.validation import MapValidation, validate_map

pytestmark = pytest.mark.calibration

COLUMNS = Columns.numeric(["a", "b", "c"])
RUNS, FIRST_SEED = 25, 100
FAILURES = {"ks": "different distribution", "regression": "depends on", "auc": "classifier"}


@dataclass(frozen=True)
class Identity:
    """A map that moves nothing, so that its deviation is the difference of the groups."""

    splits = False

    def transport(self, features, n_counterparts=1):
        return features[None]


def draw_rows(rng, n, correlation=0.0):
    rows = rng.normal(size=(n, 3))
    rows[:, 1] = correlation * rows[:, 0] + np.sqrt(1 - correlation**2) * rows[:, 1]
    return rows.astype(np.float32)


def validated(check, size, n, seed) -> MapValidation:
    """Validation of a map with a deviation of a known size, on n rows of each group."""
    rng = np.random.default_rng(seed)
    # The squared error of independent rows is larger by 2 ρ² of the variance.
    correlation = np.sqrt(size / 2) if check == "regression" else 0.0
    source, target = draw_rows(rng, n), draw_rows(rng, n, correlation)
    if check == "ks":
        source[:, 0] += 2 * stats.norm.ppf((size + 1) / 2)
    return validate_map(Identity(), source, target, COLUMNS, SQUARED_L2, seed=seed)


def runs_of(check, size, n):
    return [validated(check, size, n, FIRST_SEED + run) for run in range(RUNS)]


def found(check, result):
    return any(FAILURES[check] in failure for failure in result.failures)


@pytest.mark.parametrize("check", ["ks", "regression"])
def test_the_smallest_detectable_deviation_is_found_in_80_percent_of_samples(check):
    n = 250
    size = getattr(validated("ks", 0.0, n, 0).detectable, check)
    share = np.mean([found(check, result) for result in runs_of(check, size, n)])
    # Three standard errors below 80%; the maximum over several points or columns adds power.
    assert share >= 0.8 - 3 * np.sqrt(0.16 / RUNS)
    half = np.mean([found(check, result) for result in runs_of(check, size / 2, n)])
    assert half < share


def test_the_smallest_detectable_auc_is_found_in_80_percent_of_samples():
    """The AUC is that of a classifier trained on few rows, so it is measured for each deviation."""
    measured = {}
    for size in (0.3, 0.4, 0.5):
        results = runs_of("ks", size, 300)
        auc, limit = (
            np.mean(x) for x in zip(*((r.auc, r.detectable.auc) for r in results), strict=True)
        )
        measured[auc - limit] = np.mean([found("auc", result) for result in results])
    above = [share for excess, share in measured.items() if excess >= 0]
    assert above
    assert min(above) >= 0.8 - 3 * np.sqrt(0.16 / RUNS)
    assert min(measured.values()) < 0.8


@pytest.mark.parametrize("n", [100, 1_200])
@pytest.mark.parametrize("check", ["ks", "regression"])
def test_a_map_that_is_off_by_the_required_deviation_is_rarely_called_validated(check, n):
    """Without the requirement of power, a map with such a KS distance passes most small samples."""
    size = {"ks": detectable._KS, "regression": detectable._REGRESSION}[check]
    results = runs_of(check, size, n)
    share = np.mean([result.state == "validated" for result in results])
    assert share <= 0.2 + 3 * np.sqrt(0.16 / RUNS)
    # Rows on which a good map is validated, so that the bound above is not trivial.
    assert (validated("ks", 0.0, n, FIRST_SEED).state == "validated") == (n == 1_200)
    if (check, n) == ("ks", 100):
        assert np.mean([result.passed for result in results]) > 0.5


@pytest.mark.parametrize(("n", "state"), [(250, "not shown"), (3_000, "validated")])
def test_good_maps_are_validated_with_enough_rows(n, state):
    results = [validated("ks", 0.0, n, FIRST_SEED + run) for run in range(5)]
    # At most 1% fail by a check, so more than one of five is improbable (1 in 1,000).
    assert sum(result.state == state for result in results) >= 4
