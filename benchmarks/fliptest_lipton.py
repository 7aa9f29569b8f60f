"""The default map on Lipton's hiring data: margins on unseen people, and how refits scatter.

A refit learns from nine tenths of the same people, drawn anew. Flipsets of maps that were fitted to
fresh people stand beside: they scatter more, whatever the map.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy.stats import ks_2samp

from benchmarks.claims import Claim, Say, print_wide
from benchmarks.papers.lipton import HiringModel, hiring_people
from offline_audit.fliptest.counterparts import Asked, counterparts_of
from offline_audit.maps import MapMethod, map_method
from offline_audit.maps.transport_map import Features

__all__ = ["measure_lipton"]

Float = NDArray[np.float64]

# Everything was tuned on seeds below 100.
_SEED, _PEOPLE = 1000, 10_000
_DEFAULT = "joint_quantile"
_MAPS = (_DEFAULT, "quantile", "gaussian", "sliced")
# Of the columns of what was tried.
_SIDES = np.array([True, True, False, False])


def measure_lipton(quick: bool, say: Say) -> list[Claim]:  # noqa: FBT001 - as a benchmark's
    """Women carried to men, held against the same unseen people."""
    refits = 4 if quick else 20
    found = {}
    for name in _MAPS:
        say(f"Lipton, {name}: {refits} refits, {refits} fresh draws")
        found[name] = [_tried(map_method(name), refits, fresh=fresh) for fresh in (False, True)]
    _print(found)
    same, fresh = found[_DEFAULT]
    worst = np.maximum(same[:, 2:].max(0), fresh[:, 2:].max(0))
    return [
        Claim(
            claim="Lipton: largest KS of work experience and hair length on unseen women",
            figure=float(worst.max()),
            unit="KS, worst of refits and fresh draws",
            side="at most",
            bar=0.03,
            rounds=2 * refits,
            details={"work": float(worst[0]), "hair": float(worst[1])},
        ),
        _scatter("the flipset", same.sum(1, where=_SIDES), fresh.sum(1, where=_SIDES)),
        _scatter("the advantaged", same[:, 0], fresh[:, 0]),
        _scatter("the disadvantaged", same[:, 1], fresh[:, 1]),
    ]


def _scatter(whom: str, same: Float, fresh: Float) -> Claim:
    """How far the size of a refit's flipset is from the mean of all refits."""
    return Claim(
        claim=f"Lipton: size of {whom} in a refit, farthest from the mean",
        figure=100 * float(np.abs(same / same.mean() - 1).max()),
        unit="%",
        side="at most",
        bar=10,
        rounds=len(same),
        details={"people": _range(same), "maps fitted to fresh people": _range(fresh)},
    )


def _tried(method: MapMethod, refits: int, *, fresh: bool) -> Float:
    """Advantaged, disadvantaged, KS of both features, for each refit, `[r, 4]`."""
    women, men, columns = hiring_people(_PEOPLE, seed=_SEED)
    unseen, there, _ = hiring_people(_PEOPLE, seed=_SEED + 1)
    model = HiringModel.of(women, men)
    asked = Asked(features=unseen, decisions=model.decide(unseen) == 1)
    rows = []
    for here, away in _fresh(refits) if fresh else _parts(women, men, refits):
        flipset, _ = counterparts_of(asked, method.fit(here, away, columns), model, 1)
        carried = flipset.counterparts[0]
        sides = (flipset.share("advantaged"), flipset.share("disadvantaged"))
        gaps = [float(ks_2samp(carried[:, c], there[:, c]).statistic) for c in (0, 1)]
        rows.append([*(len(flipset) * side for side in sides), *gaps])
    return np.array(rows)


def _fresh(refits: int) -> Iterator[tuple[Features, Features]]:
    for number in range(refits):
        women, men, _ = hiring_people(_PEOPLE, seed=_SEED + 2 + number)
        yield women, men


def _parts(women: Features, men: Features, refits: int) -> Iterator[tuple[Features, Features]]:
    for number in range(refits):
        rng = np.random.default_rng(_SEED + number)
        size = 9 * _PEOPLE // 10
        one, other = (rng.choice(_PEOPLE, size, replace=False) for _ in range(2))
        yield women[one], men[other]


def _range(values: Float) -> str:
    return f"{values.min():.0f} to {values.max():.0f}"


def _print(found: dict[str, list[Float]]) -> None:
    table = Table(title="Lipton's hiring data, women → men, 10,000 unseen women")
    for heading in ("map", "advantaged", "disadvantaged", "KS work", "KS hair", "fresh people"):
        table.add_column(heading, justify="right")
    for name, (same, fresh) in found.items():
        table.add_row(
            name,
            *(_range(same[:, side]) for side in (0, 1)),
            *(f"{same[:, column].max():.3f}" for column in (2, 3)),
            " / ".join(_range(fresh[:, side]) for side in (0, 1)),
        )
    print_wide(table)
