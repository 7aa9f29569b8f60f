"""FlipTest and FairTest where groups differ in one feature (section 5.5 of the paper).

Arrests are geometric, with more arrests in S than in S′. The model decides high risk for two or
more arrests, low risk for none, and at random (by a coin) for exactly one. The paper does not say
whether a person and the counterpart share the coin. Nor does it say how counts split: an optimal
plan sends some people with two arrests to none and some to one, the paper's network sends all of
them to one number. All variants are evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from benchmarks.claims import Claim, Say, Scale, print_wide
from benchmarks.papers.fliptest_maps import WGAN, gan, map_methods
from monitor import Feature
from offline_audit import Columns
from offline_audit.maps.transport_map import Features, TransportMap

__all__ = ["ARRESTS", "Flips", "arrests", "flips_of", "high_risk", "measure_arrests", "one_to_one"]

ARRESTS = Columns(features=(Feature(name="arrests", kind="integer"),))
_PEOPLE, _QUICK_PEOPLE, _SMOKE_PEOPLE = 10_000, 4_000, 300
_DRAWS = 128
_PAPER_FLIPS, _PAPER_MORE, _PAPER_CORRELATION = 2_572, 1.44, (0.2452, 0.2941)
_EXACT, _ONE = "exact, squared L2", "exact, each count to one"


def arrests(n: int, chance: float, rng: np.random.Generator) -> Features:
    """A geometric number minus one, `[n, 1]`."""
    return (rng.geometric(chance, (n, 1)) - 1).astype(np.float32)


def high_risk(counts: NDArray[np.float32], coins: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Two or more arrests, or one arrest and the coin."""
    high: NDArray[np.bool_] = (counts >= 2) | ((counts == 1) & coins)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Flips per 10,000 people of S.

    Attributes:
        high: People with high risk whose counterparts have low risk, F+ in the paper.
        low: The reverse, F−.
        more: Mean excess of arrests of F+ over their counterparts.
        all_more: Whether all of F+ have more arrests.
    """

    high: float
    low: float
    more: float
    all_more: bool


def flips_of(
    people: Features, counterparts: Features, rng: np.random.Generator, *, shared: bool
) -> Flips:
    """Count flips.

    Args:
        people: Arrests, `[n, 1]`.
        counterparts: Arrests of the counterparts, `[e, n, 1]`.
        rng: Random generator of the coins.
        shared: Whether a person and the counterparts share a coin.
    """
    coins = rng.random((1, len(people))) < 0.5
    theirs = coins if shared else rng.random(counterparts.shape[:2]) < 0.5
    mine, other = high_risk(people[:, 0], coins), high_risk(counterparts[..., 0], theirs)
    high = mine & ~other
    more = (people[:, 0] - counterparts[..., 0])[high]
    return Flips(
        high=10_000 * float(high.mean()),
        low=10_000 * float((~mine & other).mean()),
        more=float(more.mean()) if len(more) else math.nan,
        all_more=bool((more > 0).all()),
    )


def one_to_one(fitted: TransportMap, people: Features) -> Features:
    """Send each count to the integer nearest to the mean of its counterparts, `[1, n, 1]`."""
    counts, indices = np.unique(people[:, 0], return_inverse=True)
    means = fitted.transport(counts[:, None], 4 * _DRAWS).mean(0)
    counterparts: Features = np.round(means)[indices][None]
    return counterparts


def measure_arrests(scale: Scale, say: Say) -> list[Claim]:
    """Count flips by map and kind of coin, and compute the correlation of FairTest."""
    rng = np.random.default_rng(0)
    n = scale.pick(full=_PEOPLE, quick=_QUICK_PEOPLE, smoke=_SMOKE_PEOPLE)
    here, there = arrests(n, 1 / 4, rng), arrests(n, 1 / 2, rng)
    counterparts: dict[str, Features] = {}
    for name, method in map_methods(rows=n).items():
        say(f"arrests, {name}")
        fitted = method.fit(here, there, ARRESTS)
        counterparts[name] = fitted.transport(here, _DRAWS)
        if name == _EXACT:
            counterparts[_ONE] = one_to_one(fitted, here)
    say(f"arrests, {WGAN}")
    # The GAN does not know about counts, so its output is rounded.
    generated = gan(scale=scale).fit(here, there, Columns.numeric(["arrests"])).transport(here)
    counterparts[f"{WGAN}{', barely trained' if scale.small else ''}"] = np.maximum(
        np.round(generated), 0
    )
    results = {
        name: [flips_of(here, there, np.random.default_rng(1), shared=s) for s in (True, False)]
        for name, there in counterparts.items()
    }
    correlation, error = _correlation(here, there, rng)
    _print(results, correlation, error)
    return _claims(results, correlation, error, n)


def _correlation(
    source: Features, target: Features, rng: np.random.Generator
) -> tuple[float, float]:
    """Correlation of decision and group, and its standard error."""
    counts = np.concatenate([source, target])[:, 0]
    decisions = high_risk(counts, rng.random(len(counts)) < 0.5)
    correlation = float(np.corrcoef(decisions, np.arange(len(counts)) < len(source))[0, 1])
    return correlation, (1 - correlation**2) / math.sqrt(len(counts))


def _print(results: Mapping[str, list[Flips]], correlation: float, error: float) -> None:
    title = "Flips of 10,000 by arrests (paper 2,572 / 0, 1.44 more)"
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)
    table.add_column("map", no_wrap=True)
    for heading in (
        "shared coin\nF+ / F−",
        "own coin\nF+ / F−",
        "more arrests\nin F+",
        "all of F+",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, (shared, own) in results.items():
        table.add_row(
            name,
            *(f"{flips.high:.0f} / {flips.low:.0f}" for flips in (shared, own)),
            f"{shared.more:.2f}",
            "yes" if shared.all_more else "no",
        )
    print_wide(table)
    low, high = correlation - 1.96 * error, correlation + 1.96 * error
    print(f"Correlation of decision and group: [{low:.4f}, {high:.4f}] (paper [0.2452, 0.2941])")


def _claims(
    results: Mapping[str, list[Flips]], correlation: float, error: float, n: int
) -> list[Claim]:
    one, split = results[_ONE][0], results[_EXACT][0]
    middle = sum(_PAPER_CORRELATION) / 2
    # Standard error of a share of one quarter, ours and the paper's, per 10,000 people.
    chance = math.sqrt(0.1875 * (1 / n + 1 / 10_000)) * 10_000
    # Standard error of the mean excess over those who flip.
    spread = 0.75 * math.sqrt(1 / (one.high / 10_000 * n) + 1 / _PAPER_FLIPS)
    return [
        Claim(
            claim="arrests: size of F+, each count to one number, distance from 2,572",
            figure=abs(one.high - _PAPER_FLIPS),
            unit="people off",
            side="at most",
            bar=round(3 * chance),
            rounds=n,
            details={"each to one": one.high, "where counts split": split.high},
        ),
        Claim(
            claim="arrests: size of F−, with and without splitting of counts",
            figure=max(one.low, split.low),
            unit="people",
            side="at most",
            bar=0,
            rounds=n,
        ),
        Claim(
            claim="arrests: excess of arrests in F+, each count to one number, distance from 1.44",
            figure=abs(one.more - _PAPER_MORE),
            unit="off",
            side="at most",
            bar=round(3 * spread, 2),
            rounds=n,
            details={"each to one": one.more, "where counts split": split.more},
        ),
        Claim(
            claim="arrests: correlation of decision and group, distance from the paper's midpoint",
            figure=abs(correlation - middle),
            unit="off",
            side="at most",
            bar=round(_PAPER_CORRELATION[1] - middle, 4),
            rounds=2 * n,
            details={"correlation": correlation, "standard error": error},
        ),
    ]
