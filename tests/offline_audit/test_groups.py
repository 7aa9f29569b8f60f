"""Crossings of protected attributes."""

from __future__ import annotations

import numpy as np

from offline_audit.groups import Crossing, crossed
from offline_audit.validation import UNKNOWN


def test_a_crossing_with_an_attribute_without_known_groups_has_no_groups():
    known = Crossing(attribute="sex", names=("a", "b"), codes=np.array([0, 1, 1]))
    unknown = Crossing(attribute="age", names=(), codes=np.full(3, UNKNOWN))
    result = crossed([known, unknown])
    assert (result.attribute, result.names) == ("sex × age", ())
    assert result.codes.tolist() == [UNKNOWN] * 3
