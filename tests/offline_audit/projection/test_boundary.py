"""Changes and scales of precomputed distances are validated."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import AuditInputError, BoundaryDistances

RNG = np.random.default_rng(0)
N = 400
DISTANCES = RNG.exponential(size=N)


def test_changes_must_match_the_distances():
    with pytest.raises(AuditInputError, match="changes: shape"):
        BoundaryDistances.from_arrays(DISTANCES, changes=np.ones((3, 2)))
    with pytest.raises(AuditInputError, match="feature_names: 1 names for 2 features"):
        BoundaryDistances.from_arrays(DISTANCES, changes=np.ones((N, 2)), feature_names=["a"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"changes": [["secret"]] * N}, "changes: not all values are numbers"),
        ({"changes": np.full((N, 1), np.nan)}, "changes: not finite in rows"),
        (
            {"changes": np.ones((N, 2)), "scales": [1.0]},
            r"scales: shape \(1,\) does not match 2 features",
        ),
        (
            {"changes": np.ones((N, 1)), "scales": [-1.0]},
            "scales: standard deviations must be finite and",
        ),
        ({"changes": np.ones((N, 1)), "scales": ["secret"]}, "scales: not all values are numbers"),
    ],
)
def test_invalid_changes_and_scales_are_rejected(arguments, message):
    with pytest.raises(AuditInputError, match=message) as error:
        BoundaryDistances.from_arrays(DISTANCES, **arguments)
    assert "secret" not in str(error.value)
