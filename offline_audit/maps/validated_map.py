"""A map fitted to one half of both groups and validated on the other half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns
from offline_audit.maps.grid import Grid, GridMap
from offline_audit.maps.transport_map import Features, MapMethod, Progress, TransportMap
from offline_audit.maps.validation import MapValidation, Units, validate_map
from offline_audit.units import UnitRows

__all__ = ["ValidatedMap", "fit_validated", "halves"]

# Failed checks that a reason lists.
_LISTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedMap:
    """A map and its validation, whatever its result.

    Attributes:
        map: The map, fitted to all rows, or to one half if the method is slow.
        validation: Validation of the map fitted to one half, on the other half.
    """

    map: TransportMap
    validation: MapValidation

    @property
    def rejection(self) -> str | None:
        """Why the map cannot be used, with the first failed checks; None if it passed."""
        failures = self.validation.failures
        if not failures:
            return None
        more = f"; and {len(failures) - _LISTED} more" if len(failures) > _LISTED else ""
        return f"the map failed validation: {'; '.join(failures[:_LISTED])}{more}."


def fit_validated(
    source: Features,
    target: Features,
    columns: Columns,
    method: MapMethod,
    *,
    grid: Grid,
    seed: int,
    progress: Progress,
    units: tuple[Units, Units] = (None, None),
) -> ValidatedMap:
    """Fit to one half of each group, validate on the other; fit to all rows if that is fast.

    Args:
        source: Rows of the source group, `[n, d]`.
        target: Rows of the target group, `[m, d]`.
        columns: Description of the columns.
        method: Method that fits the map, to features in float32.
        grid: Values that counterparts may have; the map is validated with counterparts on it.
        seed: Seed of the random generator.
        progress: Called during long fits.
        units: Units of the source rows and of the target rows; a unit is not divided.
    """
    rounded, rounded_target = (rows.astype(np.float32, copy=False) for rows in (source, target))
    source_fit, source_test = halves(len(source), units[0], seed)
    target_fit, target_test = halves(len(target), units[1], seed)
    half = method.fit(
        rounded[source_fit], rounded_target[target_fit], columns, seed=seed, progress=progress
    )
    validation = validate_map(
        GridMap(map=half, grid=grid),
        source[source_test],
        target[target_test],
        columns,
        method.cost,
        seed=seed,
        units=(
            None if units[0] is None else units[0][source_test],
            None if units[1] is None else units[1][target_test],
        ),
    )
    fitted = method.fit(rounded, rounded_target, columns, seed=seed) if method.quick else half
    return ValidatedMap(map=fitted, validation=validation)


def halves(n: int, units: Units, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of two random halves of n rows; a unit is not divided."""
    rng = np.random.default_rng([seed, n])
    if units is None:
        order = rng.permutation(n)
        return np.sort(order[: n // 2]), np.sort(order[n // 2 :])
    owners = UnitRows.of(units)
    first, second = np.array_split(rng.permutation(len(owners)), 2)
    return np.sort(owners.rows(first)), np.sort(owners.rows(second))
