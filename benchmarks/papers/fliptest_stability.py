"""Variation of a map over samples (section 3.2 of the paper, Figure 2).

Standard normal rows are transported to standard normal rows, so the best map is the identity. Two
rows, 0 and 1 in all features, are in every sample; the others are new in every sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from benchmarks.claims import Claim, Say, Scale, print_wide
from benchmarks.papers.fliptest_maps import EXACT_L1, WGAN, gan, map_methods
from benchmarks.papers.options import OUT
from offline_audit import Columns
from offline_audit.maps.transport_map import MapMethod

__all__ = ["Stability", "measure_stability", "stability"]

Float = NDArray[np.float64]
_PEOPLE = 500
_DIMENSIONS, _QUICK_DIMENSIONS = (1, 2, 3, 4, 5, 6, 7), (1, 4)
_DRAWS, _QUICK_DRAWS, _SMOKE_DRAWS = 100, 8, 2
# The GAN takes a minute per sample.
_GAN_DIMENSIONS, _GAN_DRAWS = (1, 4, 7), 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Result of one map in d dimensions.

    Attributes:
        variances: Variances of the image of 0 over samples, `[d]`.
        means: Means of the image of 1 over samples, `[d]`.
        draws: Number of samples.
    """

    variances: Float
    means: Float
    draws: int


# By map and number of features.
Results = Mapping[tuple[str, int], Stability]


def stability(method: MapMethod, d: int, draws: int, n: int = _PEOPLE) -> Stability:
    """Transport 0 and 1 by maps that are fitted to samples of n rows each."""
    images = np.empty((draws, 2, d))
    columns = Columns.numeric([f"feature {number}" for number in range(d)])
    fixed = np.stack([np.zeros(d), np.ones(d)]).astype(np.float32)
    for draw in range(draws):
        rng = np.random.default_rng((d, draw))
        source, target = rng.normal(size=(2, n, d)).astype(np.float32)
        source[:2] = fixed
        images[draw] = method.fit(source, target, columns, seed=draw).transport(fixed)[0]
    return Stability(variances=images[:, 0].var(0, ddof=1), means=images[:, 1].mean(0), draws=draws)


def measure_stability(
    scale: Scale,
    say: Say,
    out: Path = OUT,
) -> list[Claim]:
    """Fit every map to many samples, print the variation, and draw Figure 2."""
    results: dict[tuple[str, int], Stability] = {}
    draws = scale.pick(full=_DRAWS, quick=_QUICK_DRAWS, smoke=_SMOKE_DRAWS)
    people = scale.pick(full=_PEOPLE, quick=_PEOPLE, smoke=60)
    for d in scale.pick(full=_DIMENSIONS, quick=_QUICK_DIMENSIONS, smoke=_GAN_DIMENSIONS):
        for name, method in map_methods().items():
            say(f"stability, {name}, {d} features, {draws} samples")
            results[name, d] = stability(method, d, draws, people)
    for d in (1,) if scale is Scale.QUICK else _GAN_DIMENSIONS:
        say(f"stability, {WGAN}, {d} features")
        results[WGAN, d] = stability(gan(scale=scale), d, 2 if scale.small else _GAN_DRAWS, people)
    _print(results, scale=scale)
    print(f"Figure 2: {_draw(results, out)}")
    return [] if scale is Scale.QUICK else _claims(results)


def _print(results: Results, *, scale: Scale) -> None:
    dimensions = sorted({d for _, d in results})
    title = "Variance of the image of 0 | mean of the image of 1, over features and samples"
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)
    table.add_column("features", no_wrap=True)
    for d in dimensions:
        table.add_column(str(d), justify="right", no_wrap=True)
    for name in dict.fromkeys(name for name, _ in results):
        cells = []
        for d in dimensions:
            one = results.get((name, d))
            cells.append(f"{one.variances.mean():.2g} | {one.means.mean():.2f}" if one else "–")
        label = f"{name}, barely trained" if scale.small and name == WGAN else name
        table.add_row(label, *cells)
    print_wide(table)


def _draw(results: Results, out: Path) -> Path:
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    names: Sequence[str] = list(dict.fromkeys(name for name, _ in results))
    for index, name in enumerate(names):
        points = [
            (d + 0.08 * (index - len(names) / 2), value)
            for (other, d), seen in results.items()
            if other == name
            for value in seen.variances
            # A variance of zero cannot be drawn on a logarithmic axis.
            if value > 1e-6
        ]
        if points:
            axes.plot(*zip(*points, strict=True), ".", markersize=5, label=name)
    axes.set(yscale="log", xlabel="features", ylabel="variance of the image of 0, per feature")
    axes.set_title("Variation of a map over samples of 500 (Figure 2)")
    figure.legend(loc="outside right upper", fontsize=8)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "fliptest_figure_2.png"
    figure.savefig(path, dpi=120)
    return path


def _claims(results: Results) -> list[Claim]:
    exact = {d: results[EXACT_L1, d] for d in (1, 7)}
    by_gan = {d: results[WGAN, d] for d in _GAN_DIMENSIONS}
    shrinks = {
        name: float(results[name, 7].means.mean())
        for name in ("Gaussian", "sliced", EXACT_L1, WGAN)
    }
    return [
        Claim(
            claim="stability: variance of the exact map relative to the GAN's, seven features",
            figure=float(exact[7].variances.mean() / by_gan[7].variances.mean()),
            unit="×",
            side="at least",
            bar=2,
            rounds=_GAN_DRAWS,
            details={"exact": exact[7].variances.mean(), "GAN": by_gan[7].variances.mean()},
        ),
        Claim(
            claim="stability: variance of the exact map, seven features relative to one",
            figure=float(exact[7].variances.mean() / exact[1].variances.mean()),
            unit="×",
            side="at least",
            bar=2,
            rounds=_DRAWS,
        ),
        Claim(
            claim="stability: shrinkage of 1 towards the mean by the exact map, seven features",
            figure=1 - shrinks[EXACT_L1],
            unit="of 1",
            side="at least",
            bar=0.1,
            rounds=_DRAWS,
            details=shrinks,
        ),
        Claim(
            claim="stability: shrinkage of 1 towards the mean by the GAN, seven features",
            figure=abs(1 - shrinks[WGAN]),
            unit="of 1",
            side="at most",
            bar=0.1,
            rounds=_GAN_DRAWS,
        ),
    ]
