"""A map of one direction, with what people tell of it that it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features, MapMethod, Progress, TransportMap
from offline_audit.maps.validation import MapValidation, validate_map

__all__ = ["ValidatedMap", "fit_validated"]

# Failures of a map that are told.
_MOST_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedMap:
    """By which people are carried.

    Attributes:
        map: Fitted to everyone; a slow one to one half.
        validation: Of the map that was fitted to one half, on the other.
    """

    map: TransportMap
    validation: MapValidation

    @property
    def unsound(self) -> str | None:
        """Why it is no evidence, the first few things of it; None if it is sound."""
        failures = self.validation.failures
        if not failures:
            return None
        more = f"; and {len(failures) - _MOST_TOLD} more" if len(failures) > _MOST_TOLD else ""
        return f"the map is not sound: {'; '.join(failures[:_MOST_TOLD])}{more}."


def fit_validated(
    source: Features,
    target: Features,
    columns: Columns,
    method: MapMethod,
    *,
    seed: int,
    tell: Progress,
) -> ValidatedMap:
    """Fit to one half of each group and try on the other; then, if that is quick, fit to all."""
    halves = [_halves(len(group), seed) for group in (source, target)]
    (here, unseen), (there, members) = halves
    part = method.fit(source[here], target[there], columns, seed=seed, progress=tell)
    validation = validate_map(
        part, source[unseen], target[members], columns, method.cost, seed=seed
    )
    whole = method.fit(source, target, columns, seed=seed) if method.quick else part
    return ValidatedMap(map=whole, validation=validation)


def _halves(n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    order = np.random.default_rng([seed, n]).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])
