"""People with the same features: what is drawn for one of them must not be drawn for all.

A map gives the same row the same counterparts. Where few rows differ, as among people told by a few
categories, one draw would move all of a row or nobody, and shares would be as coarse.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.transport_map import Features, TransportMap

__all__ = ["alike", "draws_among", "one_counterpart"]

Places = NDArray[np.intp]
# Draws of a row at most, and of all rows together before those of each are fewer.
_MOST, _ROWS = 256, 1 << 16


def alike(features: Features) -> Places | None:
    """A number for each person, the same for those with the same features, `[n]`.

    None where so few share them that every person may as well stand for herself.
    """
    _, codes = np.unique(features, axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    return codes if _crowding(np.bincount(codes)) > 1.5 else None


def draws_among(counts: NDArray[np.intp], n_counterparts: int) -> int:
    """How many draws each row needs, where some stand for many people.

    As many in all, by weight, as if everyone had her own: draws · Σ counts² / Σ counts.

    Args:
        counts: People of each row that differs, `[k]`.
        n_counterparts: Of each, if all people differed.
    """
    wanted = math.ceil(n_counterparts * _crowding(counts))
    return max(n_counterparts, min(wanted, _MOST, _ROWS // len(counts)))


def one_counterpart(fitted: TransportMap, features: Features) -> Features:
    """One counterpart of each person, `[n, d]`; people who are alike get different ones."""
    codes = alike(features)
    if codes is None:
        everyone: Features = fitted.transport(features)[0]
        return everyone
    _, first, places, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    drawn = fitted.transport(features[first], draws_among(counts, 1))
    order = np.argsort(places, kind="stable")
    number = np.empty(len(places), np.intp)
    number[order] = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    found: Features = drawn[number % len(drawn), places]
    return found


def _crowding(counts: NDArray[np.intp]) -> float:
    """People with whom someone shares her features, herself counted, on average."""
    return float((counts.astype(float) ** 2).sum() / max(counts.sum(), 1))
