"""The default map on Lipton's hiring data: marginals on held-out people, and variation of refits.

A refit uses a random 90% of the same people. Maps fitted to new samples are reported as well; their
flipsets vary more, whatever the map. By that stricter reading, neither bar would be met.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy.stats import ks_2samp

from benchmarks.claims import Claim, Say, Scale, print_wide
from benchmarks.papers.lipton import HIRING, Applicants, applicants, fair_model
from offline_audit import AuditedModel, map_method
from offline_audit.fliptest.flipset import DecidedRows, counterparts_of
from offline_audit.maps import MapMethod
from offline_audit.maps.transport_map import Features

__all__ = ["measure_lipton"]

Float = NDArray[np.float64]

# Development used seeds below 100 only.
_SEED, _PEOPLE = 1000, 10_000
_DEFAULT = "joint_quantile"
_MAPS = (_DEFAULT, "quantile", "gaussian", "sliced")
# Columns of `_evaluate` that are sizes of flipsets.
_SIDES = np.array([True, True, False, False])


def measure_lipton(scale: Scale, say: Say) -> list[Claim]:
    """Transport women to men, and evaluate on the same held-out people."""
    refits = scale.pick(full=20, quick=4, smoke=2)
    people = scale.pick(full=_PEOPLE, quick=_PEOPLE, smoke=400)
    results = {}
    for name in _MAPS:
        say(f"Lipton, {name}: {refits} refits, {refits} new samples")
        results[name] = [
            _evaluate(map_method(name), refits, people, fresh=fresh) for fresh in (False, True)
        ]
    _print(results)
    same, fresh = results[_DEFAULT]
    worst = same[:, 2:].max(0)
    return [
        Claim(
            claim="Lipton: largest KS of work experience and hair length on held-out women",
            figure=float(worst.max()),
            unit="KS, worst refit",
            side="at most",
            bar=0.03,
            rounds=refits,
            details={
                "work": float(worst[0]),
                "hair": float(worst[1]),
                "maps fitted to new people, worst": float(fresh[:, 2:].max()),
                "maps fitted to new people, mean": float(fresh[:, 2:].mean()),
            },
        ),
        _variation("the flipset", same.sum(1, where=_SIDES), fresh.sum(1, where=_SIDES)),
        _variation("the advantaged", same[:, 0], fresh[:, 0]),
        _variation("the disadvantaged", same[:, 1], fresh[:, 1]),
    ]


def _variation(side: str, same: Float, fresh: Float) -> Claim:
    """Largest deviation of a refit's flipset size from the mean of all refits."""
    return Claim(
        claim=f"Lipton: size of {side} in a refit, farthest from the mean",
        figure=100 * float(np.abs(same / same.mean() - 1).max()),
        unit="%",
        side="at most",
        bar=10,
        rounds=len(same),
        details={"people": _range(same), "maps fitted to new people": _range(fresh)},
    )


def _evaluate(method: MapMethod, refits: int, people: int, *, fresh: bool) -> Float:
    """Sizes of both flipsets and KS of both features, for each refit, `[r, 4]`."""
    women, men = _applicants(_SEED, people)
    unseen, target = _applicants(_SEED + 1, people)
    model = fair_model(women, men)
    audited = AuditedModel.from_function(model.hires)
    decided = DecidedRows(features=unseen.features, decisions=model.hires(unseen.features))
    rows = []
    parts = _fresh(refits, people) if fresh else _parts(women.features, men.features, refits)
    for source, destination in parts:
        flipset, _ = counterparts_of(decided, method.fit(source, destination, HIRING), audited, 1)
        transported = flipset.counterparts[0]
        sides = (flipset.share("advantaged"), flipset.share("disadvantaged"))
        gaps = [float(ks_2samp(transported[:, c], target.features[:, c]).statistic) for c in (0, 1)]
        rows.append([*(len(flipset) * side for side in sides), *gaps])
    return np.array(rows)


def _applicants(seed: int, people: int) -> tuple[Applicants, Applicants]:
    """Women and men."""
    rng = np.random.default_rng(seed)
    women = applicants(people, men=False, rng=rng)
    return women, applicants(people, men=True, rng=rng)


def _fresh(refits: int, people: int) -> Iterator[tuple[Features, Features]]:
    for number in range(refits):
        women, men = _applicants(_SEED + 2 + number, people)
        yield women.features, men.features


def _parts(women: Features, men: Features, refits: int) -> Iterator[tuple[Features, Features]]:
    for number in range(refits):
        rng = np.random.default_rng(_SEED + number)
        size = 9 * len(women) // 10
        one, other = (rng.choice(len(women), size, replace=False) for _ in range(2))
        yield women[one], men[other]


def _range(values: Float) -> str:
    return f"{values.min():.0f} to {values.max():.0f}"


def _print(results: dict[str, list[Float]]) -> None:
    table = Table(title="Lipton's hiring data, women → men, held-out women")
    for heading in ("map", "advantaged", "disadvantaged", "KS work", "KS hair", "new people"):
        table.add_column(heading, justify="right")
    for name, (same, fresh) in results.items():
        table.add_row(
            name,
            *(_range(same[:, side]) for side in (0, 1)),
            *(f"{same[:, column].max():.3f}" for column in (2, 3)),
            " / ".join(_range(fresh[:, side]) for side in (0, 1)),
        )
    print_wide(table)
